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

// splits is how often the blocks of an A/A measurement are split.
const splits = 1000

// aa prints, of each pair of twins in the run, how often a test calls them
// different. It prints nothing of a run without twins.
func aa(w io.Writer, run result.Run, samples []result.Sample) error {
	for _, pair := range twins(run) {
		if err := printTwins(w, run, samples, pair[0], pair[1]); err != nil {
			return err
		}
	}
	return nil
}

// twins returns the names of the configurations that were entered twice: X-a and
// X-b with the same stack and options.
func twins(run result.Run) (pairs [][2]string) {
	for _, a := range run.Configurations {
		name, ok := strings.CutSuffix(a.Name, "-a")
		for _, b := range run.Configurations {
			if ok && b.Name == name+"-b" && a.Stack == b.Stack && maps.Equal(a.Options, b.Options) {
				pairs = append(pairs, [2]string{a.Name, b.Name})
			}
		}
	}
	return pairs
}

// printTwins prints the rate of each case's primary metric, and of all together.
func printTwins(w io.Writer, run result.Run, samples []result.Sample, a, b string) error {
	_, err := fmt.Fprintf(w, "\nA/A: %s against %s, the same configuration twice\n"+
		"How often Welch's test at 5 %% calls them different, over %d random splits of the blocks in halves:\n", a, b, splits)
	if err != nil {
		return err
	}
	all := stats.FalsePositives{Alpha: stats.DefaultAlpha}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range run.Cases {
		f, err := stats.WelchFalsePositives(primary(samples, c, a), primary(samples, c, b), stats.DefaultAlpha, splits, run.Seed)
		if err != nil {
			fmt.Fprintf(t, "  %s\t–\t%v\n", c.Name, err)
			continue
		}
		all = all.Add(f)
		fmt.Fprintf(t, "  %s\t%s\t%d blocks\n", c.Name, rate(f), f.Blocks)
	}
	fmt.Fprintf(t, "  all\t%s\t5 %% or less is to be expected; the rate of one case scatters widely\n", rate(all))
	return t.Flush()
}

// rate prints a rate, or that there is none.
func rate(f stats.FalsePositives) string {
	if f.Tests == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*f.Rate())
}

// primary returns what a case's primary metric was in a configuration.
func primary(samples []result.Sample, c result.Case, configuration string) (obs []stats.Observation) {
	for _, s := range samples {
		if s.Case == c.Name && s.Metric == c.Primary && s.Configuration == configuration {
			obs = append(obs, stats.Observation{Block: s.Block, Value: s.Value})
		}
	}
	return obs
}
