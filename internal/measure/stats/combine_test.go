package stats

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

func effects(logs, stdErrs []float64) (all []Effect) {
	for i := range logs {
		all = append(all, Effect{Log: logs[i], StdErr: stdErrs[i], DF: 14, N: 15, Paired: true})
	}
	return all
}

// The values are those of statsmodels 0.14 (combine_effects, method_re="iterated") and of scipy's t distribution.
func TestCombineGolden(t *testing.T) {
	for name, tt := range map[string]struct {
		logs, stdErrs              []float64
		tau2, log, stdErr, q, i2   float64
		low, high, nextLow, nextUp float64
		p                          float64
	}{
		"ten quickstarts": {
			[]float64{0.2469, 0.2390, 0.2070, 0.3001, 0.4055, 0.3221, 0.4055, 0.2852, 0.3988, 0.2927},
			[]float64{0.0305, 0.0330, 0.0305, 0.0590, 0.0905, 0.0640, 0.0510, 0.0860, 0.0495, 0.0585},
			0.0028231342, 0.2966051051, 0.0234766008, 22.71358034, 0.60376128,
			1.27570293, 1.41866014, 1.11584502, 1.62189987, 4.9600916e-07,
		},
		"no heterogeneity": {
			[]float64{0.10, 0.11, 0.09, 0.10}, []float64{0.05, 0.04, 0.06, 0.05},
			0, 0.1020391517, 0.0242337718, 0.08319739, 0,
			1.02522948, 1.19621431, 0.92661781, 1.32351674, 0.024467893,
		},
		"two": {
			[]float64{0.104, 0.0198}, []float64{0.031, 0.073},
			0.0003998199, 0.0878382430, 0.0331604814, 1.12712878, 0.11278993,
			0.71640787, 1.66392972, 0.45928194, 2.59546966, 0.22980448,
		},
		"strong": {
			[]float64{-0.5, 0.4, 0.1}, []float64{0.02, 0.03, 0.025},
			0.2094042561, -0.0003531163, 0.2646039328, 738.80597015, 0.99729293,
			0.32018640, 3.12097583, 0.10255546, 9.74393812, 0.99905636,
		},
	} {
		c, err := Combine(effects(tt.logs, tt.stdErrs))
		if err != nil {
			t.Fatal(err)
		}
		i, next := c.Interval(0.95), c.NextRun(0.95)
		for what, pair := range map[string][2]float64{
			"tau²": {c.Tau * c.Tau, tt.tau2}, "log": {c.Log, tt.log}, "standard error": {c.StdErr, tt.stdErr}, "Q": {c.Q, tt.q}, "I²": {c.I2(), tt.i2},
			"low": {i.Low, tt.low}, "high": {i.High, tt.high}, "next low": {next.Low, tt.nextLow}, "next high": {next.High, tt.nextUp}, "p": {c.P(), tt.p},
		} {
			if math.Abs(pair[0]-pair[1]) > 1e-6*math.Max(1e-3, math.Abs(pair[1])) {
				t.Errorf("%s: %s is %.10g, want %.10g", name, what, pair[0], pair[1])
			}
		}
	}
}

func TestCombineNeedsTwoRuns(t *testing.T) {
	few := Effect{Log: 0.1, StdErr: 0.1, DF: 3, N: 4}
	for _, of := range [][]Effect{nil, effects([]float64{0.1}, []float64{0.1}), {few, few}, append(effects([]float64{0.1}, []float64{0.1}), few)} {
		if c, err := Combine(of); !errors.Is(err, ErrTooFew) {
			t.Errorf("%d effects: %+v, %v", len(of), c, err)
		}
	}
}

// With the scatter of ten published quickstarts, 0.063 between runs and 0.047 within, the interval of one run covers the
// mean of the runs in about 70 %, and those of combined runs cover what they say.
func TestCombinedIntervalsCover(t *testing.T) {
	const draws, runs, between, within, truth = 2000, 9, 0.063, 0.047, 0.3
	r := rand.New(rand.NewPCG(20261128, 0))
	var one, mean, next int
	for range draws {
		var logs, stdErrs []float64
		for range runs + 1 {
			logs = append(logs, truth+between*r.NormFloat64()+within*r.NormFloat64())
			stdErrs = append(stdErrs, within*math.Sqrt(chi2(r, 14)/14))
		}
		if effects(logs, stdErrs)[0].Interval(0.95).Contains(math.Exp(truth)) {
			one++
		}
		c, err := Combine(effects(logs[:runs], stdErrs[:runs]))
		if err != nil {
			t.Fatal(err)
		}
		if c.Interval(0.95).Contains(math.Exp(truth)) {
			mean++
		}
		if c.NextRun(0.95).Contains(math.Exp(logs[runs])) {
			next++
		}
	}
	t.Logf("of %d: one run %d, mean of runs %d, next run %d", draws, one, mean, next)
	if one > draws*85/100 || mean < draws*93/100 || next < draws*93/100 || mean > draws*98/100 || next > draws*99/100 {
		t.Errorf("of %d: one run covers the mean in %d, nine runs in %d, and the next run in %d", draws, one, mean, next)
	}
}

// chi2 draws from the chi-squared distribution.
func chi2(r *rand.Rand, df int) (sum float64) {
	for range df {
		z := r.NormFloat64()
		sum += z * z
	}
	return sum
}
