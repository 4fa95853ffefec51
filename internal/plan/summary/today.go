package summary

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"

	"unnest.io/unnest/internal/plan/cluster"
)

// Today is what a cluster costs, and could cost, for an hour. All sums include the nodes that
// stay and have a price.
type Today struct {
	Provider   string     `json:"provider,omitempty"` // aws, gce, azure
	Nodes      int        `json:"nodes"`
	Now        Dollars    `json:"pay_now"`
	Packed     Dollars    `json:"could_pay_packed"` // with the same whole pods on other VMs
	Split      Dollars    `json:"could_pay_split"`  // with containers of a pod on several VMs as well
	Bound      Dollars    `json:"bound"`            // no plan that keeps the rules costs less; pools without a bound count as 0
	PodsSplit  int        `json:"pods_split"`
	Sized      *SizedSum  `json:"right_sized,omitempty"` // with requests by use; nil: the use is unknown
	MinSaving  Dollars    `json:"min_saving,omitempty"`  // of a step
	Steps      []NextStep `json:"steps"`                 // those that save most for each moved pod first; splits after packing, and what budgets forbid today after what they allow
	Pools      []PoolCost `json:"pools"`
	Stay       []Stay     `json:"nodes_that_stay"`
	Rules      []Rule     `json:"rules"`
	Waiting    int        `json:"pods_without_node,omitempty"`     // not planned
	Elsewhere  int        `json:"pods_on_unknown_nodes,omitempty"` // not planned
	Catalogues []string   `json:"catalogues"`
	Prices     []string   `json:"prices,omitempty"` // where they are from, and of when
	Reserved   string     `json:"kube_reserved"`
	Largest    bool       `json:"no_vm_larger_than_today"`
}

// SizedSum is what a cluster could cost with requests by use.
type SizedSum struct {
	Packed    Dollars `json:"could_pay_packed"`
	Split     Dollars `json:"could_pay_split"`
	Bound     Dollars `json:"bound"`
	PodsSplit int     `json:"pods_split"`
}

// HoursOfMonth is the length of a month in prices.
const HoursOfMonth = 730

// PoolCost is nodes that are planned together.
type PoolCost struct {
	Name  string         `json:"pool"`
	Pods  int            `json:"pods"`
	Nodes map[string]int `json:"nodes"` // by model
	Now   Dollars        `json:"pay_now"`
	PoolPlan
	Sized *PoolPlan `json:"right_sized,omitempty"` // with requests by use; nil: the use is unknown
	PerVM string    `json:"on_every_vm"`

	Zone   string            `json:"zone,omitempty"`
	Spot   bool              `json:"spot,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`     // of nodes, by which pods select
	Taints []string          `json:"taints,omitempty"`     // KEY=VALUE:EFFECT
	Moves  int               `json:"pods_moved,omitempty"` // to other VMs, if whole pods are packed
	Evictions
	TooLittle  bool   `json:"saves_too_little,omitempty"` // a plan costs less, but by less than Today.MinSaving
	Stays      string `json:"stays,omitempty"`            // why it is not planned
	SizedStays string `json:"not_sized,omitempty"`        // why its requests stay
}

// PoolPlan is the VMs that a pool could have.
type PoolPlan struct {
	PackedVMs map[string]int `json:"vms_packed"` // by model
	SplitVMs  map[string]int `json:"vms_split"`
	Packed    Dollars        `json:"could_pay_packed"`
	Split     Dollars        `json:"could_pay_split"`
	Bound     Dollars        `json:"bound"` // 0: none is known
	PodsSplit int            `json:"pods_split"`
	Placement []PlacedVM     `json:"placement,omitempty"` // of the cheapest plan; none: as it is
}

// Final returns the plan that the steps lead to.
func (p PoolCost) Final() PoolPlan {
	if p.Sized != nil {
		return *p.Sized
	}
	return p.PoolPlan
}

// PlacedVM is a VM with its pods.
type PlacedVM struct {
	Model string      `json:"model"`
	Pods  []PlacedPod `json:"pods"`
}

// PlacedPod is a pod, or some containers of it.
type PlacedPod struct {
	Pod        string   `json:"pod"`
	Containers []string `json:"containers,omitempty"` // none: all
}

// Stay is nodes that stay as they are, and why.
type Stay struct {
	Why      string  `json:"why"`
	Nodes    int     `json:"nodes"`
	Pods     int     `json:"pods"`
	Cost     Dollars `json:"cost"`
	Unpriced int     `json:"nodes_without_price,omitempty"`
}

// Rule is a kind of rule about the places of pods.
type Rule struct {
	What string `json:"rule"`
	How  string `json:"honoured"`
	Pods int    `json:"pods"`
}

// NextStep is a change of a pool.
type NextStep struct {
	Pool      string         `json:"pool"`
	Action    string         `json:"action"` // pack, right-size or split
	Saves     Dollars        `json:"saves"`
	From      map[string]int `json:"from"` // VMs by model
	To        map[string]int `json:"to"`
	PodsSplit int            `json:"pods_split,omitempty"`
	Moves     int            `json:"pods_moved,omitempty"` // to other VMs; 0: unknown, or none
	Evictions
	Cost Dollars `json:"pay_after"` // for the cluster, after this step and those before it
}

// Evictions is what PodDisruptionBudgets say of the pods that move.
type Evictions struct {
	Rounds  int      `json:"rounds,omitempty"`     // of evictions, at least; 0: no budget limits them
	Blocked []string `json:"blocked_by,omitempty"` // budgets that let none of their pods move today
}

// perMove is what a step saves for each pod that it moves.
func (s NextStep) perMove() float64 { return float64(s.Saves) / float64(max(1, s.Moves)) }

// The actions of steps.
const (
	StepPack  = "pack"
	StepSize  = "right-size"
	StepSplit = "split"
)

// Add sums the pools up, and orders the steps.
func (t *Today) Add() {
	for _, s := range t.Stay {
		t.Now, t.Packed, t.Split, t.Bound = t.Now+s.Cost, t.Packed+s.Cost, t.Split+s.Cost, t.Bound+s.Cost
	}
	var packs, sizes, splits []NextStep
	for _, p := range t.Pools {
		t.Now, t.Packed, t.Split, t.Bound = t.Now+p.Now, t.Packed+p.Packed, t.Split+p.Split, t.Bound+p.Bound
		t.PodsSplit += p.PodsSplit
		if p.Packed < p.Now {
			packs = append(packs, NextStep{Pool: p.Name, Action: StepPack, Saves: p.Now - p.Packed, From: p.Nodes, To: p.PackedVMs, Moves: p.Moves, Evictions: p.Evictions})
		}
		last := p.Final()
		if p.Sized != nil && last.Packed != p.Packed {
			sizes = append(sizes, NextStep{Pool: p.Name, Action: StepSize, Saves: p.Packed - last.Packed, From: p.PackedVMs, To: last.PackedVMs})
		}
		if last.Split < last.Packed {
			splits = append(splits, NextStep{Pool: p.Name, Action: StepSplit, Saves: last.Packed - last.Split, From: last.PackedVMs, To: last.SplitVMs, PodsSplit: last.PodsSplit})
		}
	}
	t.addSized()
	for _, steps := range [][]NextStep{packs, sizes, splits} {
		slices.SortStableFunc(steps, func(a, b NextStep) int {
			return cmp.Or(cmp.Compare(min(len(a.Blocked), 1), min(len(b.Blocked), 1)), cmp.Compare(b.perMove(), a.perMove()), cmp.Compare(b.Saves, a.Saves))
		})
		t.Steps = append(t.Steps, steps...)
	}
	cost := t.Now
	for i := range t.Steps {
		cost -= t.Steps[i].Saves
		t.Steps[i].Cost = cost
	}
}

// addSized sums up what the pools could cost with requests by use.
func (t *Today) addSized() {
	if len(t.Pools) == 0 {
		return
	}
	var sum SizedSum
	for _, s := range t.Stay {
		sum.Packed, sum.Split, sum.Bound = sum.Packed+s.Cost, sum.Split+s.Cost, sum.Bound+s.Cost
	}
	for _, p := range t.Pools {
		if p.Sized == nil {
			return
		}
		sum.Packed, sum.Split, sum.Bound = sum.Packed+p.Sized.Packed, sum.Split+p.Sized.Split, sum.Bound+p.Sized.Bound
		sum.PodsSplit += p.Sized.PodsSplit
	}
	t.Sized = &sum
}

// Could returns what the cluster could cost after all steps.
func (t Today) Could() (packed, split, bound Dollars, podsSplit int) {
	if s := t.Sized; s != nil {
		return s.Packed, s.Split, s.Bound, s.PodsSplit
	}
	return t.Packed, t.Split, t.Bound, t.PodsSplit
}

// Dollars are billionths of a dollar. In JSON they are a decimal number of dollars
// that loses nothing.
type Dollars int64

// Ratio returns a/b, 0 when b is 0.
func Ratio[N ~int | ~int64](a, b N) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// MarshalJSON writes all decimals that are not zero.
func (d Dollars) MarshalJSON() ([]byte, error) {
	sign, n := "", uint64(d)
	if d < 0 {
		sign, n = "-", -n
	}
	text := fmt.Sprintf("%s%d.%09d", sign, n/cluster.Dollar, n%cluster.Dollar)
	return []byte(strings.TrimSuffix(strings.TrimRight(text, "0"), ".")), nil
}

// UnmarshalJSON reads a number with at most nine decimals.
func (d *Dollars) UnmarshalJSON(data []byte) error {
	r, ok := new(big.Rat).SetString(string(data))
	if !ok {
		return fmt.Errorf("dollars %s: want a number", data)
	}
	r.Mul(r, big.NewRat(cluster.Dollar, 1))
	if !r.IsInt() || !r.Num().IsInt64() {
		return fmt.Errorf("dollars %s: want a number with at most nine decimals", data)
	}
	*d = Dollars(r.Num().Int64())
	return nil
}

// String returns the dollars rounded to a tenth of a cent.
func (d Dollars) String() string {
	return fmt.Sprintf("%.3f", math.Round(float64(d)/1e6)/1e3)
}
