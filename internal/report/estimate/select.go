package estimate

import (
	"slices"

	"unnest.io/unnest/internal/measure/result"
)

// Measured reports whether any of estimates has samples.
func Measured(estimates []Estimate) bool {
	return slices.ContainsFunc(estimates, func(e Estimate) bool { return e.N > 0 })
}

// Telling reports whether any of estimates has a value other than 0.
func Telling(estimates []Estimate) bool {
	return slices.ContainsFunc(estimates, func(e Estimate) bool { return e.N > 0 && (e.Min != 0 || e.Max != 0) })
}

// Find returns the estimate of a case in a configuration, one without samples if there
// is none.
func Find(estimates []Estimate, name, configuration string) Estimate {
	for _, e := range estimates {
		if e.Case == name && e.Configuration == configuration {
			return e
		}
	}
	e := Describe(nil)
	e.Case, e.Configuration = name, configuration
	return e
}

// Labels are the labels of the cases of estimates.
func Labels(estimates []Estimate) []string {
	return EachCase(estimates, func(e Estimate) string { return e.Label })
}

// EachCase returns the name of each case of estimates once, in their order.
func EachCase(estimates []Estimate, name func(Estimate) string) []string {
	var names []string
	for i, e := range estimates {
		if i == 0 || e.Case != estimates[i-1].Case {
			names = append(names, name(e))
		}
	}
	return names
}

// Reference returns the first estimate of the case that represents the group in the
// headlines: 1280 B as in Bacou et al. 2019, §5.2.1, or 1024 B with Hostlo (§5.3.2),
// else the last.
func Reference(estimates []Estimate) Estimate {
	paperSize := 1280
	if slices.ContainsFunc(estimates, func(e Estimate) bool { return e.Configuration == "Hostlo" }) {
		paperSize = 1024
	}
	i := slices.IndexFunc(estimates, func(e Estimate) bool { return e.Size == paperSize })
	if i < 0 {
		last := estimates[len(estimates)-1].Case
		i = slices.IndexFunc(estimates, func(e Estimate) bool { return e.Case == last })
	}
	return estimates[i]
}

// Primaries are the estimates of the primary metrics.
func Primaries(estimates []Estimate) []Estimate {
	return slices.DeleteFunc(slices.Clone(estimates), func(e Estimate) bool { return !e.Primary })
}

// At are the estimates of one case.
func At(estimates []Estimate, name string) []Estimate {
	return slices.DeleteFunc(slices.Clone(estimates), func(e Estimate) bool { return e.Case != name })
}

// MetricNamed returns the metric of a name, nil if there is none.
func MetricNamed(metrics []result.Metric, name string) *result.Metric {
	if i := slices.IndexFunc(metrics, func(m result.Metric) bool { return m.Name == name }); i >= 0 {
		return &metrics[i]
	}
	return nil
}
