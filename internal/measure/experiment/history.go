package experiment

import (
	"slices"
	"time"

	"unnest/internal/measure/result"
)

// History is what executions of earlier runs took, to tell how long those to come
// will take.
type History struct{ took map[work][]time.Duration }

// work is what has to be the same for executions to take about the same time.
// Equal walls tell that a case of that name did as much.
type work struct {
	name, stack string
	wall        time.Duration
}

func workOf(x Execution) work { return work{x.Case.Name, x.Configuration.Stack.String(), x.Case.Wall} }

// Add learns from the samples of a run of spec.
func (h *History) Add(spec *Spec, samples []result.Sample) {
	if h.took == nil {
		h.took = map[work][]time.Duration{}
	}
	durations := map[result.Execution]time.Duration{}
	for _, s := range samples {
		durations[s.Execution()] = time.Duration(s.Duration * float64(time.Second))
	}
	works := map[result.Execution]work{}
	for _, c := range spec.Cases {
		for _, configuration := range spec.Configurations {
			x := Execution{Case: c, Configuration: configuration}
			works[pair(x)] = workOf(x)
		}
	}
	for key, took := range durations {
		key.Block, key.Repetition = 0, 0
		if w, ok := works[key]; ok {
			h.took[w] = append(h.took[w], took)
		}
	}
}

// Expect returns how long x will take: the median of the executions of its case on
// its stack, and how many those were; or, when there were none, what its case
// should take.
func (h *History) Expect(x Execution) (took time.Duration, executions int) {
	known := h.took[workOf(x)]
	if len(known) == 0 {
		return expected(x.Case), 0
	}
	sorted := slices.Sorted(slices.Values(known))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2, len(sorted)
}

// Warmups returns the executions that precede the plan, in their order.
func (s *Spec) Warmups() []Execution { return warmups(s) }
