package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stats"
)

// titleOf is the title of a run.
func titleOf(run result.Run) string {
	return cmp.Or(run.Title, run.Experiment, run.ID, "untitled run")
}

// setting is printed with every figure: how many repetitions, on which accelerator.
func setting(run result.Run) string {
	return plural(run.Repetitions, "repetition") + ", " + accelerator(run)
}

func accelerator(run result.Run) string {
	switch run.Accelerator {
	case "":
		return "accelerator unknown"
	case "none":
		return "no guest"
	}
	return run.Accelerator
}

// runWarnings are the reasons to trust a whole run less.
func runWarnings(run result.Run, samples []result.Sample) []string {
	var warnings []string
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	done := map[result.Execution]bool{}
	for _, s := range samples {
		done[s.Execution()] = true
	}
	if run.State != result.Complete {
		why := ""
		if run.Error != "" {
			why = " (" + run.Error + ")"
		}
		warn("The run is %s, not complete%s: %d of %s have samples.", run.State, why, len(done), plural(run.Planned, "planned execution"))
	}
	if !run.Interleaved {
		warn("The configurations were not interleaved: a change of the machine between their measurements looks like a difference between them.")
	}
	if run.Repetitions < stats.MinRepetitions {
		warn("Only %s planned: a verdict takes at least %d.", plural(run.Repetitions, "repetition"), stats.MinRepetitions)
	}
	if len(run.Failures) > 0 {
		warn("%s failed after retries: see the failures.", plural(len(run.Failures), "execution"))
	}
	if run.Accelerator == "tcg" {
		warn("Guests ran under TCG, which emulates the processor: times and ratios differ under KVM.")
	}
	if all := overcommitted(run); len(all) > 0 {
		warn("The host has %d processors, fewer than the vCPUs of a configuration: %s. The vCPUs share them, so figures per vCPU are too low.",
			run.Host.VCPUs, strings.Join(all, ", "))
	}
	for _, b := range run.Baselines {
		if !hasConfiguration(run, b) {
			warn("The baseline %s is not a configuration of this run: nothing is compared with it.", b)
		}
	}
	return warnings
}

// overcommitted names the configurations that have more vCPUs than the host of the run
// has processors.
func overcommitted(run result.Run) (all []string) {
	for _, c := range run.Configurations {
		if _, _, ours := levelOf(c.Stack); ours && run.Host.VCPUs > 0 && vcpus(c) > run.Host.VCPUs {
			all = append(all, fmt.Sprintf("%s has %d", c.Name, vcpus(c)))
		}
	}
	return all
}

// failureTable lists the executions that failed.
func failureTable(run result.Run) Table {
	t := Table{ID: "failures", Title: "Failures", Columns: []Column{
		{Name: "case", Header: true}, {Name: "configuration", Header: true},
		{Name: "block", Numeric: true}, {Name: "attempts", Numeric: true}, {Name: "error"}}}
	for _, f := range run.Failures {
		t.Rows = append(t.Rows, []Cell{{Text: f.Case}, {Text: f.Configuration, Series: f.Configuration},
			{Text: fmt.Sprint(f.Block)}, {Text: fmt.Sprint(f.Attempts)}, {Text: f.Error}})
	}
	return t
}

// fact is one line of provenance.
type fact struct{ name, value string }

// provenanceTable lists the facts that have a value.
func provenanceTable(facts []fact) Table {
	t := Table{ID: "provenance", Title: "Provenance", Columns: []Column{{Name: "fact", Header: true}, {Name: "value"}}}
	for _, f := range facts {
		if f.value != "" {
			t.Rows = append(t.Rows, []Cell{{Text: f.name}, {Text: f.value}})
		}
	}
	return t
}

// facts are the provenance of a run; a value may be empty.
func facts(dir string, run result.Run, samples []result.Sample) []fact {
	boots := map[string]bool{}
	for _, s := range samples {
		boots[s.Boot] = true
	}
	fs := []fact{
		{"run", run.ID},
		{"run directory", dir},
		{"experiment", run.Experiment},
		{"state", string(run.State)},
		{"started", timeOf(run.Started)},
		{"ended", timeOf(run.Ended)},
		{"repetitions", fmt.Sprint(run.Repetitions)},
		{"executions planned", fmt.Sprint(run.Planned)},
		{"samples", fmt.Sprint(len(samples))},
		{"guest boots", fmt.Sprint(len(boots))},
		{"order", map[bool]string{true: "random, interleaved in blocks", false: "separate blocks of time"}[run.Interleaved]},
		{"seed", fmt.Sprint(run.Seed)},
		{"accelerator", joined(run.Accelerator, run.AccelReason)},
		{"baselines", strings.Join(run.Baselines, ", ")},
	}
	fs = append(fs, machineFacts("host", run.Host)...)
	for _, g := range run.Guests {
		fs = append(fs, machineFacts("guest "+g.Name, g)...)
	}
	for _, c := range run.Configurations {
		fs = append(fs, fact{"configuration " + c.Name, joined(c.Stack, configurationText(c))})
	}
	fs = append(fs, fact{"guest image", run.Image})
	for _, tool := range slices.Sorted(maps.Keys(run.Tools)) {
		fs = append(fs, fact{tool, run.Tools[tool]})
	}
	return append(fs, fact{"unnest", joined(run.Version, run.Revision)})
}

func configurationText(c result.Configuration) string {
	return join(optionsText(c.Options), c.Description)
}

func machineFacts(name string, m result.Machine) []fact {
	fs := []fact{
		{name + " kernel", m.Kernel},
		{name + " CPU", joined(m.CPU, m.Arch)},
	}
	if m.VCPUs > 0 {
		fs = append(fs, fact{name + " size", fmt.Sprintf("%s, %s of memory", plural(m.VCPUs, "CPU"), mebibytes(m.Memory))})
	}
	return fs
}

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }

func timeOf(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// joined puts a remark in brackets after a value.
func joined(value, remark string) string {
	remark = strings.TrimSpace(remark)
	switch {
	case remark == "":
		return value
	case value == "":
		return remark
	}
	return value + " (" + remark + ")"
}
