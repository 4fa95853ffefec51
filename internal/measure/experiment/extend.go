package experiment

import (
	"math"
	"math/rand/v2"
	"slices"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stack"
	"unnest/internal/measure/stats"
)

// Random streams of the blocks beyond the schedule, which has stream 0.
const (
	extraOrders = 1 << 32 // plus the case: orders of its configurations
	extraCases  = 2 << 32 // plus the block: order of its cases
)

// extension returns the executions of a block beyond the schedule, in order. It includes
// a case, in all configurations, if the interval of the mean of its primary metric is
// wider than spec.Until in one of them. It leaves out a configuration without any sample
// of the case, because a further execution would fail too.
//
// It depends only on spec, seed and the samples of earlier blocks, so a resumed run
// decides as the interrupted one did. It always includes a case that has samples of this
// block or a later one: the block was begun, perhaps before a missing earlier sample was
// added.
//
// Looking repeatedly and stopping at a good result makes intervals somewhat too narrow;
// scheduled blocks do not.
func extension(spec *Spec, seed uint64, samples []result.Sample, block int) []Execution {
	byCase := map[string][]result.Sample{}
	for _, s := range samples {
		byCase[s.Case] = append(byCase[s.Case], s)
	}
	var added []Execution
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
				added = append(added, Execution{Configuration: conf, Case: c, Block: block, Repetition: block})
			}
		}
	}
	return added
}

// earlier returns the values of a metric before the block, by configuration. begun
// reports whether there are samples of the block or later ones.
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

// wide reports whether half of the 95 % interval of the mean is over a fraction of the
// mean. A single value has no interval and is wide; no value is not.
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
