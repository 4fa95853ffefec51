package provenance

import (
	"fmt"
	"maps"
	"slices"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/naming"
)

// rateWarnings name the configurations in which a load did not reach its rate in some execution,
// one warning for each case.
func rateWarnings(run result.Run, samples []result.Sample) (all []string) {
	least := map[[3]string]float64{}
	for _, s := range samples {
		key := [3]string{s.Suite, s.Case, s.Configuration}
		if had, ok := least[key]; s.Metric == naming.Reached && s.Value < naming.FullRate && (!ok || s.Value < had) {
			least[key] = s.Value
		}
	}
	for _, c := range run.Cases {
		var slow []string
		for _, conf := range run.Configurations {
			if v, ok := least[[3]string{c.Suite, c.Name, conf.Name}]; ok {
				slow = append(slow, document.Percent(v/100)+" with "+conf.Name)
			}
		}
		if len(slow) > 0 {
			all = append(all, fmt.Sprintf("%s: the load did not always reach its rate, so latencies grow with its duration. The lowest values are %s.", c.Title, document.List(slow)))
		}
	}
	return all
}

// LoadWarnings name what bounded the load besides the domains, once for each cause.
func LoadWarnings(samples []result.Sample) []string {
	limits, failed := map[string]bool{}, map[string]int{}
	dropped := 0.0
	for _, s := range samples {
		if s.Metric != collocation.Aggregate && s.Metric != collocation.Conntrack {
			continue
		}
		if s.Metric == collocation.Conntrack {
			dropped += s.Value
			continue
		}
		if s.Tags[collocation.LimitTag] != "" {
			limits[s.Configuration+" "+s.Case] = true
		}
		if s.Tags[collocation.FailuresTag] != "" {
			failed[s.Configuration+" "+s.Case]++
		}
	}
	var warnings []string
	if len(limits) > 0 {
		warnings = append(warnings, "The load generator was at its limit, or late, in "+document.List(slices.Sorted(maps.Keys(limits)))+": the domains may answer more.")
	}
	if len(failed) > 0 {
		warnings = append(warnings, "Requests had no answer in time in "+document.List(slices.Sorted(maps.Keys(failed)))+"; the tags of the samples name the causes.")
	}
	if dropped > 0 {
		warnings = append(warnings, fmt.Sprintf("The tracking of connections dropped %.0f packets: it had no room. Raise nf_conntrack_max.", dropped))
	}
	return warnings
}
