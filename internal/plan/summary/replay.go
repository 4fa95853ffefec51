package summary

// Replay is what VMs cost while pods come and go. Costs are for the whole time.
type Replay struct {
	Users      int          `json:"users"`
	Stays      int          `json:"stays"` // of pods
	Containers int          `json:"containers"`
	LeftOut    int          `json:"stays_left_out"` // no model holds them
	From       float64      `json:"from_seconds"`
	To         float64      `json:"to_seconds"`
	Minimum    float64      `json:"billing_minimum_seconds"`
	Migrations int          `json:"migrations_at_an_event"`
	Plans      []Course     `json:"plans"`
	Settings   Settings     `json:"settings"`
	Traces     []Reading    `json:"traces"`
	PerUser    []UserReplay `json:"per_user"`
}

// Course is what one way of placing pods costs.
type Course struct {
	Plan     string  `json:"plan"`
	Cost     Dollars `json:"cost"`
	Bought   int     `json:"vms_bought"`
	Migrated int     `json:"containers_migrated"`
	// Rates are the prices of the VMs for an hour, at the beginning, at the end and at
	// evenly spaced moments between.
	Rates []Dollars `json:"rates,omitempty"`
}

// UserReplay is the pods of one user over time.
type UserReplay struct {
	User       string   `json:"user"`
	Stays      int      `json:"stays"`
	Containers int      `json:"containers"`
	LeftOut    int      `json:"stays_left_out,omitempty"`
	Plans      []Course `json:"plans"`
}

// Saved returns what the last way of placing pods saves against the first.
func (u UserReplay) Saved() Dollars { return u.Plans[0].Cost - u.Plans[len(u.Plans)-1].Cost }

// Courses are the ways in which pods are placed over time.
var Courses = []string{"kubernetes", "shared", "moved"}

// Moments is how many rates a course has.
const Moments = 61

// Mean returns the cost of a course for an hour.
func (r Replay) Mean(c Course) Dollars {
	if r.To <= r.From {
		return 0
	}
	return Dollars(float64(c.Cost) * 3600 / (r.To - r.From))
}

// Add sums the users up, and drops their rates.
func (r *Replay) Add() {
	for _, name := range Courses {
		r.Plans = append(r.Plans, Course{Plan: name, Rates: make([]Dollars, Moments)})
	}
	for _, u := range r.PerUser {
		r.LeftOut += u.LeftOut
		if u.Stays > 0 {
			r.Users++
		}
		r.Stays, r.Containers = r.Stays+u.Stays, r.Containers+u.Containers
		for i := range u.Plans {
			sum, c := &r.Plans[i], &u.Plans[i]
			sum.Cost += c.Cost
			sum.Bought += c.Bought
			sum.Migrated += c.Migrated
			for k, rate := range c.Rates {
				sum.Rates[k] += rate
			}
			c.Rates = nil
		}
	}
}
