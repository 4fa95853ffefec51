package plan

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"unnest/internal/plan/cluster"
	"unnest/internal/plan/frontier"
	"unnest/internal/plan/pack"
)

// Frontier is what VMs cost against how much of what containers say to each other
// goes from VM to VM. Costs are for an hour. Total begins with nothing cut, where Price
// is 0 because none is too high for it.
type Frontier struct {
	Users   int       `json:"users"` // with at least one pod that was planned
	Pods    int       `json:"pods"`
	Contain int       `json:"containers"`
	LeftOut int       `json:"pods_left_out"`
	Links   LinkUse   `json:"links"`
	Whole   dollars   `json:"cost_nothing_cut"`
	Total   []Point   `json:"total"` // of all users: from nothing cut to the cheapest
	Price   *CutPrice `json:"cut_price,omitempty"`
	Priced  *Priced   `json:"at_cut_price,omitempty"`
	Setup   Setup     `json:"settings"`
	Traces  []Reading `json:"traces"`
	PerUser []Choices `json:"per_user"`
}

// LinkUse says what talks, and how much.
type LinkUse struct {
	From   string  `json:"from"`             // all, annotations, or a file
	Pairs  float64 `json:"every_pair"`       // weight of every two containers of a pod
	Rows   int     `json:"rows,omitempty"`   // of the file
	Unused int     `json:"unused,omitempty"` // rows of pods that are not in the trace
}

// Point is a cost with what is cut for it. Users choose among their own choices as if
// each unit of weight that is cut had this price, in dollars for an hour.
type Point struct {
	Price float64 `json:"cut_price"`
	Cost  dollars `json:"cost"`
	Cut   float64 `json:"cut"`
	Users int     `json:"users_who_cut"`
}

// Choices are those of one user, the cheapest first; the last cuts nothing.
type Choices struct {
	User    string   `json:"user"`
	Pods    int      `json:"pods"`
	Contain int      `json:"containers"`
	LeftOut int      `json:"pods_left_out,omitempty"`
	Choices []Choice `json:"choices"`
}

// Choice is a plan with what it cuts.
type Choice struct {
	Cost  dollars `json:"cost"`
	Cut   float64 `json:"cut"`
	Split int     `json:"pods_split"`
}

// frontier finds the choices of all users.
func (s setting) frontier(ctx context.Context, c crowd, price *CutPrice, setup Setup, p *progress) (Frontier, error) {
	use := LinkUse{From: s.links, Pairs: s.pairs}
	if s.linkFile != nil {
		users := slices.Collect(c.users)
		unused, err := s.linkFile.joinLinks(users)
		if err != nil {
			return Frontier{}, err
		}
		c.users, use.Rows, use.Unused = slices.Values(users), s.linkFile.rows, unused
	}
	all, err := onAll(ctx, c.users, s.choices, func(n int) { p.users(n, c.count) })
	if err != nil {
		return Frontier{}, err
	}
	slices.SortFunc(all, func(a, b Choices) int { return cmp.Compare(a.User, b.User) })
	f := Frontier{Links: use, Price: price, Setup: setup, Traces: c.readings, PerUser: all}
	f.add()
	return f, nil
}

// choices finds those of one user.
func (s setting) choices(u cluster.User) (Choices, error) {
	fit, left, err := pack.Fit(u, s.catalogue, s.plan.Oversize)
	if err != nil {
		return Choices{}, err
	}
	c := Choices{User: u.Name, Pods: len(fit.Pods), Contain: containers(fit), LeftOut: len(left), Choices: []Choice{}}
	if len(fit.Pods) == 0 {
		return c, nil
	}
	found, err := frontier.Find(fit, s.catalogue, s.pairs, s.plan)
	if err != nil {
		return Choices{}, fmt.Errorf("user %s: %w", u.Name, err)
	}
	for _, choice := range found {
		c.Choices = append(c.Choices, Choice{dollars(choice.Cost), choice.Cut, choice.Plan.Split()})
	}
	return c, nil
}

// add sums the users up.
func (f *Frontier) add() {
	var steps []step
	for i, u := range f.PerUser {
		f.LeftOut += u.LeftOut
		if u.Pods == 0 {
			continue
		}
		f.Users, f.Pods, f.Contain = f.Users+1, f.Pods+u.Pods, f.Contain+u.Contain
		f.Whole += u.Choices[len(u.Choices)-1].Cost
		steps = append(steps, u.steps(i)...)
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(b.rate, a.rate) })
	f.Total = []Point{{Cost: f.Whole}}
	cutting := map[int]bool{}
	for i, s := range steps {
		last := f.Total[len(f.Total)-1]
		cutting[s.user] = true
		next := Point{s.rate, last.Cost - s.saved, last.Cut + s.cut, len(cutting)}
		if i > 0 && last.Price == s.rate {
			f.Total = f.Total[:len(f.Total)-1] // both or none
		}
		f.Total = append(f.Total, next)
	}
	if f.Price != nil {
		f.Priced = f.at(f.Price.Price)
	}
}

// step is what a user saves by cutting more, from nothing on.
type step struct {
	user  int
	saved dollars
	cut   float64
	rate  float64 // dollars for each unit of weight
}

// steps returns the user's choices as steps from nothing cut to the cheapest, each
// saving less for what it cuts than the one before: choices that are never the best
// at any price are passed over.
func (c Choices) steps(user int) []step {
	var steps []step
	for at := len(c.Choices) - 1; at > 0; {
		best, next := step{}, -1
		for k := at - 1; k >= 0; k-- {
			s := step{user: user, saved: c.Choices[at].Cost - c.Choices[k].Cost, cut: c.Choices[k].Cut - c.Choices[at].Cut}
			s.rate = float64(s.saved) / cluster.Dollar / s.cut
			if next < 0 || s.rate >= best.rate {
				best, next = s, k
			}
		}
		steps, at = append(steps, best), next
	}
	return steps
}

// Priced is what all users pay when what is cut has a price.
type Priced struct {
	Cost    dollars `json:"cost"`    // of VMs
	Talking dollars `json:"talking"` // what is cut, at its price
	Cut     float64 `json:"cut"`
	Split   int     `json:"pods_split"`
	Users   int     `json:"users_who_cut"`
}

// at lets each user choose what costs least in sum, of equals what cuts less.
func (f *Frontier) at(price float64) *Priced {
	var sum Priced
	for _, u := range f.PerUser {
		if u.Pods == 0 {
			continue
		}
		best, least := Choice{}, -1.0
		for _, c := range slices.Backward(u.Choices) {
			if cost := float64(c.Cost)/cluster.Dollar + price*c.Cut; least < 0 || cost < least {
				best, least = c, cost
			}
		}
		sum.Cost += best.Cost
		sum.Cut += best.Cut
		sum.Split += best.Split
		if best.Cut > 0 {
			sum.Users++
		}
	}
	sum.Talking = dollars(price * sum.Cut * cluster.Dollar)
	return &sum
}

// defaultLinkCPU is how many vCPUs a link of weight 1 keeps busy, unless told.
const defaultLinkCPU = 0.01

// CutPrice is what it costs to cut a link of weight 1, and how that follows from
// measured latencies: within a VM the link keeps LinkCPU vCPUs busy or waiting; cut, it
// keeps them Ratio times as long; the difference is paid as vCPUs of the model where
// they are cheapest. Where Hostlo is not slower, a cut costs nothing.
type CutPrice struct {
	Latency Latency `json:"latency"`
	LinkCPU float64 `json:"link_vcpu"`
	VCPU    dollars `json:"vcpu_price"` // for an hour
	Price   float64 `json:"price"`      // dollars for an hour and a unit of weight
}

func newCutPrice(opts Options, c cluster.Catalogue) (*CutPrice, error) {
	l, err := readLatency(opts.HostloRun, opts.HostloCase)
	if err != nil {
		return nil, err
	}
	p := &CutPrice{Latency: l, LinkCPU: opts.LinkCPU}
	for _, m := range c {
		if m.Size.CPU <= 0 {
			continue
		}
		if price := dollars(float64(m.Price) * cluster.VCPU / float64(m.Size.CPU)); p.VCPU == 0 || price < p.VCPU {
			p.VCPU = price
		}
	}
	p.Price = max(0, l.Ratio-1) * p.LinkCPU * float64(p.VCPU) / cluster.Dollar
	return p, nil
}
