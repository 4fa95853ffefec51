package plan

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"unnest/internal/cli/document"
	"unnest/internal/measure/result"
	"unnest/internal/measure/stats"
	"unnest/internal/plan/summary"
	"unnest/internal/report/provenance"
)

// The comparison of Bacou et al., §5.3.2, that a run must have: containers of a pod that
// communicate through the localhost of one VM, and through Hostlo.
const (
	sameNode      = "SameNode"
	throughHostlo = "Hostlo"
	latencyMetric = "latency_mean"
	confidence    = 0.95
)

// readLatency reads the ratio of latencies from a run directory: of one case, or of all cases
// with latencies if only is empty.
func readLatency(dir, only string) (summary.Latency, error) {
	input, notes, err := document.Load(dir)
	if err != nil {
		return summary.Latency{}, err
	}
	l := summary.Latency{Run: input.Run.ID, Directory: dir, State: string(input.Run.State), Accelerator: input.Run.Accelerator, Notes: notes}
	if err := compares(dir, input.Run); err != nil {
		return l, err
	}
	var names []string
	logs := 0.0
	for _, c := range input.Run.Cases {
		names = append(names, c.Name)
		if only != "" && c.Name != only {
			continue
		}
		one, ok, err := caseLatency(c.Name, input)
		if err != nil {
			return l, fmt.Errorf("run %s: case %s: %w", dir, c.Name, err)
		}
		if ok {
			l.Cases = append(l.Cases, one)
			logs += math.Log(one.Ratio)
		}
	}
	switch {
	case only != "" && !slices.Contains(names, only):
		return l, fmt.Errorf("run %s: has no case %q: want one of %s", dir, only, strings.Join(names, ", "))
	case len(l.Cases) == 0:
		return l, fmt.Errorf("run %s: has no %s of both %s and %s in %s: measure a case such as udp_rr in both", dir, latencyMetric, sameNode, throughHostlo, caseWords(only))
	}
	l.Ratio = math.Exp(logs / float64(len(l.Cases)))
	return l, nil
}

func caseWords(only string) string {
	if only == "" {
		return "any case"
	}
	return "the case " + only
}

// compares returns an error unless the run has both configurations.
func compares(dir string, run result.Run) error {
	var names []string
	for _, c := range run.Configurations {
		names = append(names, c.Name)
	}
	for _, want := range []string{sameNode, throughHostlo} {
		if !slices.Contains(names, want) {
			return fmt.Errorf("run %s: has no configuration %s, only %s: name a run that compares %s and %s",
				dir, want, strings.Join(names, ", "), sameNode, throughHostlo)
		}
	}
	return nil
}

// caseLatency returns the latencies of a case, and whether both configurations have
// some.
func caseLatency(name string, input provenance.Source) (summary.CaseLatency, bool, error) {
	of := map[string][]stats.Observation{}
	units := map[string]bool{}
	c := summary.CaseLatency{Case: name}
	for _, s := range input.Samples {
		if s.Case == name && s.Metric == latencyMetric && (s.Configuration == sameNode || s.Configuration == throughHostlo) {
			of[s.Configuration] = append(of[s.Configuration], stats.Observation{Block: s.Block, Value: s.Value})
			c.Unit, units[s.Unit] = s.Unit, true
		}
	}
	slow, fast := stats.ByBlock(of[throughHostlo]), stats.ByBlock(of[sameNode])
	if len(slow) == 0 || len(fast) == 0 {
		return c, false, nil
	}
	if len(units) > 1 {
		return c, false, fmt.Errorf("%s is in several units", latencyMetric)
	}
	ratio, err := stats.Compare(slow, fast, input.Run.Interleaved)
	if err != nil {
		return c, false, err
	}
	same, err := stats.Summarize(stats.Values(fast))
	if err != nil {
		return c, false, err
	}
	through, err := stats.Summarize(stats.Values(slow))
	if err != nil {
		return c, false, err
	}
	c.SameNode, c.Hostlo = same.Center, through.Center
	c.Ratio, c.Blocks = ratio.Ratio(), ratio.N
	if i := ratio.Interval(confidence); i.Defined() {
		c.Low, c.High = i.Low, i.High
	}
	return c, true, nil
}
