package experiment

import (
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
)

func TestHistory(t *testing.T) {
	past := specOf(2, 2, 3)
	past.Configurations[0].Stack, past.Configurations[1].Stack = stack.Stack{stack.VM}, stack.Stack{stack.Metal}
	past.Cases[0].Wall, past.Cases[1].Wall = time.Second, time.Second
	sample := func(configuration, name string, block int, seconds float64) result.Sample {
		return result.Sample{Configuration: configuration, Case: name, Block: block, Repetition: block, Duration: seconds}
	}
	var h History
	h.Add(past, []result.Sample{
		sample("c0", "k0", 0, 2), sample("c0", "k0", 0, 2), // two metrics of one execution
		sample("c0", "k0", 1, 90), sample("c0", "k0", 2, 4),
		sample("c1", "k0", 0, 7), sample("gone", "k0", 0, 1000),
	})
	h.Add(past, []result.Sample{sample("c0", "k0", 0, 6)})

	x := Execution{Configuration: past.Configurations[0], Case: past.Cases[0]}
	check := func(what string, x Execution, want time.Duration, n int) {
		t.Helper()
		if took, seen := h.Expect(x); took != want || seen != n {
			t.Errorf("%s: %v from %d executions, want %v from %d", what, took, seen, want, n)
		}
	}
	check("median of 2, 4, 6 and 90", x, 5*time.Second, 4)
	x.Configuration.Name = "another"
	check("another name for the same stack", x, 5*time.Second, 4)
	x.Configuration = past.Configurations[1]
	check("another stack", x, 7*time.Second, 1)
	x.Case.Wall = 10 * time.Second
	check("more to do", x, 10*time.Second+overhead, 0)
	x.Case = past.Cases[1]
	check("never run", x, time.Second+overhead, 0)
	x.Case.Lead = 4 * time.Second
	check("idles for longer than it takes", x, 0, 0)
}
