package bench

import (
	"fmt"
	"io"
	"maps"
	"strings"
	"text/tabwriter"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stats"
)

// splits is the number of random splits of an A/A measurement.
const splits = 1000

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
		"How often Welch's test at 5 %% finds a difference, over %d random splits of the blocks in halves:\n", a, b, splits)
	for _, c := range run.Cases {
		f, err := stats.WelchFalsePositives(primary(samples, c, a), primary(samples, c, b), stats.DefaultAlpha, splits, run.Seed)
		if err != nil {
			fmt.Fprintf(t, "  %s\t–\t%v\n", c.Name, err)
			continue
		}
		all = all.Add(f)
		fmt.Fprintf(t, "  %s\t%s\t%d blocks\n", c.Name, rate(f), f.Blocks)
	}
	fmt.Fprintf(t, "  all\t%s\t5 %% or less is expected; the rate of a single case varies widely\n", rate(all))
	return t.Flush()
}

// rate prints a rate, or a dash if there is none.
func rate(f stats.FalsePositives) string {
	if f.Tests == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*f.Rate())
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
