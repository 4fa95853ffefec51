package stats

import (
	"fmt"
	"math"
)

// PMeaning is the meaning of Welch's P. It is not the probability that the means are
// equal.
const PMeaning = "the probability, if the two had the same mean, of a difference at least as large as the observed one"

// Test is the result of Welch's two-sided test. P is the probability, if the means did not
// differ, of a statistic at least as far from 0 as the observed one. If the test is
// undefined, P and Statistic are NaN.
type Test struct {
	Statistic float64
	DF        float64 // degrees of freedom
	P         float64
	Method    string
}

// Defined reports whether the test is defined.
func (t Test) Defined() bool { return !math.IsNaN(t.P) }

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
	return (a.Mean - b.Mean) / se, welchDF(a, b), nil
}

// welchDF returns the degrees of freedom of Welch and Satterthwaite. Both sides have at
// least two values.
func welchDF(a, b Moments) float64 {
	se := math.Hypot(a.StdErr, b.StdErr)
	wa, wb := math.Pow(a.StdErr/se, 2), math.Pow(b.StdErr/se, 2)
	return 1 / (wa*wa/float64(a.N-1) + wb*wb/float64(b.N-1))
}

// MinimumDetectable returns the difference of the means that Welch's test at 5 % finds with
// a probability of 80 % in samples with the standard errors of a and b. It fails as Welch
// does.
func MinimumDetectable(a, b Moments) (float64, error) {
	_, df, err := welch(a, b)
	if err != nil {
		return math.NaN(), err
	}
	return noncentrality(DefaultAlpha, DefaultPower, df) * math.Hypot(a.StdErr, b.StdErr), nil
}
