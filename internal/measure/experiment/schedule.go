package experiment

import (
	"math/rand/v2"
	"slices"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
)

// Execution is one run of one case in one configuration.
type Execution struct {
	Configuration stack.Configuration
	Case          Case
	Block         int  // the pass over all cases and configurations, from 0
	Repetition    int  // execution of this case in this configuration, from 0
	Warmup        bool // its result is discarded
}

// Key identifies the execution in the journal.
func (e Execution) Key() result.Execution {
	return result.Execution{Configuration: e.Configuration.Name, Case: e.Case.Name, Block: e.Block, Repetition: e.Repetition}
}

// Blocks outside the schedule.
const (
	noBlock     = -1 - iota
	warmupBlock // the whole warm-up
)

// blockOf returns the block of x, where the warm-up is a block.
func blockOf(x Execution) int {
	if x.Warmup {
		return warmupBlock
	}
	return x.Block
}

// String names the execution for people: "NAT udp_rr/1280".
func (e Execution) String() string { return e.Configuration.Name + " " + e.Case.Name }

// Schedule returns the executions of spec in order; equal seeds give equal schedules.
// Each repetition is a block, one pass over all cases in random order. Within a block
// the configurations of a case follow each other, so that compared values are measured
// close in time. Their order is random and balanced: with n configurations, each one has
// each position once in n blocks, and precedes each other one equally often in 2n.
// A case with fewer repetitions than spec is in the first blocks only.
func Schedule(spec *Spec, seed uint64) []Execution {
	r := rand.New(rand.NewPCG(seed, 0))
	orders := make([][][]int, len(spec.Cases))
	for i := range orders {
		orders[i] = balancedOrders(r, len(spec.Configurations), spec.Repetitions)
	}
	schedule := make([]Execution, 0, spec.Repetitions*len(spec.Cases)*len(spec.Configurations))
	for block := range spec.Repetitions {
		for _, i := range r.Perm(len(spec.Cases)) {
			if n := spec.Cases[i].Blocks; n > 0 && block >= n {
				continue
			}
			for _, j := range orders[i][block] {
				schedule = append(schedule, Execution{Configuration: spec.Configurations[j], Case: spec.Cases[i], Block: block, Repetition: block})
			}
		}
	}
	return schedule
}

// balancedOrders returns an order of n items for each block: the n rotations of a random
// order, shuffled, then those of its reverse, then those of a new order, and so on.
func balancedOrders(r *rand.Rand, n, blocks int) [][]int {
	orders := make([][]int, 0, blocks+n)
	var base []int
	for round := 0; len(orders) < blocks; round++ {
		if round%2 == 0 {
			base = r.Perm(n)
		} else {
			slices.Reverse(base)
		}
		for _, turn := range r.Perm(n) {
			orders = append(orders, slices.Concat(base[turn:], base[:turn]))
		}
	}
	return orders[:blocks]
}

// Warmups returns the executions that precede the schedule: s.Warmup times the first
// case of each group in each configuration.
func (s *Spec) Warmups() []Execution {
	var schedule []Execution
	for range s.Warmup {
		group := ""
		for _, c := range s.Cases {
			if c.Group == group {
				continue
			}
			group = c.Group
			for _, configuration := range s.Configurations {
				schedule = append(schedule, Execution{Configuration: configuration, Case: c, Warmup: true})
			}
		}
	}
	return schedule
}
