package score

import (
	"math"

	moremath "github.com/aclements/go-moremath/stats"
)

// Confidence is the level of the intervals of geometric means.
const Confidence = 0.95

// GeoMean is the geometric mean, over cases, of the ratio of a configuration to
// the baseline. Ratios of cases where lower is better are inverted, so above 1
// is better than the baseline in any case.
//
// Low and High are Student's t interval of the mean of the logarithms, which
// takes the cases for a sample of all that might have been chosen: it says how
// much the ratio differs from case to case, not how well each was measured.
// Variants of one benchmark are no independent cases and make it too narrow. It
// needs two cases; where there is none both are 0, as for the baseline itself.
type GeoMean struct {
	Ratio     float64
	Low, High float64
	Cases     int // that count and that both have
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

// logRatios returns the logarithms of the ratios of a configuration to the
// baseline in the cases that count and that both have.
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
	n := len(logs)
	mean := moremath.Mean(logs)
	g := GeoMean{Ratio: math.Exp(mean), Cases: n}
	if n < 2 || baseline {
		return g
	}
	quantile := moremath.InvCDF(moremath.TDist{V: min(float64(n-1), maxDF)})((1 + Confidence) / 2)
	half := quantile * moremath.StdDev(logs) / math.Sqrt(float64(n))
	if low, high := math.Exp(mean-half), math.Exp(mean+half); low > 0 && !math.IsInf(high, 1) {
		g.Low, g.High = low, high
	}
	return g
}

// maxDF caps the degrees of freedom: the normal distribution is reached by then,
// and the incomplete beta function does not converge far beyond.
const maxDF = 1e4
