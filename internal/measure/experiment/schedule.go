package experiment

import (
	"math/rand/v2"
	"slices"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stack"
)

// Execution is one case to be run once in one configuration.
type Execution struct {
	Configuration stack.Configuration
	Case          Case
	Block         int  // the pass over all cases and configurations, from 0
	Repetition    int  // execution of this case in this configuration, from 0
	Warmup        bool // its result is thrown away
}

// Key identifies the execution in the journal.
func (e Execution) Key() result.Execution {
	return result.Execution{
		Configuration: e.Configuration.Name,
		Case:          e.Case.Name,
		Block:         e.Block,
		Repetition:    e.Repetition,
	}
}

// Blocks that are not of the plan.
const (
	noBlock     = -1 - iota
	warmupBlock // all of the warm-up
)

// blockOf returns the block that x belongs to, the warm-up being one of its own.
func blockOf(x Execution) int {
	if x.Warmup {
		return warmupBlock
	}
	return x.Block
}

// String names the execution for people: "NAT udp_rr/1280".
func (e Execution) String() string { return e.Configuration.Name + " " + e.Case.Name }

// Schedule returns the executions of spec in the order in which they are to be
// run; equal seeds give equal plans. Each repetition is a block, one pass over
// all cases in random order. Within a block the configurations of one case
// follow each other, so that what is compared was measured close in time.
// Their order is random and balanced: over as many blocks as there are
// configurations each of them comes at each place once, over twice as many
// each comes before each other equally often.
func Schedule(spec *Spec, seed uint64) []Execution {
	r := rand.New(rand.NewPCG(seed, 0))
	orders := make([][][]int, len(spec.Cases))
	for i := range orders {
		orders[i] = balancedOrders(r, len(spec.Configurations), spec.Repetitions)
	}
	plan := make([]Execution, 0, spec.Repetitions*len(spec.Cases)*len(spec.Configurations))
	for block := range spec.Repetitions {
		for _, i := range r.Perm(len(spec.Cases)) {
			for _, j := range orders[i][block] {
				plan = append(plan, Execution{
					Configuration: spec.Configurations[j],
					Case:          spec.Cases[i],
					Block:         block,
					Repetition:    block,
				})
			}
		}
	}
	return plan
}

// balancedOrders returns an order of n things for each block: the n rotations
// of a random order one after the other in random turn, then those of its
// reverse, then of a new order, and so on.
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

// warmups returns the executions that precede the plan: spec.Warmup times the
// first case of each group in each configuration.
func warmups(spec *Spec) []Execution {
	var plan []Execution
	for range spec.Warmup {
		group := ""
		for _, c := range spec.Cases {
			if c.Group == group {
				continue
			}
			group = c.Group
			for _, configuration := range spec.Configurations {
				plan = append(plan, Execution{Configuration: configuration, Case: c, Warmup: true})
			}
		}
	}
	return plan
}
