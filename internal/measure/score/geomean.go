package score

import (
	"math"

	"unnest.io/unnest/internal/measure/stats"
)

// Confidence is the level of the intervals of geometric means.
const Confidence = 0.95

// GeoMean is the geometric mean, over cases, of the ratio of a configuration to the
// baseline. Ratios of cases where lower is better are inverted, so above 1 is always
// better than the baseline.
//
// Low and High are Student's t interval of the mean of the logarithms. It shows how much
// the ratio varies between cases, not how well each case was measured. It treats the
// cases as an independent sample, so variants of one benchmark make it too narrow. It
// needs stats.MinRepetitions cases, because an interval of two may begin at a millionth.
// Without an interval, as for the baseline, both are 0.
type GeoMean struct {
	Ratio     float64
	Low, High float64
	Cases     int // number of cases that count and that both have
}

// HasInterval reports whether there is an interval.
func (g GeoMean) HasInterval() bool { return g.High > 0 }

// compare computes GeoMeans.
func (s *Suite) compare() {
	if s.Baseline == "" {
		return
	}
	for _, name := range s.Configurations {
		if logs := s.logRatios(name); len(logs) > 0 {
			s.GeoMeans[name] = geoMean(logs, name == s.Baseline)
		}
	}
}

// logRatios returns the logarithms of the ratios of a configuration to the baseline, in
// the cases that count and that both have.
func (s *Suite) logRatios(configuration string) []float64 {
	var logs []float64
	for _, c := range s.Cases {
		cell, has := c.Cells[configuration]
		base, hasBase := c.Cells[s.Baseline]
		if c.Counted && has && hasBase {
			logs = append(logs, sign(c.Order)*(math.Log(cell.Mean)-math.Log(base.Mean)))
		}
	}
	return logs
}

func geoMean(logs []float64, baseline bool) GeoMean {
	sum := 0.0
	for _, l := range logs {
		sum += l
	}
	g := GeoMean{Ratio: math.Exp(sum / float64(len(logs))), Cases: len(logs)}
	if baseline || len(logs) < stats.MinRepetitions {
		return g
	}
	i, err := stats.MeanInterval(logs, Confidence)
	if err != nil {
		return g
	}
	if low, high := math.Exp(i.Low), math.Exp(i.High); low > 0 && !math.IsInf(high, 1) {
		g.Low, g.High = low, high
	}
	return g
}
