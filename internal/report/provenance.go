package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"unnest/internal/measure/result"
)

// titleOf is the title of a run.
func titleOf(run result.Run) string {
	return cmp.Or(run.Title, run.Experiment, run.ID, "untitled run")
}

// setting is printed with every figure: how many repetitions, on which accelerator.
func setting(run result.Run) string {
	return plural(run.Repetitions, "repetition") + ", " + accelerator(run)
}

// settingOf is setting where cases had fewer blocks, or went on until they were known.
func settingOf(run result.Run, samples []result.Sample) string {
	blocks := map[string]int{}
	for _, s := range samples {
		blocks[s.Case] = max(blocks[s.Case], s.Block+1)
	}
	fewest, most := run.Repetitions, 0
	for _, n := range blocks {
		fewest, most = min(fewest, n), max(most, n)
	}
	if fewest < most {
		return fmt.Sprintf("%d to %d repetitions, %s", fewest, most, accelerator(run))
	}
	run.Repetitions = fewest
	return setting(run)
}

func accelerator(run result.Run) string {
	switch run.Accelerator {
	case "":
		return "accelerator unknown"
	case "none":
		return "no guest"
	case result.ClusterNodes:
		return "nodes of a cluster"
	}
	return run.Accelerator
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
		{map[bool]string{true: "node boots", false: "guest boots"}[run.Accelerator == result.ClusterNodes], fmt.Sprint(len(boots))},
		{"order", map[bool]string{true: "random, interleaved in blocks", false: "separate blocks of time"}[run.Interleaved]},
		{"seed", fmt.Sprint(run.Seed)},
		{"noise", observe(run, samples).fact()},
		{"accelerator", joined(run.Accelerator, run.AccelReason)},
		{"baselines", strings.Join(run.Baselines, ", ")},
	}
	fs = append(fs, machineFacts("host", run.Host)...)
	machine := "guest "
	if run.Accelerator == result.ClusterNodes {
		machine = "node "
	}
	for _, g := range run.Guests {
		fs = append(fs, machineFacts(machine+g.Name, g)...)
	}
	for _, c := range run.Configurations {
		fs = append(fs, fact{"configuration " + c.Name, joined(c.Stack, configurationText(c))})
	}
	for _, text := range run.Conditions {
		fs = append(fs, fact{"condition", text})
	}
	fs = append(fs, fact{"guest image", run.Image})
	for _, tool := range slices.Sorted(maps.Keys(run.Tools)) {
		fs = append(fs, fact{tool, shortenDigest(run.Tools[tool])})
	}
	return append(fs, fact{"unnest", joined(run.Version, run.Revision)})
}

// shortenDigest keeps twelve digits of a digest, as container engines do. The run's file has all.
func shortenDigest(version string) string {
	const algorithm, digits = "sha256:", 12
	if strings.HasPrefix(version, algorithm) && len(version) > len(algorithm)+digits {
		return version[:len(algorithm)+digits]
	}
	return version
}

func configurationText(c result.Configuration) string {
	return join(optionsText(c.Options), c.Description)
}

func machineFacts(name string, m result.Machine) []fact {
	fs := []fact{
		{name + " kernel", m.Kernel},
		{name + " CPU", joined(m.CPU, m.Arch)},
		{name + " start", m.Start},
		{name + " halt_poll_ns", m.HaltPoll},
		{name + " randomize_va_space", m.RandomAddresses},
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
