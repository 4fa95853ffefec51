package experiment

import "time"

// overhead is what an execution takes beside its client, until the run knows
// better: starting and stopping the server, reaching the guest.
const overhead = 250 * time.Millisecond

// expected is what an execution of c takes as long as nothing is known of any: a
// bench may let most of its idle time pass meanwhile.
func expected(c Case) time.Duration { return max(0, c.Wall+overhead-c.Lead*3/4) }

// serverRenewal is what it takes to start the servers of a configuration anew, until
// the run knows better.
const serverRenewal = 250 * time.Millisecond

// Renewal returns how long it takes, about, to start all servers anew before a block;
// 0 when no case has one.
func (s *Spec) Renewal() time.Duration {
	for _, c := range s.Cases {
		if c.Params.Protocol != "" {
			return serverRenewal * time.Duration(len(s.Configurations))
		}
	}
	return 0
}

// Estimate returns how long the executions of spec will take, warm-up
// included, when none fails and no block is added. Booting guests comes on top.
func (s *Spec) Estimate() time.Duration {
	e := estimator{renewal: s.Renewal()}
	return e.left(warmups(s), noBlock) + e.left(Schedule(s, 1), noBlock)
}

// estimator learns what executions take beside their clients, for each group of
// cases by itself, and what comes before a block.
type estimator struct {
	groups  map[string]observed
	renewal time.Duration // before a block, as long as none was seen; then of those seen
	renewed int           // how many were seen
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

// observeRenewal takes what came before a block.
func (e *estimator) observeRenewal(took time.Duration) {
	e.renewal = (e.renewal*time.Duration(e.renewed) + took) / time.Duration(e.renewed+1)
	e.renewed++
}

// left estimates the time that plan will take, after an execution of a block.
func (e *estimator) left(plan []Execution, block int) time.Duration {
	var total time.Duration
	for _, x := range plan {
		if blockOf(x) != block {
			block = blockOf(x)
			total += e.renewal
		}
		if o := e.groups[x.Case.Group]; o.seen > 0 {
			total += max(0, x.Case.Wall+o.extra/time.Duration(o.seen))
		} else {
			total += expected(x.Case)
		}
	}
	return total
}
