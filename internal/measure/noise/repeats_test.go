package noise

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
)

// repeated is a run of configurations A and B in which an execution is disturbed with the given chances and
// is measured again, once. A disturbed execution takes slow times as long.
func repeated(r *rand.Rand, blocks int, chanceA, chanceB, slow float64) (j result.Journal) {
	for block := range blocks {
		for _, c := range []struct {
			name   string
			chance float64
		}{{"A", chanceA}, {"B", chanceB}} {
			measure := func() (float64, bool) {
				v := math.Exp(0.02 * r.NormFloat64())
				if r.Float64() < c.chance {
					return v * slow, true
				}
				return v, false
			}
			s := result.Sample{Run: "r", Configuration: c.name, Case: "c", Metric: "m", Order: result.LIB, Block: block, Repetition: block}
			disturbed := false
			if s.Value, disturbed = measure(); disturbed {
				again := s
				again.Discarded = 1
				j.Discarded = append(j.Discarded, again)
				s.Value, _ = measure()
			}
			j.Samples = append(j.Samples, s)
		}
	}
	return j
}

// ratio is that of B to A, with its interval.
func ratio(t *testing.T, samples []result.Sample) stats.Effect {
	t.Helper()
	values := map[string][]stats.Observation{}
	for _, s := range samples {
		values[s.Configuration] = append(values[s.Configuration], stats.Observation{Block: s.Block, Value: s.Value})
	}
	e, err := stats.Compare(values["B"], values["A"], true)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// B disturbs the machine in half of its executions, and is 1.3 times as slow then. Its interval holds the
// true ratio as often as it says.
func TestSelectOfConfigurationThatDisturbs(t *testing.T) {
	truth := math.Pow(1.3, 0.5)
	r := rand.New(rand.NewPCG(1, 2))
	const runs = 200
	selected, last := 0, 0
	for range runs {
		j := repeated(r, 20, 0.02, 0.5, 1.3)
		holds := func(samples []result.Sample) bool {
			i := ratio(t, samples).Interval(stats.DefaultConfidence)
			return i.Low <= truth && truth <= i.High
		}
		if holds(Select(j)) {
			selected++
		}
		if holds(j.Samples) {
			last++
		}
	}
	if selected < runs*88/100 || last > runs/2 {
		t.Errorf("the interval holds the true ratio in %d of %d runs, and of the last measurements in %d; want 88 %% or more, and at most half", selected, runs, last)
	}
}

// A disturbance from outside hits both alike: the calm measurement counts in four of five runs.
func TestSelectOfDisturbanceFromOutside(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const runs = 400
	firsts := 0
	for range runs {
		if slices.ContainsFunc(Select(repeated(r, 20, 0.2, 0.2, 1.3)), func(s result.Sample) bool { return s.Discarded > 0 }) {
			firsts++
		}
	}
	if share := float64(firsts) / runs; share > chance+0.04 {
		t.Errorf("the first measurement counts in %.0f %% of runs, want at most %.0f %%", 100*share, 100*chance)
	}
}

// One measurement of each execution remains, with the number of repeats. An execution without a result is left out.
func TestSelectKeepsExecutions(t *testing.T) {
	j := repeated(rand.New(rand.NewPCG(5, 6)), 30, 0, 0.6, 1.3)
	j.Discarded = append(j.Discarded, result.Sample{Configuration: "B", Case: "c", Metric: "m", Order: result.LIB, Block: 99, Discarded: 1})
	seen, repeats := map[result.Execution]int{}, 0
	for _, s := range Select(j) {
		seen[s.Execution()]++
		repeats += Repeats(s)
		if (s.Discarded == 1) != (Repeats(s) == 1) {
			t.Errorf("%s: discarded %d, repeats %d", s.Execution(), s.Discarded, Repeats(s))
		}
	}
	if len(seen) != 60 || repeats != len(j.Discarded)-1 {
		t.Errorf("%d executions with %d repeats, want 60 and %d", len(seen), repeats, len(j.Discarded)-1)
	}
	for x, n := range seen {
		if n != 1 {
			t.Errorf("%s: %d samples", x, n)
		}
	}
	if got := Select(result.Journal{Samples: j.Samples}); !slices.EqualFunc(got, j.Samples, func(a, b result.Sample) bool { return a.Value == b.Value }) {
		t.Error("a run without discarded measurements is changed")
	}
}
