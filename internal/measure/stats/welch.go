package stats

import (
	"fmt"
	"math"

	"github.com/aclements/go-moremath/mathx"
)

// PMeaning is the meaning of Welch's P. It is not the probability that the means are
// equal.
const PMeaning = "the probability, if the two had the same mean, of a difference at least as large as the observed one"

// Test is the result of a two-sided test. P is the probability, if the two sides did not
// differ (in mean for Welch's test, in distribution for Mann-Whitney's), of a statistic at
// least as far from its expectation as the observed one. If the test is undefined, P and
// Statistic are NaN.
type Test struct {
	Statistic float64
	DF        float64 // degrees of freedom; 0 when the test has none
	P         float64
	Method    string
}

// Defined reports whether the test is defined.
func (t Test) Defined() bool { return !math.IsNaN(t.P) }

// maxDF limits the degrees of freedom of the t distribution. There it equals the normal
// distribution to four digits, and far beyond the incomplete beta function does not
// converge.
const maxDF = 1e4

const methodWelch = "Welch's t"

// Welch tests whether two means differ, without assuming equal variances (Welch 1947). A
// positive statistic means that a is larger. It fails with ErrTooFew unless both have two
// samples, and with ErrNoVariance when both standard errors are 0.
func Welch(a, b Moments) (Test, error) {
	t, df, err := welch(a, b)
	if err != nil {
		return undefined(methodWelch), err
	}
	return Test{t, df, tTail(t, df), methodWelch}, nil
}

// WelchTruncated is Welch with the degrees of freedom truncated to an integer, as for
// printed tables of the t distribution. It gives the p-values of FitzGerald 2014 (A
// Comparative Analysis of Nested Virtualization in x86_64 and S390x Hypervisors, §3.1),
// with n = 6.
func WelchTruncated(a, b Moments) (Test, error) {
	const method = methodWelch + ", integer df"
	t, df, err := welch(a, b)
	if err != nil {
		return undefined(method), err
	}
	df = math.Floor(df + 1e-9) // a df of 10 can be computed as 9.999…
	return Test{t, df, tTail(t, df), method}, nil
}

// welchSamples is Welch on the moments of xs and ys.
func welchSamples(xs, ys []float64) (Test, error) {
	a, err := Summarize(xs)
	if err != nil {
		return undefined(methodWelch), fmt.Errorf("first sample: %w", err)
	}
	b, err := Summarize(ys)
	if err != nil {
		return undefined(methodWelch), fmt.Errorf("second sample: %w", err)
	}
	return Welch(a.Moments, b.Moments)
}

func undefined(method string) Test {
	return Test{Statistic: math.NaN(), P: math.NaN(), Method: method}
}

// welch returns the statistic and the degrees of freedom of Welch and
// Satterthwaite.
func welch(a, b Moments) (t, df float64, err error) {
	for _, m := range []Moments{a, b} {
		if m.N < 2 {
			return 0, 0, fmt.Errorf("%w: %d given, at least 2 needed on each side", ErrTooFew, m.N)
		}
		if !finite(m.Mean) || !finite(m.StdErr) || m.StdErr < 0 {
			return 0, 0, fmt.Errorf("mean %v with standard error %v: %w", m.Mean, m.StdErr, ErrNotFinite)
		}
	}
	se := math.Hypot(a.StdErr, b.StdErr)
	if se == 0 {
		return 0, 0, fmt.Errorf("means %v and %v: %w", a.Mean, b.Mean, ErrNoVariance)
	}
	wa, wb := math.Pow(a.StdErr/se, 2), math.Pow(b.StdErr/se, 2)
	df = 1 / (wa*wa/float64(a.N-1) + wb*wb/float64(b.N-1))
	return (a.Mean - b.Mean) / se, df, nil
}

// tTail returns P(|T| ≥ |t|), without the cancellation of 1-CDF in the tails.
func tTail(t, df float64) float64 {
	df = min(df, maxDF)
	return mathx.BetaInc(df/(df+t*t), df/2, 0.5)
}
