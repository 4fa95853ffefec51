package experiment

import (
	"slices"
	"time"

	"unnest.io/unnest/internal/measure/result"
)

// overhead is the assumed time of an execution beyond its client: starting and stopping
// the server, reaching the guest.
const overhead = 250 * time.Millisecond

// expected is the assumed duration of an execution of c. A bench may run the client's idle time
// before it.
func expected(c Case) time.Duration { return max(0, c.Wall+overhead-c.Lead) }

// serverRenewal is the assumed time to restart the servers of a configuration.
const serverRenewal = 250 * time.Millisecond

// freshRenewal is the assumed time to restore a guest, or to start the container and the servers of a configuration.
const freshRenewal = 3 * time.Second

// Renewal returns the assumed time to prepare a block: to replace its machines and to warm them up, or to restart all servers.
// It is 0 when no case has a server.
func (s *Spec) Renewal() (d time.Duration) {
	if s.Fresh {
		d = freshRenewal * time.Duration(1+len(s.Configurations))
		for _, x := range s.Warmups() {
			d += expected(x.Case)
		}
		return d
	}
	if slices.ContainsFunc(s.Cases, func(c Case) bool { return c.Params.Protocol != "" }) {
		return serverRenewal * time.Duration(len(s.Configurations))
	}
	return 0
}

// Estimate returns the assumed duration of the executions of spec, including the
// warm-up, when none fails and no block is added. It does not include booting guests.
func (s *Spec) Estimate() time.Duration {
	e := estimator{renewal: s.Renewal()}
	return e.left(s.Warmups(), noBlock) + e.left(Schedule(s, 1), noBlock)
}

// estimator learns how long executions take beyond their clients, for each group of
// cases, and how long Renew takes.
type estimator struct {
	groups  map[string]observed
	renewal time.Duration // mean of those seen, before that the assumed one
	renewed int           // how many were seen
}

type observed struct {
	extra time.Duration
	seen  int
}

func (e *estimator) observe(x Execution, took time.Duration) {
	if e.groups == nil {
		e.groups = map[string]observed{}
	}
	o := e.groups[x.Case.Group]
	e.groups[x.Case.Group] = observed{o.extra + took - x.Case.Wall, o.seen + 1}
}

// observeRenewal adds the duration of a Renew.
func (e *estimator) observeRenewal(took time.Duration) {
	e.renewal = (e.renewal*time.Duration(e.renewed) + took) / time.Duration(e.renewed+1)
	e.renewed++
}

// left estimates the duration of the executions, after an execution of a block.
func (e *estimator) left(schedule []Execution, block int) time.Duration {
	var total time.Duration
	for _, x := range schedule {
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

// History is the durations of executions of earlier runs, to forecast those of a new
// one.
type History struct{ took map[work][]time.Duration }

// work identifies executions of about the same duration. The wall time distinguishes
// cases of the same name that do different amounts of work.
type work struct {
	name, stack string
	wall        time.Duration
}

func workOf(x Execution) work { return work{x.Case.Name, x.Configuration.Stack.String(), x.Case.Wall} }

// Add adds the samples of a run of spec.
func (h *History) Add(spec *Spec, samples []result.Sample) {
	if h.took == nil {
		h.took = map[work][]time.Duration{}
	}
	works := map[result.Execution]work{}
	for _, c := range spec.Cases {
		for _, configuration := range spec.Configurations {
			x := Execution{Case: c, Configuration: configuration}
			works[pair(x)] = workOf(x)
		}
	}
	seen := map[result.Execution]bool{}
	for _, s := range samples {
		w, ok := works[result.Execution{Configuration: s.Configuration, Case: s.Case}]
		if ok && !seen[s.Execution()] {
			seen[s.Execution()] = true
			h.took[w] = append(h.took[w], time.Duration(s.Duration*float64(time.Second)))
		}
	}
}

// Expect returns the median duration of earlier executions of x's case on its stack, and
// their number. Without any it returns the assumed duration of the case and 0.
func (h *History) Expect(x Execution) (took time.Duration, executions int) {
	sorted := slices.Sorted(slices.Values(h.took[workOf(x)]))
	if len(sorted) == 0 {
		return expected(x.Case), 0
	}
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2, len(sorted)
}
