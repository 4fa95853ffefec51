package summary

import (
	"cmp"
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
)

// Frontier is what VMs cost against how much of the traffic between the containers of
// a pod goes from VM to VM. Costs are for an hour. Total begins with nothing cut, where
// the price is 0 because no price is too high for it.
type Frontier struct {
	Users      int       `json:"users"` // with at least one pod that was planned
	Pods       int       `json:"pods"`
	Containers int       `json:"containers"`
	LeftOut    int       `json:"pods_left_out"`
	Links      LinkUse   `json:"links"`
	Whole      Dollars   `json:"cost_nothing_cut"`
	Total      []Point   `json:"total"` // of all users: from nothing cut to the cheapest
	Price      *CutPrice `json:"cut_price,omitempty"`
	Priced     *Priced   `json:"at_cut_price,omitempty"`
	Settings   Settings  `json:"settings"`
	Traces     []Reading `json:"traces"`
	PerUser    []Choices `json:"per_user"`
}

// LinkUse says where the links between containers come from.
type LinkUse struct {
	From   string  `json:"from"`             // all, annotations, or a file
	Pairs  float64 `json:"every_pair"`       // weight of every two containers of a pod
	Rows   int     `json:"rows,omitempty"`   // of the file
	Unused int     `json:"unused,omitempty"` // rows of pods that are not in the trace
}

// Point is a cost and the weight that is cut for it. Users choose among their own
// choices as if each unit of weight that is cut had this price, in dollars for an hour.
type Point struct {
	Price float64 `json:"cut_price"`
	Cost  Dollars `json:"cost"`
	Cut   float64 `json:"cut"`
	Users int     `json:"users_who_cut"`
}

// Choices are the choices of one user, the cheapest first; the last cuts nothing.
type Choices struct {
	User       string   `json:"user"`
	Pods       int      `json:"pods"`
	Containers int      `json:"containers"`
	LeftOut    int      `json:"pods_left_out,omitempty"`
	Choices    []Choice `json:"choices"`
}

// Choice is the cost of a plan and the weight that it cuts.
type Choice struct {
	Cost  Dollars `json:"cost"`
	Cut   float64 `json:"cut"`
	Split int     `json:"pods_split"`
}

// Saved returns what the cheapest choice saves against cutting nothing.
func (c Choices) Saved() Dollars {
	if len(c.Choices) == 0 {
		return 0
	}
	return c.Whole().Cost - c.Choices[0].Cost
}

// Whole returns the choice that cuts nothing. There must be a choice.
func (c Choices) Whole() Choice { return c.Choices[len(c.Choices)-1] }

// AddableChoices is Addable for NewFrontier.
func AddableChoices(users []Choices) error {
	var sum Dollars
	for _, u := range users {
		if len(u.Choices) == 0 {
			continue
		}
		if err := addable(&sum, u.Whole().Cost, u.User); err != nil {
			return err
		}
	}
	return nil
}

// NewFrontier sums users up, which must be AddableChoices. Without a price nothing is said of what cuts cost.
func NewFrontier(users []Choices, links LinkUse, price *CutPrice, settings Settings, readings []Reading) Frontier {
	f := Frontier{Links: links, Price: price, Settings: settings, Traces: readings, PerUser: users}
	var steps []step
	for i, u := range users {
		f.LeftOut += u.LeftOut
		if u.Pods == 0 {
			continue
		}
		f.Users, f.Pods, f.Containers = f.Users+1, f.Pods+u.Pods, f.Containers+u.Containers
		f.Whole += u.Whole().Cost
		steps = append(steps, u.steps(i)...)
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(b.rate, a.rate) })
	f.Total = []Point{{Cost: f.Whole}}
	cutting := map[int]bool{}
	for i, s := range steps {
		last := f.Total[len(f.Total)-1]
		cutting[s.user] = true
		next := Point{s.rate, last.Cost - s.saved, last.Cut + s.cut, len(cutting)}
		if i > 0 && last.Price == s.rate { // steps of one rate are taken together
			f.Total = f.Total[:len(f.Total)-1]
		}
		f.Total = append(f.Total, next)
	}
	if price != nil {
		f.Priced = f.at(price.Price)
	}
	return f
}

// step is what a user saves by cutting more.
type step struct {
	user  int
	saved Dollars
	cut   float64
	rate  float64 // dollars for each unit of weight
}

// steps returns the user's choices as steps from nothing cut to the cheapest, each with
// a lower rate than the one before. Choices that are the best at no price are skipped.
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

// Priced is what all users pay when each unit of weight that is cut has a price.
type Priced struct {
	Cost  Dollars `json:"cost"`    // of VMs
	Cuts  Dollars `json:"talking"` // the weight that is cut, at its price
	Cut   float64 `json:"cut"`
	Split int     `json:"pods_split"`
	Users int     `json:"users_who_cut"`
}

// at lets each user choose the least sum of VMs and cuts; of equal sums, the one that
// cuts less.
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
	sum.Cuts = Dollars(price * sum.Cut * cluster.Dollar)
	return &sum
}

// CutPrice is what it costs to cut a link of weight 1, derived from measured latencies:
// within a VM the link keeps LinkCPU vCPUs busy or waiting; cut, it keeps them Ratio
// times as long; the difference is paid as vCPUs of the model where they are cheapest.
// Where Hostlo is not slower, a cut costs nothing.
type CutPrice struct {
	Latency Latency `json:"latency"`
	LinkCPU float64 `json:"link_vcpu"`
	VCPU    Dollars `json:"vcpu_price"` // for an hour
	Price   float64 `json:"price"`      // dollars for an hour and a unit of weight
}

// NewCutPrice derives the price of a cut on the VMs of a catalogue.
func NewCutPrice(l Latency, linkCPU float64, c cluster.Catalogue) *CutPrice {
	p := &CutPrice{Latency: l, LinkCPU: linkCPU}
	for _, m := range c {
		if m.Size.CPU <= 0 {
			continue
		}
		if price := Dollars(float64(m.Price) * cluster.VCPU / float64(m.Size.CPU)); p.VCPU == 0 || price < p.VCPU {
			p.VCPU = price
		}
	}
	p.Price = max(0, l.Ratio-1) * p.LinkCPU * float64(p.VCPU) / cluster.Dollar
	return p
}

// Latency is how much longer messages take through Hostlo than within a VM.
type Latency struct {
	Run         string        `json:"run"`
	Directory   string        `json:"directory"`
	State       string        `json:"state"`
	Accelerator string        `json:"accelerator"`
	Notes       []string      `json:"notes,omitempty"` // what is missing of the run, and why to trust it less
	Ratio       float64       `json:"ratio"`           // geometric mean over the cases
	Cases       []CaseLatency `json:"cases"`
}

// CaseLatency is the latency of one case: geometric means over the blocks of the run.
type CaseLatency struct {
	Case     string  `json:"case"`
	Unit     string  `json:"unit"`
	SameNode float64 `json:"same_node"`
	Hostlo   float64 `json:"hostlo"`
	Ratio    float64 `json:"ratio"`
	Low      float64 `json:"low,omitempty"` // of the 95 % interval of the ratio; 0: too few blocks
	High     float64 `json:"high,omitempty"`
	Blocks   int     `json:"blocks"` // of the configuration that has fewer
}
