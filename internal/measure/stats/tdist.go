package stats

import (
	"math"

	"github.com/aclements/go-moremath/mathx"
)

// maxDF limits the degrees of freedom of the t distribution. There it equals the normal
// distribution to four digits, and far beyond the incomplete beta function does not
// converge.
const maxDF = 1e4

// tTail returns P(|T| ≥ |t|), without the cancellation of 1-CDF in the tails.
func tTail(t, df float64) float64 {
	df = min(df, maxDF)
	return mathx.BetaInc(df/(df+t*t), df/2, 0.5)
}

// tCritical returns the t ≥ 0 with P(|T| ≥ t) = alpha, by Newton's method with bisection
// as the fallback.
func tCritical(alpha, df float64) float64 {
	low, high := 0.0, 1.0
	for tTail(high, df) > alpha {
		low, high = high, 2*high
	}
	for t := high; ; {
		excess := tTail(t, df) - alpha
		if excess > 0 {
			low = t
		} else {
			high = t
		}
		next := t + excess/(2*tDensity(t, df))
		if !(low < next && next < high) {
			next = low + (high-low)/2
		}
		if math.Abs(next-t) <= 1e-15*t || next <= low || high <= next {
			return next
		}
		t = next
	}
}

func tDensity(t, df float64) float64 {
	df = min(df, maxDF)
	above, _ := math.Lgamma((df + 1) / 2)
	below, _ := math.Lgamma(df / 2)
	return math.Exp(above-below-(df+1)/2*math.Log1p(t*t/df)) / math.Sqrt(df*math.Pi)
}

// power returns the probability that a two-sided t test at level alpha rejects when the
// noncentrality is ncp: the true difference in standard errors. It integrates the normal
// distribution over that of the estimated standard deviation (Johnson, Kotz and
// Balakrishnan 1995, §31).
func power(ncp, alpha, df float64) float64 {
	df = min(df, maxDF)
	critical := tCritical(alpha, df)
	logGamma, _ := math.Lgamma(df / 2)
	logScale := math.Ln2 + df/2*math.Log(df/2) - logGamma
	rejects := func(s float64) float64 { // density of the relative deviation s, times the probability to reject
		if s == 0 && df > 1 {
			return 0
		}
		log := logScale - df*s*s/2
		if df > 1 {
			log += (df - 1) * math.Log(s)
		}
		return math.Exp(log) * (normalCDF(ncp-critical*s) + normalCDF(-ncp-critical*s))
	}
	const tail = 9 // standard deviations, about
	spread := tail / math.Sqrt(df)
	return simpson(rejects, max(0, 1-spread), 1+spread)
}

func simpson(f func(float64) float64, low, high float64) float64 {
	const panels = 300 // even
	step := (high - low) / panels
	sum := f(low) + f(high)
	for i := 1; i < panels; i++ {
		sum += f(low+float64(i)*step) * float64(2+2*(i%2))
	}
	return sum * step / 3
}

func normalCDF(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }

// noncentrality returns the noncentrality at which a t test at level alpha has the power
// want, by the secant method.
func noncentrality(alpha, want, df float64) float64 {
	x0 := tCritical(alpha, df) + tCritical(2*(1-want), df) // close to the solution
	x1 := x0 + 0.1
	y0, y1 := power(x0, alpha, df)-want, power(x1, alpha, df)-want
	for range 30 {
		if math.Abs(y1) < 1e-12 || y0 == y1 {
			break
		}
		x0, x1, y0 = x1, max(0, x1-y1*(x1-x0)/(y1-y0)), y1
		y1 = power(x1, alpha, df) - want
	}
	return x1
}
