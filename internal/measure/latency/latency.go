// Package latency compares the latencies of two configurations of a run, for what does not print
// them: the price of a split pod in a plan. Words and tables of comparisons belong to package
// report.
package latency

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
)

// The comparison of Bacou et al., §5.3.2: containers of a pod that communicate through the
// localhost of one VM, and through Hostlo.
const (
	SameNode = "SameNode"
	Hostlo   = "Hostlo"
)

const (
	metric     = "latency_mean"
	confidence = 0.95
)

// Case is the latencies of a case in both configurations.
type Case struct {
	Name             string
	Unit             string
	SameNode, Hostlo float64 // centers
	Ratio            float64 // of Hostlo to SameNode: the geometric mean over blocks
	Low, High        float64 // interval of the ratio; 0: not defined
	Blocks           int
}

// Compare returns the latencies of one case, or of all cases with latencies if only is empty, and
// the geometric mean of their ratios. That there are none is an error, which calls the run dir.
func Compare(dir string, run result.Run, samples []result.Sample, only string) (ratio float64, cases []Case, err error) {
	if err := compares(dir, run); err != nil {
		return 0, nil, err
	}
	var names []string
	logs := 0.0
	for _, c := range run.Cases {
		names = append(names, c.Name)
		if only != "" && c.Name != only {
			continue
		}
		one, ok, err := ofCase(c.Name, samples, run.Interleaved)
		if err != nil {
			return 0, nil, fmt.Errorf("run %s: case %s: %w", dir, c.Name, err)
		}
		if ok {
			cases = append(cases, one)
			logs += math.Log(one.Ratio)
		}
	}
	switch {
	case only != "" && !slices.Contains(names, only):
		return 0, nil, fmt.Errorf("run %s: has no case %q: want one of %s", dir, only, strings.Join(names, ", "))
	case len(cases) == 0:
		return 0, nil, fmt.Errorf("run %s: has no %s of both %s and %s in %s: measure a case such as udp_rr in both", dir, metric, SameNode, Hostlo, caseWords(only))
	}
	return math.Exp(logs / float64(len(cases))), cases, nil
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
	for _, want := range []string{SameNode, Hostlo} {
		if !slices.Contains(names, want) {
			return fmt.Errorf("run %s: has no configuration %s, only %s: name a run that compares %s and %s",
				dir, want, strings.Join(names, ", "), SameNode, Hostlo)
		}
	}
	return nil
}

// ofCase returns the latencies of a case, and whether both configurations have some.
func ofCase(name string, samples []result.Sample, interleaved bool) (Case, bool, error) {
	of := map[string][]stats.Observation{}
	units := map[string]bool{}
	c := Case{Name: name}
	for _, s := range samples {
		if s.Case == name && s.Metric == metric && (s.Configuration == SameNode || s.Configuration == Hostlo) {
			of[s.Configuration] = append(of[s.Configuration], stats.Observation{Block: s.Block, Value: s.Value})
			c.Unit, units[s.Unit] = s.Unit, true
		}
	}
	slow, fast := stats.ByBlock(of[Hostlo]), stats.ByBlock(of[SameNode])
	if len(slow) == 0 || len(fast) == 0 {
		return c, false, nil
	}
	if len(units) > 1 {
		return c, false, fmt.Errorf("%s is in several units", metric)
	}
	ratio, err := stats.Compare(slow, fast, interleaved)
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
