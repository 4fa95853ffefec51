package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/big"
	"slices"
	"strings"

	"unnest/internal/plan/cluster"
	"unnest/internal/plan/pack"
)

// Result is all that is printed, and what shards are merged of.
type Result struct {
	Users    int       `json:"users"`        // with at least one pod that was planned
	Saving   int       `json:"users_saving"` // with hostlo, against kubernetes
	Share    float64   `json:"users_saving_share"`
	Cost     Costs     `json:"cost"`
	Bound    dollars   `json:"bound"`
	Gap      float64   `json:"gap"`                  // of best above the bound
	Proved   int       `json:"users_proved_optimal"` // whose best costs the bound
	Pods     int       `json:"pods"`                 // planned
	Contain  int       `json:"containers"`           // planned
	LeftOut  int       `json:"pods_left_out"`        // that no model holds
	Nothing  int       `json:"users_without_pods"`   // of whom nothing was planned
	SplitH   int       `json:"pods_split_hostlo"`    // on several VMs
	SplitB   int       `json:"pods_split_best"`      //
	Savings  Savings   `json:"savings"`              // by scheme
	Largest  []User    `json:"largest"`              // ten users who save most with hostlo
	Settings Setup     `json:"settings"`             // that the figures depend on
	Shard    *Shard    `json:"shard,omitempty"`      //
	Traces   []Reading `json:"traces"`
	PerUser  []User    `json:"per_user"`
}

// Setup is what the figures depend on beside the trace.
type Setup struct {
	At        string  `json:"at,omitempty"`
	Owner     string  `json:"owner,omitempty"`
	Oversize  string  `json:"oversize"`
	Moving    string  `json:"moving"`
	Emptying  string  `json:"emptying"`
	Requested string  `json:"requested"`
	Wasted    string  `json:"wasted"`
	Rounds    int     `json:"rounds,omitempty"` // 0: until nothing changes
	Effort    int     `json:"effort,omitempty"` // 0: the default
	Host      string  `json:"host,omitempty"`
	Catalogue []Model `json:"catalogue"`
}

// Model is a VM on sale, with what pods can have of it.
type Model struct {
	Name  string  `json:"name"`
	VCPU  float64 `json:"vcpu"`
	GiB   float64 `json:"memory_gib"`
	Price dollars `json:"price"`
	Pods  int     `json:"pods,omitempty"` // 0: no limit
}

// User is the plans of one user. Costs are for an hour.
type User struct {
	Name        string  `json:"user"`
	Pods        int     `json:"pods"`
	Containers  int     `json:"containers"`
	LeftOut     int     `json:"pods_left_out,omitempty"`
	SplitHostlo int     `json:"pods_split_hostlo"`
	SplitBest   int     `json:"pods_split_best"`
	Cost        Costs   `json:"cost"`
	Bound       dollars `json:"bound"`
}

// Costs are dollars for an hour by scheme.
type Costs struct {
	Kubernetes dollars `json:"kubernetes"`
	Resize     dollars `json:"resize"`
	Hostlo     dollars `json:"hostlo"`
	Spread     dollars `json:"spread"`
	Whole      dollars `json:"whole"`
	Best       dollars `json:"best"`
}

// schemes are the ways of planning, in the order in which they are printed.
var schemes = []string{"kubernetes", "resize", "hostlo", "spread", "whole", "best"}

// at returns where the cost of a scheme is.
func (c *Costs) at(scheme string) *dollars {
	switch scheme {
	case "kubernetes":
		return &c.Kubernetes
	case "resize":
		return &c.Resize
	case "hostlo":
		return &c.Hostlo
	case "spread":
		return &c.Spread
	case "whole":
		return &c.Whole
	}
	return &c.Best
}

// saved returns what a scheme saves against kubernetes, below 0 what it costs more.
func (u User) saved(scheme string) dollars { return u.Cost.Kubernetes - *u.Cost.at(scheme) }

// part returns what a scheme saves as a part of kubernetes.
func (u User) part(scheme string) float64 {
	return ratio(u.saved(scheme), u.Cost.Kubernetes)
}

func ratio(a, b dollars) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// Savings are how users save by scheme. Users whom a scheme costs more save nothing.
type Savings struct {
	Hostlo Saving `json:"hostlo"`
	Spread Saving `json:"spread"`
	Whole  Saving `json:"whole"`
	Best   Saving `json:"best"`
}

// saving are the schemes of Savings.
var saving = []string{"hostlo", "spread", "whole", "best"}

func (s *Savings) at(scheme string) *Saving {
	switch scheme {
	case "hostlo":
		return &s.Hostlo
	case "spread":
		return &s.Spread
	case "whole":
		return &s.Whole
	}
	return &s.Best
}

// Saving is how users save with a scheme.
type Saving struct {
	Users       int     `json:"users"`
	Over5       int     `json:"users_over_5_percent"`
	Over5Share  float64 `json:"over_5_percent_share"` // of those who save
	MaxRelative Most    `json:"max_relative"`
	MaxAbsolute Most    `json:"max_absolute"`
	// Distribution is the users who save more than From and at most To of their cost;
	// the first are those who save nothing.
	Distribution []Bin `json:"distribution"`
}

// Most is the largest saving.
type Most struct {
	User     string  `json:"user"`
	Saved    dollars `json:"saved"`
	Relative float64 `json:"relative"`
}

// Bin is users by relative saving.
type Bin struct {
	From  float64 `json:"from"`
	To    float64 `json:"to"`
	Users int     `json:"users"`
}

// binWidth is that of the distribution, in per cent: the steps in which the text of
// Bacou et al. speaks of Fig. 9.
const binWidth = 5

// mostShown is how many of the largest savings are listed.
const mostShown = 10

// newResult sums users up, whose names ascend.
func newResult(users []User, setup Setup, readings []Reading, shard *Shard) Result {
	r := Result{Settings: setup, Traces: readings, Shard: shard, PerUser: users}
	if users == nil {
		r.PerUser = []User{}
	}
	for _, u := range users {
		r.LeftOut += u.LeftOut
		if u.Pods == 0 {
			r.Nothing++
			continue
		}
		r.Users++
		r.Pods, r.Contain = r.Pods+u.Pods, r.Contain+u.Containers
		r.SplitH, r.SplitB = r.SplitH+u.SplitHostlo, r.SplitB+u.SplitBest
		for _, scheme := range schemes {
			*r.Cost.at(scheme) += *u.Cost.at(scheme)
		}
		r.Bound += u.Bound
		if u.Bound == u.Cost.Best {
			r.Proved++
		}
	}
	r.Gap = ratio(r.Cost.Best-r.Bound, r.Bound)
	for _, scheme := range saving {
		*r.Savings.at(scheme) = newSaving(users, scheme)
	}
	r.Saving = r.Savings.Hostlo.Users
	if r.Users > 0 {
		r.Share = float64(r.Saving) / float64(r.Users)
	}
	r.Largest = largest(users)
	return r
}

func newSaving(users []User, scheme string) Saving {
	var s Saving
	bins := [2 + 100/binWidth]int{}
	for _, u := range users {
		if u.Pods == 0 {
			continue
		}
		saved := u.saved(scheme)
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
		most := Most{u.Name, saved, u.part(scheme)}
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
	for i, n := range bins[:1+100/binWidth] {
		s.Distribution = append(s.Distribution, Bin{float64(max(0, i-1)) * binWidth / 100, float64(i) * binWidth / 100, n})
	}
	return s
}

// binOf returns k for savings above k-1 and at most k widths, exactly.
func binOf(saved, of dollars) int {
	n := new(big.Int).Mul(big.NewInt(int64(saved)), big.NewInt(100/binWidth))
	n.Add(n, big.NewInt(int64(of)-1))
	return int(n.Div(n, big.NewInt(int64(of))).Int64())
}

// largest returns the users who save most with hostlo, those first.
func largest(users []User) []User {
	savers := []User{}
	for _, u := range users {
		if u.saved("hostlo") > 0 {
			savers = append(savers, u)
		}
	}
	slices.SortStableFunc(savers, func(a, b User) int { return cmp.Compare(b.saved("hostlo"), a.saved("hostlo")) })
	return savers[:min(len(savers), mostShown)]
}

// newSetup says what the options were.
func newSetup(opts Options, s setting) Setup {
	setup := Setup{
		At: opts.At, Oversize: string(s.plan.Oversize), Moving: string(s.plan.Moving), Emptying: string(s.plan.Emptying),
		Requested: string(s.plan.Requested), Wasted: string(s.plan.Wasted), Rounds: s.plan.Rounds, Effort: s.plan.Effort, Host: opts.Host,
	}
	if s.trace.OwnerLabel != "" {
		setup.Owner = opts.Owner
	}
	for field, otherwise := range map[*string]string{
		&setup.Oversize: string(pack.Drop), &setup.Moving: string(pack.MoveByVM), &setup.Emptying: string(pack.MostWastedFirst),
		&setup.Requested: string(pack.OfVM), &setup.Wasted: string(pack.OfVM),
	} {
		*field = cmp.Or(*field, otherwise)
	}
	for _, m := range s.catalogue {
		setup.Catalogue = append(setup.Catalogue, Model{
			m.Name, float64(m.Size.CPU) / cluster.VCPU, float64(m.Size.Memory) / (1 << 30), dollars(m.Price), m.Pods,
		})
	}
	return setup
}

// dollars are billionths of a dollar, and in JSON a decimal number of dollars, which
// loses nothing.
type dollars int64

// MarshalJSON writes all decimals that are not zero.
func (d dollars) MarshalJSON() ([]byte, error) {
	sign, n := "", uint64(d)
	if d < 0 {
		sign, n = "-", -n
	}
	text := fmt.Sprintf("%s%d.%09d", sign, n/cluster.Dollar, n%cluster.Dollar)
	return []byte(strings.TrimSuffix(strings.TrimRight(text, "0"), ".")), nil
}

// UnmarshalJSON reads a number with at most nine decimals.
func (d *dollars) UnmarshalJSON(data []byte) error {
	r, ok := new(big.Rat).SetString(string(data))
	if !ok {
		return fmt.Errorf("%s is no number of dollars", data)
	}
	r.Mul(r, big.NewRat(cluster.Dollar, 1))
	if !r.IsInt() || !r.Num().IsInt64() {
		return fmt.Errorf("%s is no number of dollars with at most nine decimals", data)
	}
	*d = dollars(r.Num().Int64())
	return nil
}

// String returns the dollars as people write them, to a tenth of a cent.
func (d dollars) String() string {
	return fmt.Sprintf("%.3f", math.Round(float64(d)/1e6)/1e3)
}

// JSON prints the result.
func (r Result) JSON(w io.Writer) error { return printJSON(w, r) }

func printJSON(w io.Writer, result any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(result)
}
