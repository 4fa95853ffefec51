package claims

import (
	"errors"
	"math"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/provenance"
)

// ours is what a run has on a claim: an effect against the baseline, or the values of one configuration.
type ours struct {
	effect stats.Effect
	values []float64 // of blocks, without a baseline
	label  string    // the case, of a worst or best one
	why    string    // it is too little for a decision; empty: it is enough
}

// table has the samples of a run.
type table struct {
	input  provenance.Source
	noisy  bool
	values map[[2]string]map[result.Execution]map[string]float64 // by configuration and case: of executions by metric
}

func newTable(input provenance.Source) *table {
	t := &table{input: input, values: map[[2]string]map[result.Execution]map[string]float64{}}
	t.noisy = len(provenance.Observe(input.Run, input.Samples).Verdict()) > 0
	for _, s := range input.Samples {
		if collocation.OfDomain(s) && s.Tags[collocation.ActiveTag] != "true" {
			continue
		}
		key := [2]string{s.Configuration, s.Case}
		if t.values[key] == nil {
			t.values[key] = map[result.Execution]map[string]float64{}
		}
		if t.values[key][s.Execution()] == nil {
			t.values[key][s.Execution()] = map[string]float64{}
		}
		metrics := t.values[key][s.Execution()]
		metrics[s.Metric] = s.Value
		if collocation.OfDomain(s) {
			if least, has := metrics["least_"+s.Metric]; !has || s.Value < least {
				metrics["least_"+s.Metric] = s.Value
			}
			metrics["most_"+s.Metric] = max(s.Value, metrics["most_"+s.Metric])
		}
	}
	return t
}

// measure returns what the run has on c.
func (t *table) measure(c Claim) ours {
	prefix, many := strings.CutSuffix(c.Case, "*")
	cases := slices.DeleteFunc(slices.Clone(t.input.Run.Cases), func(one result.Case) bool {
		return one.Name != c.Case && !(many && strings.HasPrefix(one.Name, prefix))
	})
	has := slices.DeleteFunc(slices.Clone(cases), func(one result.Case) bool { return t.values[[2]string{c.Configuration, one.Name}] == nil })
	if many && len(has) > 0 && len(has) < len(cases) {
		return ours{why: "the run has only a part of the cases"}
	}
	if c.Extent == "" {
		return t.over(c, cases)
	}
	var all []ours
	for _, one := range cases {
		o := t.over(c, []result.Case{one})
		if o.why != "" { // the case could be the one
			return ours{why: o.why}
		}
		o.label = one.Name
		all = append(all, o)
	}
	if len(all) == 0 {
		return ours{why: "no values"}
	}
	slices.SortFunc(all, func(a, b ours) int {
		if a.effect.Log < b.effect.Log {
			return -1
		}
		return 1
	})
	if lowest := c.Metric == "throughput"; lowest == (c.Extent == "worst") {
		return all[0]
	}
	return all[len(all)-1]
}

const inPart = "only a part of the executions has it, which is not a random choice"

// over is the geometric mean over cases, in the blocks that have all of them.
func (t *table) over(c Claim, cases []result.Case) (o ours) {
	a, b := t.observations(c, cases, c.Configuration), t.observations(c, cases, c.Baseline)
	if a.lacking || b.lacking {
		o.why = inPart
	} else if c.Baseline == "" {
		o.values = stats.Values(stats.ByBlock(a.all))
		if len(o.values) < stats.MinRepetitions {
			o.why = "too few blocks"
		}
	} else {
		var err error
		if o.effect, err = stats.Compare(a.all, b.all, t.input.Run.Interleaved); errors.Is(err, stats.ErrTooFew) {
			o.why = "no values"
		} else if err != nil {
			o.why = err.Error()
		} else if !o.effect.Testable() {
			o.why = "too few blocks"
		} else if !o.effect.Paired {
			o.why = "the configurations share no block"
		}
	}
	if o.why == "" && t.noisy {
		o.why = "too noisy to conclude"
	}
	return o
}

// side has the values of a claim's metric in one configuration. It is lacking if only a part of the executions of a case has one.
type side struct {
	all     []stats.Observation
	lacking bool
}

// observations are a side of a claim. A block has one value of each case.
func (t *table) observations(c Claim, cases []result.Case, configuration string) (of side) {
	found := map[int]int{}
	for _, one := range cases {
		metric, order := c.Metric, result.HIB
		if metric == "performance" {
			metric = one.Primary
			if i := slices.IndexFunc(one.Metrics, func(m result.Metric) bool { return m.Name == metric }); i >= 0 {
				order = one.Metrics[i].Order
			}
		}
		var here []stats.Observation
		for e, metrics := range t.values[[2]string{configuration, one.Name}] {
			v := evaluate(metric, metrics)
			if order == result.LIB {
				v = 1 / v
			}
			if !math.IsNaN(v) {
				here = append(here, stats.Observation{Block: e.Block, Value: v})
			}
		}
		slices.SortFunc(here, func(a, b stats.Observation) int { return a.Block - b.Block })
		for _, o := range stats.ByBlock(here) {
			found[o.Block]++
			of.all = append(of.all, o)
		}
		of.lacking = of.lacking || len(here) > 0 && len(here) < len(t.values[[2]string{configuration, one.Name}])
	}
	of.all = slices.DeleteFunc(of.all, func(o stats.Observation) bool { return found[o.Block] < len(cases) })
	return of
}

// evaluate returns an expression of metrics: sums (+) of which products (*) are quotients (/). It is NaN if a metric is
// missing.
func evaluate(expression string, metrics map[string]float64) float64 {
	for _, operator := range []struct {
		sign string
		join func(a, b float64) float64
	}{
		{"/", func(a, b float64) float64 { return a / b }},
		{"*", func(a, b float64) float64 { return a * b }},
		{"+", func(a, b float64) float64 { return a + b }},
	} {
		if a, b, has := strings.Cut(expression, operator.sign); has {
			return operator.join(evaluate(a, metrics), evaluate(b, metrics))
		}
	}
	if v, has := metrics[expression]; has {
		return v
	}
	return math.NaN()
}
