package experiment

import "time"

// overhead is what an execution takes beside its client, until the run knows
// better: starting and stopping the server, reaching the guest.
const overhead = 250 * time.Millisecond

// expected is what an execution of c takes as long as nothing is known of any: a
// bench may let most of its idle time pass meanwhile.
func expected(c Case) time.Duration { return max(0, c.Wall+overhead-c.Lead*3/4) }

// Estimate returns how long the executions of spec will take, warm-up
// included, when none fails and no block is added. Booting guests comes on top.
func (s *Spec) Estimate() time.Duration {
	var e estimator
	return e.left(warmups(s)) + e.left(Plan(s, 1))
}

// estimator learns what executions take beside their clients, for each group of
// cases by itself.
type estimator struct {
	groups map[string]observed
}

type observed struct {
	extra time.Duration
	seen  int
}

// observe takes the duration of an execution done.
func (e *estimator) observe(x Execution, took time.Duration) {
	if e.groups == nil {
		e.groups = map[string]observed{}
	}
	o := e.groups[x.Case.Group]
	o.extra += took - x.Case.Wall
	o.seen++
	e.groups[x.Case.Group] = o
}

// left estimates the time that plan will take.
func (e *estimator) left(plan []Execution) time.Duration {
	var total time.Duration
	for _, x := range plan {
		if o := e.groups[x.Case.Group]; o.seen > 0 {
			total += max(0, x.Case.Wall+o.extra/time.Duration(o.seen))
		} else {
			total += expected(x.Case)
		}
	}
	return total
}
