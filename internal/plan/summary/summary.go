// Package summary sums the plans of many users up: the JSON that "unnest plan"
// writes and merges.
//
// A Plan is what the pods of a trace cost under each scheme, a Frontier what
// their VMs cost against how much traffic leaves them, a Replay what VMs cost while
// pods come and go. All are values: shards that Merge puts together equal one run byte
// for byte, because costs are whole billionths of a dollar.
//
// Packing belongs to package pack, wording to package plans, reading traces and files to
// the caller.
package summary

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/pack"
)

// Schemes are the planners, in the order of reports.
var Schemes = []string{"kubernetes", "resize", "hostlo", "spread", "whole", "best"}

// Savers are the schemes of Savings.
var Savers = []string{"hostlo", "spread", "whole", "best"}

// Plan is what all users pay under each scheme.
type Plan struct {
	Users       int       `json:"users"`        // with at least one pod that was planned
	Saving      int       `json:"users_saving"` // with hostlo, against kubernetes
	SavingShare float64   `json:"users_saving_share"`
	Cost        Costs     `json:"cost"`
	Bound       Dollars   `json:"bound"`
	Gap         float64   `json:"gap"`                  // of best above the bound
	Optimal     int       `json:"users_proved_optimal"` // best costs the bound
	Pods        int       `json:"pods"`                 // planned
	Containers  int       `json:"containers"`           // planned
	LeftOut     int       `json:"pods_left_out"`        // no model holds them
	Unplanned   int       `json:"users_without_pods"`   // all their pods were left out
	SplitHostlo int       `json:"pods_split_hostlo"`    // on several VMs
	SplitBest   int       `json:"pods_split_best"`
	Savings     Savings   `json:"savings"`
	Largest     []User    `json:"largest"`           // the users who save most with hostlo, at most MostListed
	Today       *Today    `json:"cluster,omitempty"` // nil: the nodes are unknown
	Use         *Use      `json:"use,omitempty"`     // nil: the use is unknown
	Settings    Settings  `json:"settings"`
	Shard       *Shard    `json:"shard,omitempty"`
	Traces      []Reading `json:"traces"`
	PerUser     []User    `json:"per_user"`
}

// MostListed is how many of the largest savings are listed.
const MostListed = 10

// User is the plans of one user. Costs are for an hour.
type User struct {
	Name        string  `json:"user"`
	Pods        int     `json:"pods"`
	Containers  int     `json:"containers"`
	LeftOut     int     `json:"pods_left_out,omitempty"`
	Bundled     int     `json:"containers_planned_as_one,omitempty"` // at most; 0: each is planned on its own
	SplitHostlo int     `json:"pods_split_hostlo"`
	SplitBest   int     `json:"pods_split_best"`
	Cost        Costs   `json:"cost"`
	Bound       Dollars `json:"bound"`

	Sized *SizedCosts `json:"right_sized,omitempty"` // nil: the use is unknown
}

// NewUser returns the figures of one user, with a lower bound of the cost.
func NewUser(s pack.Comparison, bound int64) User {
	return User{
		Name: s.User.Name, Pods: len(s.User.Pods), Containers: s.Containers, Bundled: bundled(s), LeftOut: len(s.Left),
		SplitHostlo: s.Hostlo.Plan.Split(), SplitBest: s.Best.Plan.Split(), Bound: Dollars(bound),
		Cost: Costs{
			Kubernetes: Dollars(s.Kubernetes.Cost), Resize: Dollars(s.Resize.Cost), Hostlo: Dollars(s.Hostlo.Cost),
			Spread: Dollars(s.Spread.Cost), Whole: Dollars(s.Whole.Cost), Best: Dollars(s.Best.Cost),
		},
	}
}

func bundled(s pack.Comparison) int {
	if s.Bundled < 2 {
		return 0
	}
	return s.Bundled
}

// Containers counts the containers of all pods of a user.
func Containers(u cluster.User) int {
	n := 0
	for _, p := range u.Pods {
		n += len(p.Containers)
	}
	return n
}

// Saved returns what a scheme saves against kubernetes; below 0 it costs more.
func (u User) Saved(scheme string) Dollars { return u.Cost.Kubernetes - *u.Cost.At(scheme) }

// Part returns what a scheme saves as a fraction of the cost of kubernetes.
func (u User) Part(scheme string) float64 { return Ratio(u.Saved(scheme), u.Cost.Kubernetes) }

// Costs are dollars for an hour by scheme.
type Costs struct {
	Kubernetes Dollars `json:"kubernetes"`
	Resize     Dollars `json:"resize"`
	Hostlo     Dollars `json:"hostlo"`
	Spread     Dollars `json:"spread"`
	Whole      Dollars `json:"whole"`
	Best       Dollars `json:"best"`
}

// At returns the field of a scheme, which must be one of Schemes.
func (c *Costs) At(scheme string) *Dollars {
	return []*Dollars{&c.Kubernetes, &c.Resize, &c.Hostlo, &c.Spread, &c.Whole, &c.Best}[slices.Index(Schemes, scheme)]
}

// Savings are how users save by scheme. Users whom a scheme costs more save nothing.
type Savings struct {
	Hostlo Saving `json:"hostlo"`
	Spread Saving `json:"spread"`
	Whole  Saving `json:"whole"`
	Best   Saving `json:"best"`
}

// At returns the field of a scheme, which must be one of Savers.
func (s *Savings) At(scheme string) *Saving {
	return []*Saving{&s.Hostlo, &s.Spread, &s.Whole, &s.Best}[slices.Index(Savers, scheme)]
}

// Saving is how users save with a scheme.
type Saving struct {
	Users       int     `json:"users"`
	Over5       int     `json:"users_over_5_percent"`
	Over5Share  float64 `json:"over_5_percent_share"` // of the users who save
	MaxRelative Most    `json:"max_relative"`
	MaxAbsolute Most    `json:"max_absolute"`
	// Distribution counts the users who save more than From and at most To of their
	// cost; the first bin holds the users who save nothing.
	Distribution []Bin `json:"distribution"`
	// Largest is the users who save most, the largest saving first, at most MostListed.
	Largest []Most `json:"largest"`
}

// Most is the largest saving.
type Most struct {
	User     string  `json:"user"`
	Saved    Dollars `json:"saved"`
	Relative float64 `json:"relative"`
}

// Bin counts users by relative saving.
type Bin struct {
	From  float64 `json:"from"`
	To    float64 `json:"to"`
	Users int     `json:"users"`
}

// binWidth is the width of a bin in percent: the steps in which the text of Bacou et
// al. speaks of Fig. 9.
const binWidth = 5

// Addable returns an error if the costs of all users together are too large for Sum.
func Addable(users []User) error {
	var sum Dollars
	for _, u := range users {
		if err := addable(&sum, max(u.Cost.Kubernetes, u.Cost.Spread), u.Name); err != nil {
			return err
		}
	}
	return nil
}

func addable(sum *Dollars, d Dollars, user string) error {
	if d > math.MaxInt64-*sum {
		return fmt.Errorf("all users up to %s cost more than %.3g $/h together, which cannot be added up: correct the prices of the catalogue", user, math.MaxInt64/1e9)
	}
	*sum += d
	return nil
}

// Sum sums users up, which must be Addable, and whose names must ascend. A nil shard means all users.
func Sum(users []User, settings Settings, readings []Reading, shard *Shard) Plan {
	r := Plan{Settings: settings, Traces: readings, Shard: shard, PerUser: users}
	if users == nil {
		r.PerUser = []User{}
	}
	for _, u := range users {
		r.LeftOut += u.LeftOut
		if u.Pods == 0 {
			r.Unplanned++
			continue
		}
		r.Users++
		r.Pods, r.Containers = r.Pods+u.Pods, r.Containers+u.Containers
		r.SplitHostlo, r.SplitBest = r.SplitHostlo+u.SplitHostlo, r.SplitBest+u.SplitBest
		for _, scheme := range Schemes {
			*r.Cost.At(scheme) += *u.Cost.At(scheme)
		}
		r.Bound += u.Bound
		if u.Bound == u.Cost.Best {
			r.Optimal++
		}
	}
	r.Gap = Ratio(r.Cost.Best-r.Bound, r.Bound)
	for _, scheme := range Savers {
		*r.Savings.At(scheme) = newSaving(users, scheme)
	}
	r.Saving = r.Savings.Hostlo.Users
	if r.Users > 0 {
		r.SavingShare = float64(r.Saving) / float64(r.Users)
	}
	r.Largest = largest(users)
	return r
}

func newSaving(users []User, scheme string) Saving {
	s := Saving{Largest: []Most{}}
	bins := [1 + 100/binWidth]int{}
	for _, u := range users {
		if u.Pods == 0 {
			continue
		}
		saved := u.Saved(scheme)
		if saved <= 0 {
			bins[0]++
			continue
		}
		s.Users++
		bin := binOf(saved, u.Cost.Kubernetes)
		bins[bin]++
		if bin > 5/binWidth {
			s.Over5++
		}
		most := Most{u.Name, saved, u.Part(scheme)}
		s.Largest = append(s.Largest, most)
		if most.Relative > s.MaxRelative.Relative {
			s.MaxRelative = most
		}
		if most.Saved > s.MaxAbsolute.Saved {
			s.MaxAbsolute = most
		}
	}
	if s.Users > 0 {
		s.Over5Share = float64(s.Over5) / float64(s.Users)
	}
	slices.SortStableFunc(s.Largest, func(a, b Most) int { return cmp.Compare(b.Saved, a.Saved) })
	s.Largest = slices.Clone(s.Largest[:min(len(s.Largest), MostListed)])
	for i, n := range bins {
		s.Distribution = append(s.Distribution, Bin{float64(max(0, i-1)) * binWidth / 100, float64(i) * binWidth / 100, n})
	}
	return s
}

// binOf returns k for savings above k-1 and at most k bin widths, exactly.
func binOf(saved, of Dollars) int {
	n := new(big.Int).Mul(big.NewInt(int64(saved)), big.NewInt(100/binWidth))
	n.Add(n, big.NewInt(int64(of)-1))
	return int(n.Div(n, big.NewInt(int64(of))).Int64())
}

// largest returns the users who save most with hostlo, the largest saving first.
func largest(users []User) []User {
	savers := slices.DeleteFunc(append([]User{}, users...), func(u User) bool { return u.Saved("hostlo") <= 0 })
	slices.SortStableFunc(savers, func(a, b User) int { return cmp.Compare(b.Saved("hostlo"), a.Saved("hostlo")) })
	return savers[:min(len(savers), MostListed)]
}

// PodPart is the containers of a pod, by their indices, that are in one place.
type PodPart struct {
	Pod        int
	Containers []int
}

// ByPod groups parts by pod.
func ByPod(parts []cluster.Part) []PodPart {
	var pods []PodPart
	for _, part := range parts {
		at := slices.IndexFunc(pods, func(p PodPart) bool { return p.Pod == part.Pod })
		if at < 0 {
			at, pods = len(pods), append(pods, PodPart{Pod: part.Pod})
		}
		if part.Container >= 0 {
			pods[at].Containers = append(pods[at].Containers, part.Container)
		}
	}
	return pods
}
