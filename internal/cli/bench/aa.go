package bench

import (
	"fmt"
	"io"
	"maps"
	"strings"
	"text/tabwriter"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
)

// aa prints how often a test finds a difference between two equal configurations named
// X-a and X-b. Without such a pair it prints nothing.
func aa(w io.Writer, run result.Run, samples []result.Sample) error {
	for _, a := range run.Configurations {
		name, ok := strings.CutSuffix(a.Name, "-a")
		for _, b := range run.Configurations {
			if ok && b.Name == name+"-b" && a.Stack == b.Stack && maps.Equal(a.Options, b.Options) {
				if err := printPair(w, run, samples, a.Name, b.Name); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// printPair prints the rate for each case's primary metric, and for all cases.
func printPair(w io.Writer, run result.Run, samples []result.Sample, a, b string) error {
	all := stats.FalsePositives{Alpha: stats.DefaultAlpha}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "\nA/A: %s against %s, the same configuration twice\n"+
		"How often a test at 5 %% finds a difference, each in %d blocks of its own:\n", a, b, stats.MinRepetitions)
	for _, c := range run.Cases {
		f, err := stats.EqualPair(primary(samples, c, a), primary(samples, c, b), stats.DefaultAlpha)
		if err != nil {
			fmt.Fprintf(t, "  %s\t–\t%v\n", c.Name, err)
			continue
		}
		all = all.Add(f)
		fmt.Fprintf(t, "  %s\t%s\n", c.Name, positives(f))
	}
	low, high := all.Expected()
	fmt.Fprintf(t, "  all\t%s\ta perfect tool finds %d to %d in 95 %% of such measurements\n", positives(all), low, high)
	return t.Flush()
}

// positives prints a count with its rate, or a dash if there are no tests.
func positives(f stats.FalsePositives) string {
	if f.Tests == 0 {
		return "–"
	}
	return fmt.Sprintf("%d of %d (%.0f %%)", f.Positives, f.Tests, 100*f.Rate())
}

// primary returns the values of a case's primary metric in a configuration.
func primary(samples []result.Sample, c result.Case, configuration string) (obs []stats.Observation) {
	for _, s := range samples {
		if s.Case == c.Name && s.Metric == c.Primary && s.Configuration == configuration {
			obs = append(obs, stats.Observation{Block: s.Block, Value: s.Value})
		}
	}
	return obs
}
