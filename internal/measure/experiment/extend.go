package experiment

import (
	"math"
	"math/rand/v2"
	"slices"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
)

// Random streams of the blocks beyond the schedule, which has stream 0.
const (
	extraOrders = 1 << 32 // plus the case: orders of its configurations
	extraCases  = 2 << 32 // plus the block: order of its cases
)

// Precision is how precisely the ratio of two configurations is known in a case.
type Precision struct {
	Case          string
	Configuration string
	Baseline      string  // empty where a run has one configuration: Ratio is its value then
	Ratio         float64 // geometric mean over blocks
	Half          float64 // half of the 95 % interval, as a fraction of Ratio; +Inf below stats.MinRepetitions blocks
	Blocks        int
	Further       int // blocks until Half is expected to reach spec.Until, at most up to spec.Limit
}

// extension returns the executions of a block beyond the schedule, in order, and for each
// of its cases the least precise ratio. It includes a case, in all configurations, if the
// interval of the ratio of its primary metric to a baseline is wider than spec.Until in a
// configuration, and while there are fewer than stats.MinRepetitions blocks. It leaves out
// a configuration without any sample of the case, because a further execution would fail
// too, and a case with repetitions of its own.
//
// It depends only on spec, seed and the samples that count, see noise.Select, so a resumed run
// decides as the interrupted one did. It always includes a case that has samples of this
// block or a later one: the block was begun, perhaps before a missing earlier sample was
// added.
//
// The rule looks at the width of the interval and not at the ratio, so a run does not
// stop because its result is welcome. docs/explanation/statistics.md tells how much
// repeated looks cost.
func extension(spec *Spec, seed uint64, samples []result.Sample, block int) ([]Execution, []Precision) {
	byCase := map[string][]result.Sample{}
	for _, s := range samples {
		byCase[s.Case] = append(byCase[s.Case], s)
	}
	var added []Execution
	var reasons []Precision
	for _, i := range rand.New(rand.NewPCG(seed, extraCases+uint64(block))).Perm(len(spec.Cases)) {
		c := spec.Cases[i]
		if c.Blocks > 0 {
			continue
		}
		values, begun := earlier(byCase[c.Name], c.Primary, block)
		worst, wide := leastPrecise(spec, c, values)
		if !begun && !wide {
			continue
		}
		if wide {
			reasons = append(reasons, worst)
		}
		r := rand.New(rand.NewPCG(seed, extraOrders+uint64(i)))
		orders := balancedOrders(r, len(spec.Configurations), block-spec.Repetitions+1)
		for _, j := range orders[block-spec.Repetitions] {
			if conf := spec.Configurations[j]; len(values[conf.Name]) > 0 {
				added = append(added, Execution{Configuration: conf, Case: c, Block: block, Repetition: block})
			}
		}
	}
	return added, reasons
}

// earlier returns the observations of a metric before the block, by configuration. begun
// reports whether there are samples of the block or later ones.
func earlier(samples []result.Sample, metric string, block int) (values map[string][]stats.Observation, begun bool) {
	values = map[string][]stats.Observation{}
	for _, s := range samples {
		switch {
		case s.Metric != metric:
		case s.Block >= block:
			begun = true
		default:
			values[s.Configuration] = append(values[s.Configuration], stats.Observation{Block: s.Block, Value: s.Value})
		}
	}
	return values, begun
}

// leastPrecise returns the least precise ratio of a case to a baseline, and whether it is
// wider than spec.Until. A ratio that cannot be computed, or does not vary, is not wide.
func leastPrecise(spec *Spec, c Case, values map[string][]stats.Observation) (worst Precision, wide bool) {
	for _, conf := range spec.Configurations {
		self := slices.Index(spec.Baselines, conf.Name)
		for i, baseline := range spec.Baselines {
			if self >= 0 && self <= i && len(spec.Configurations) > 1 { // itself, or compared the other way round
				continue
			}
			e, err := effectOf(values[conf.Name], values[baseline], conf.Name == baseline)
			if err != nil {
				continue
			}
			p := precision(spec, e)
			if p.Half > spec.Until && (!wide || p.Half > worst.Half) {
				worst, wide = p, true
				worst.Case, worst.Configuration = c.Name, conf.Name
				if conf.Name != baseline {
					worst.Baseline = baseline
				}
			}
		}
	}
	return worst, wide
}

// effectOf is the ratio of a to b; of a single configuration it is the ratio of its values
// to 1.
func effectOf(a, b []stats.Observation, single bool) (stats.Effect, error) {
	if single {
		b = slices.Clone(b)
		for i := range b {
			b[i].Value = 1
		}
	}
	return stats.Compare(a, b, true)
}

func precision(spec *Spec, e stats.Effect) Precision {
	p := Precision{Ratio: e.Ratio(), Blocks: e.N}
	switch {
	case e.N < stats.MinRepetitions:
		p.Half, p.Further = math.Inf(1), stats.MinRepetitions-e.N
	case e.Testable():
		p.Half = e.Interval(stats.DefaultConfidence).High/e.Ratio() - 1
		p.Further = max(0, e.BlocksFor(spec.Until, stats.DefaultConfidence, spec.Limit)-e.N)
	}
	return p
}
