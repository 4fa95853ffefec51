package provenance

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/naming"
)

// Warnings are the reasons to trust a whole run less.
func Warnings(run result.Run, samples []result.Sample) []string {
	var warnings []string
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	if text := Observe(run, samples).warning(); text != "" {
		warn("%s", text)
	}
	done := map[result.Execution]bool{}
	for _, s := range samples {
		done[s.Execution()] = true
	}
	if run.State != result.Complete {
		why := ""
		if run.Error != "" {
			why = " (" + run.Error + ")"
		}
		warn("The run is %s, not complete%s: %d of %s have samples.", run.State, why, len(done), document.Plural(run.Planned, "planned execution"))
	}
	if lost := run.Planned - len(done) - len(run.Failures); run.State == result.Complete && lost > 0 {
		warn("The journal lacks %d of %s: a part of it is lost, so the figures are of the others only.", lost, document.Plural(run.Planned, "planned execution"))
	}
	if !run.Interleaved {
		warn("The configurations were not interleaved: a change of the machine between their measurements looks like a difference between them.")
	}
	if run.Repetitions < stats.MinRepetitions {
		warn("Only %s planned: a verdict takes at least %d.", document.Plural(run.Repetitions, "repetition"), stats.MinRepetitions)
	}
	if len(run.Failures) > 0 {
		warn("%s failed after retries: see the failures.", document.Plural(len(run.Failures), "execution"))
	}
	if run.Accelerator == "tcg" && slices.ContainsFunc(run.Configurations, inGuest) {
		warn("Guests ran under TCG, which emulates the processor: times and ratios differ under KVM.")
	}
	if all := overcommitted(run); len(all) > 0 {
		warn("The host has %d processors, fewer than the vCPUs of a configuration: %s. The vCPUs share them, so figures per vCPU are too low.",
			run.Host.VCPUs, strings.Join(all, ", "))
	}
	warnings = append(warnings, rateWarnings(run, samples)...)
	for _, b := range run.Baselines {
		if !run.Has(b) {
			warn("The baseline %s is not a configuration of this run: nothing is compared with it.", b)
		}
	}
	return warnings
}

// overcommitted names the configurations that have more vCPUs than the host of the run
// has processors.
func overcommitted(run result.Run) (all []string) {
	for _, c := range run.Configurations {
		s, err := stack.Parse(c.Stack)
		if ours := err == nil && !s.Remote(); ours && run.Host.VCPUs > 0 && c.VCPUs() > run.Host.VCPUs {
			all = append(all, fmt.Sprintf("%s has %d", c.Name, c.VCPUs()))
		}
	}
	return all
}

// inGuest tells whether a configuration has a virtual machine.
func inGuest(c result.Configuration) bool { return !strings.HasPrefix(c.Stack, string(stack.Metal)) }

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
		warnings = append(warnings, "The load generator was at its limit or late, or the steps ended too early, in "+document.List(slices.Sorted(maps.Keys(limits)))+": the domains may answer more.")
	}
	if len(failed) > 0 {
		warnings = append(warnings, "Requests had no answer in time in "+document.List(slices.Sorted(maps.Keys(failed)))+"; the tags of the samples name the causes.")
	}
	if dropped > 0 {
		warnings = append(warnings, fmt.Sprintf("The tracking of connections dropped %.0f packets: it had no room. Raise nf_conntrack_max.", dropped))
	}
	return warnings
}
