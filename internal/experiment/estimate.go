package experiment

import "time"

// overhead is what an execution takes beside its client, until the run knows
// better: starting and stopping the server, reaching the guest.
const overhead = 250 * time.Millisecond

// Estimate returns how long the executions of spec will take, warm-up
// included, when none fails. Booting guests comes on top.
func (s *Spec) Estimate() time.Duration {
	var e estimator
	return e.left(warmups(s)) + e.left(Plan(s, 1))
}

// estimator learns what executions take beside their clients.
type estimator struct {
	extra time.Duration
	seen  int
}

// observe takes the duration of an execution done.
func (e *estimator) observe(x Execution, took time.Duration) {
	e.extra += took - x.Case.Wall
	e.seen++
}

// left estimates the time that plan will take.
func (e *estimator) left(plan []Execution) time.Duration {
	extra := overhead
	if e.seen > 0 {
		extra = e.extra / time.Duration(e.seen)
	}
	var total time.Duration
	for _, x := range plan {
		total += max(0, x.Case.Wall+extra)
	}
	return total
}
