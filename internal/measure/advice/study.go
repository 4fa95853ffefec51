package advice

import (
	"maps"
	"math"
	"slices"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
)

// study is a run whose samples are found by configuration, case, metric and block.
type study struct {
	run     result.Run
	samples []result.Sample
	values  map[cell]map[int][]float64 // by block
}

type cell struct{ configuration, suite, name, metric string }

func newStudy(run result.Run, samples []result.Sample) study {
	s := study{run: run, samples: samples, values: map[cell]map[int][]float64{}}
	for _, x := range samples {
		k := cell{x.Configuration, x.Suite, x.Case, x.Metric}
		if s.values[k] == nil {
			s.values[k] = map[int][]float64{}
		}
		s.values[k][x.Block] = append(s.values[k][x.Block], x.Value)
	}
	return s
}

// logRatios returns the logarithm of the ratio of b to a in each block that has both.
func (s study) logRatios(a, b string, c result.Case) map[int]float64 {
	ratios := map[int]float64{}
	from, to := s.values[cell{a, c.Suite, c.Name, c.Primary}], s.values[cell{b, c.Suite, c.Name, c.Primary}]
	for block := range from {
		x, y := meanLog(from[block]), meanLog(to[block])
		if r := y - x; !math.IsNaN(r) && !math.IsInf(r, 0) {
			ratios[block] = r
		}
	}
	return ratios
}

// meanLog returns the mean of the logarithms, NaN if there are none or one has none.
func meanLog(xs []float64) float64 {
	sum := 0.0
	for _, x := range xs {
		sum += math.Log(x)
	}
	return sum / float64(len(xs))
}

// effect is the effect of the mean, over the cases, of the logarithms of the ratios within
// a block. It takes the blocks that have all cases, because another choice of cases is
// another mean. ok is false if there are none.
func effect(cases []map[int]float64) (_ stats.Effect, ok bool) {
	var ratios, ones []stats.Observation
	for _, block := range slices.Sorted(maps.Keys(cases[0])) {
		sum := 0.0
		for _, one := range cases {
			if r, has := one[block]; has {
				sum += r
			} else {
				sum = math.NaN()
			}
		}
		if !math.IsNaN(sum) {
			ratios = append(ratios, stats.Observation{Block: block, Value: math.Exp(sum / float64(len(cases)))})
			ones = append(ones, stats.Observation{Block: block, Value: 1})
		}
	}
	if len(ratios) == 0 {
		return stats.Effect{}, false
	}
	e, err := stats.Compare(ratios, ones, true)
	return e, err == nil
}

// scopes groups the cases that share a suite and a primary metric, in their order.
func (s study) scopes() (all [][]result.Case) {
	for _, c := range s.run.Cases {
		i := slices.IndexFunc(all, func(g []result.Case) bool { return g[0].Suite == c.Suite && g[0].Primary == c.Primary })
		if i < 0 {
			all = append(all, nil)
			i = len(all) - 1
		}
		all[i] = append(all[i], c)
	}
	return all
}

func primary(c result.Case) result.Metric {
	i := slices.IndexFunc(c.Metrics, func(m result.Metric) bool { return m.Name == c.Primary })
	if i < 0 {
		return result.Metric{Name: c.Primary, Order: result.LIB}
	}
	return c.Metrics[i]
}
