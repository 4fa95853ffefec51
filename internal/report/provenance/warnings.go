package provenance

import (
	"fmt"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
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
