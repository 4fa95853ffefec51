package advice

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/measure/stats"
)

var publish = flag.Bool("publish", false, "split and simulate many runs and rewrite the tables of docs/advise.md")

const (
	advicePage  = "../../../docs/advise.md"
	heldBackRNG = 20261122 // seed
)

// halves splits the samples of a run by its blocks, at random.
func halves(r *rand.Rand, samples []result.Sample) (first, second []result.Sample) {
	blocks := map[int]bool{}
	for _, s := range samples {
		blocks[s.Block] = true
	}
	in := map[int]bool{}
	order := r.Perm(len(blocks))
	var all []int
	for b := range blocks {
		all = append(all, b)
	}
	slices.Sort(all)
	for _, i := range order[:len(order)/2] {
		in[all[i]] = true
	}
	for _, s := range samples {
		if in[s.Block] {
			first = append(first, s)
		} else {
			second = append(second, s)
		}
	}
	return first, second
}

// tally counts what held-back blocks say about advice.
type tally struct {
	choices, decided  int     // choices with a verdict; those that make a difference
	right, held       int     // of the decided: the same side of 1; of the choices: in the interval
	best, bestOf      int     // the best one of the first half is the best one of the second
	behind            float64 // sum of the logarithms by which it is worse where it is not
	falseOnes, within int     // in simulated runs: decided on the wrong side; intervals with the truth
	known             int     // in simulated runs: choices
}

func (t *tally) add(o tally) {
	t.choices, t.decided, t.right, t.held = t.choices+o.choices, t.decided+o.decided, t.right+o.right, t.held+o.held
	t.best, t.bestOf, t.behind = t.best+o.best, t.bestOf+o.bestOf, t.behind+o.behind
	t.falseOnes, t.within, t.known = t.falseOnes+o.falseOnes, t.within+o.within, t.known+o.known
}

// same finds a choice in the advice of the other half.
func same(all []Choice, c Choice) (Choice, bool) {
	i := slices.IndexFunc(all, func(o Choice) bool {
		return o.Action == c.Action && o.From == c.From && o.To == c.To && o.Suite == c.Suite && o.Metric == c.Metric
	})
	if i < 0 {
		return Choice{}, false
	}
	return all[i], true
}

// judgeBy counts what the advice of the second half says about that of the first.
func (t *tally) judgeBy(first, second Advice) {
	for _, c := range first.Choices {
		o, ok := same(second.Choices, c)
		if !ok || !c.Interval.Defined() {
			continue
		}
		t.choices++
		// The mean of the second half scatters too, by its own number of blocks.
		wide := c.Effect
		wide.StdErr *= math.Sqrt(1 + float64(c.Effect.N)/float64(o.Effect.N))
		if wide.Interval(c.Interval.Confidence).Contains(o.Effect.Ratio()) {
			t.held++
		}
		if c.Sure() > 0 {
			t.decided++
			if (c.Effect.Log > 0) == (o.Effect.Log > 0) {
				t.right++
			}
		}
	}
}

// bestConfigurations counts for how many cases the best configuration is the same in both
// halves.
func (t *tally) bestConfigurations(run result.Run, first, second []result.Sample) {
	a, b := newStudy(run, first), newStudy(run, second)
	for _, c := range run.Cases {
		predicted, ok := a.best(c)
		actual, has := b.best(c)
		if !ok || !has {
			continue
		}
		t.bestOf++
		if predicted == actual {
			t.best++
			continue
		}
		t.behind += math.Abs(b.center(predicted, c) - b.center(actual, c))
	}
}

// center is the mean of the logarithms of a case's primary metric.
func (s study) center(configuration string, c result.Case) float64 {
	sum, n := 0.0, 0
	for _, xs := range s.values[cell{configuration, c.Suite, c.Name, c.Primary}] {
		sum, n = sum+meanLog(xs), n+1
	}
	return sum / float64(n)
}

func (s study) best(c result.Case) (best string, ok bool) {
	most := math.Inf(-1)
	for _, conf := range s.run.Configurations {
		v := s.center(conf.Name, c)
		if primary(c).Order == result.LIB {
			v = -v
		}
		if v > most {
			best, most = conf.Name, v
		}
	}
	return best, !math.IsInf(most, 0)
}

func rate(n, of int) string {
	if of == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(of))
}

// behindWords is how much the predicted best is worse, where it is not the best.
func (t tally) behindWords() string {
	if t.best == t.bestOf {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*math.Expm1(t.behind/float64(t.bestOf-t.best)))
}

// published splits every published run.
func published(t *testing.T, page *bytes.Buffer, splits int) (all tally) {
	t.Helper()
	dirs, err := filepath.Glob("../../../docs/results/runs/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("published runs: %d, error %v", len(dirs), err)
	}
	fmt.Fprintf(page, "%d splits of each published run:\n\n| run | choices judged in a split | advice on | advice right | interval holds | best configuration right | behind |\n|---|---:|---:|---:|---:|---:|---:|\n", splits)
	for _, dir := range dirs {
		run, samples, err := rundir.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(heldBackRNG, 1))
		var of tally
		for range splits {
			first, second := halves(r, samples)
			of.judgeBy(Of(run, first), Of(run, second))
			of.bestConfigurations(run, first, second)
		}
		fmt.Fprintf(page, "| %s | %.1f | %s | %s | %s | %s | %s |\n", filepath.Base(dir), float64(of.choices)/float64(splits),
			rate(of.decided, of.choices), rate(of.right, of.decided), rate(of.held, of.choices), rate(of.best, of.bestOf), of.behindWords())
		all.add(of)
	}
	fmt.Fprintf(page, "| all | %.1f | %s | %s | %s | %s | %s |\n", float64(all.choices)/float64(splits),
		rate(all.decided, all.choices), rate(all.right, all.decided), rate(all.held, all.choices), rate(all.best, all.bestOf), all.behindWords())
	return all
}

// simulation is a kind of simulated runs.
type simulation struct {
	blocks  int
	scatter float64
}

// draw makes hosts with random shares.
func draw(r *rand.Rand, loads []load) hosts {
	h := hosts{rates: map[load]float64{}, shares: map[string][2]float64{}}
	share := func() float64 { return 0.35 + 0.6*r.Float64() }
	for i, a := range loads {
		h.rates[a] = 10e6 / float64(a.size)
		for _, b := range loads[i:] {
			h.shares[pairName(a, b)] = [2]float64{share(), share()}
		}
	}
	return h
}

// truth returns the true sum of shares of a pair on a host.
func (h hosts) truth(c Choice) (ratio float64, ok bool) {
	for name, s := range h.shares {
		if c.Action == "put "+name+" on one host" {
			return s[0] + s[1], true
		}
	}
	return 0, false
}

// bestPair is the pair with the highest sum of shares by the advice.
func bestPair(choices []Choice) (best Choice) {
	for _, c := range choices {
		if strings.HasSuffix(c.Action, " on one host") && (best.Action == "" || c.Effect.Log > best.Effect.Log) {
			best = c
		}
	}
	return best
}

// simulate draws runs, and judges the advice of one half by the other and by the truth.
func (s simulation) simulate(runs int) (t tally) {
	r := rand.New(rand.NewPCG(heldBackRNG, uint64(s.blocks)))
	var loads []load
	for _, kind := range []string{"con", "hvm", "pvm"} {
		loads = append(loads, load{kind, 100 << 10}, load{kind, 1 << 10})
	}
	for range runs {
		h := draw(r, loads)
		run, samples := h.run(r, s.blocks, loads, s.scatter)
		a, b := halves(r, samples)
		first, second := Of(run, a), Of(run, b)
		t.judgeBy(first, second)
		predicted, actual := bestPair(first.Choices), bestPair(second.Choices)
		t.bestOf++
		if predicted.Action == actual.Action {
			t.best++
		} else if o, ok := same(second.Choices, predicted); ok {
			t.behind += actual.Effect.Log - o.Effect.Log
		}
		for _, c := range first.Choices {
			truth, ok := h.truth(c)
			if !ok {
				continue
			}
			t.known++
			if c.Interval.Contains(truth) {
				t.within++
			}
			if c.Sure() > 0 && (c.Effect.Log > 0) != (truth > 1) {
				t.falseOnes++
			}
		}
	}
	return t
}

// TestHeldBack predicts held-back blocks: few times by default, to find mistakes, often with
// -publish, to publish the rates.
func TestHeldBack(t *testing.T) {
	splits, runs := 4, 5
	if *publish {
		splits, runs = 200, 500
	}
	var page bytes.Buffer
	all := published(t, &page, splits)
	if all.choices == 0 || float64(all.right) < 0.9*float64(all.decided) || float64(all.held) < 0.85*float64(all.choices) {
		t.Errorf("published runs: %d of %d pieces of advice right, %d of %d intervals hold", all.right, all.decided, all.held, all.choices)
	}
	if all.bestOf == 0 || 2*all.best < all.bestOf {
		t.Errorf("published runs: best configuration right %d of %d times", all.best, all.bestOf)
	}
	fmt.Fprintf(&page, "\n%d simulated runs of each kind:\n\n| blocks | scatter of an execution | advice on | advice right | wrong by the truth | interval holds | interval has the truth | best pair right | behind |\n|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n", runs)
	for _, s := range []simulation{{12, 0.05}, {12, 0.15}, {24, 0.05}, {24, 0.15}} {
		o := s.simulate(runs)
		fmt.Fprintf(&page, "| %d | %.0f %% | %s | %s | %s | %s | %s | %s | %s |\n", s.blocks, 100*s.scatter, rate(o.decided, o.choices), rate(o.right, o.decided),
			rate(o.falseOnes, o.known), rate(o.held, o.choices), rate(o.within, o.known), rate(o.best, o.bestOf), o.behindWords())
		spare := 3 * math.Sqrt(0.05*0.95/float64(runs)) // choices of one run share its single domains
		if o.known == 0 || float64(o.falseOnes) > (stats.DefaultAlpha+spare)*float64(o.known) || float64(o.within) < (1-stats.DefaultAlpha-spare)*float64(o.known) {
			t.Errorf("%d blocks, scatter %v: of %d choices %d wrong, %d intervals with the truth", s.blocks, s.scatter, o.known, o.falseOnes, o.within)
		}
	}
	if *publish {
		write(t, page.String())
	}
}

// write replaces the tables of the page.
func write(t *testing.T, tables string) {
	t.Helper()
	const begin, end = "<!-- begin held-back -->\n", "<!-- end held-back -->"
	page, err := os.ReadFile(advicePage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("%s lacks %q or %q", advicePage, begin, end)
	}
	if err := os.WriteFile(advicePage, []byte(before+begin+"\n"+tables+"\n"+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
