package experiment

import (
	"math"
	"math/rand/v2"
	"slices"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stack"
	"unnest/internal/measure/stats"
)

// Streams of random numbers of the blocks beyond the planned ones; Schedule has
// stream 0.
const (
	extraOrders = 1 << 32 // plus the case: orders of its configurations
	extraCases  = 2 << 32 // plus the block: order of its cases
)

// extension returns the executions of a block beyond the planned ones, in the
// order in which they are to be run. A case is among them, in all configurations,
// when in one of them the interval of the mean of its primary metric is wider than
// spec.Until. Left out is a configuration without any sample of the case: it is a
// hole, which a further execution would not fill.
//
// It depends on spec, seed and the samples of earlier blocks, so that a resumed run
// decides as the interrupted one did. A case that has samples of this block or a
// later one is always in: the block was begun, perhaps before a sample that was
// missing earlier was made up for.
//
// To look again and again, and to stop when it looks good, makes intervals somewhat
// narrower than they should be; blocks that are planned do not.
func extension(spec *Spec, seed uint64, samples []result.Sample, block int) []Execution {
	byCase := map[string][]result.Sample{}
	for _, s := range samples {
		byCase[s.Case] = append(byCase[s.Case], s)
	}
	var plan []Execution
	for _, i := range rand.New(rand.NewPCG(seed, extraCases+uint64(block))).Perm(len(spec.Cases)) {
		c := spec.Cases[i]
		values, begun := earlier(byCase[c.Name], c.Primary, block)
		if !begun && !slices.ContainsFunc(spec.Configurations, func(conf stack.Configuration) bool { return wide(values[conf.Name], spec.Until) }) {
			continue
		}
		r := rand.New(rand.NewPCG(seed, extraOrders+uint64(i)))
		orders := balancedOrders(r, len(spec.Configurations), block-spec.Repetitions+1)
		for _, j := range orders[block-spec.Repetitions] {
			if conf := spec.Configurations[j]; len(values[conf.Name]) > 0 {
				plan = append(plan, Execution{Configuration: conf, Case: c, Block: block, Repetition: block})
			}
		}
	}
	return plan
}

// earlier returns the values of a metric before the block, by configuration, and
// whether there are samples of the block or later ones.
func earlier(samples []result.Sample, metric string, block int) (values map[string][]float64, begun bool) {
	values = map[string][]float64{}
	for _, s := range samples {
		switch {
		case s.Metric != metric:
		case s.Block >= block:
			begun = true
		default:
			values[s.Configuration] = append(values[s.Configuration], s.Value)
		}
	}
	return values, begun
}

// wide reports whether the 95 % interval of the mean of values reaches further from
// it than a fraction of it. One value has no interval and is wide, none is not.
func wide(values []float64, fraction float64) bool {
	if len(values) == 0 {
		return false
	}
	interval, err := stats.MeanInterval(values, stats.DefaultConfidence)
	if err != nil {
		return true
	}
	half, mean := (interval.High-interval.Low)/2, (interval.High+interval.Low)/2
	return half > fraction*math.Abs(mean)
}
