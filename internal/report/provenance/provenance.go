// Package provenance says where the figures of a run come from, and why to trust them less: its
// machines and settings, failures, and what else the machines did.
package provenance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/document"
)

// PlannedSetting is printed with every figure: how many repetitions, on which accelerator.
func PlannedSetting(run result.Run) string {
	return document.Plural(run.Repetitions, "repetition") + ", " + accelerator(run)
}

// Setting is setting where cases had fewer blocks, or went on until they were known.
func Setting(run result.Run, samples []result.Sample) string {
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
	return PlannedSetting(run)
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

// FailureTable lists the executions that failed.
func FailureTable(run result.Run) document.Table {
	t := document.Table{ID: "failures", Title: "Failures", Columns: []document.Column{
		{Name: "case", Header: true}, {Name: "configuration", Header: true},
		{Name: "block", Numeric: true}, {Name: "attempts", Numeric: true}, {Name: "error"}}}
	for _, f := range run.Failures {
		t.Rows = append(t.Rows, []document.Cell{{Text: f.Case}, {Text: f.Configuration, Series: f.Configuration},
			{Text: fmt.Sprint(f.Block)}, {Text: fmt.Sprint(f.Attempts)}, {Text: f.Error}})
	}
	return t
}

// Facts are the provenance of a run; a value may be empty.
func Facts(dir string, run result.Run, samples []result.Sample) []document.Fact {
	boots := map[string]bool{}
	for _, s := range samples {
		boots[s.Boot] = true
	}
	fs := []document.Fact{
		{Name: "run", Value: run.ID},
		{Name: "run directory", Value: dir},
		{Name: "experiment", Value: run.Experiment},
		{Name: "state", Value: string(run.State)},
		{Name: "started", Value: timeOf(run.Started)},
		{Name: "ended", Value: timeOf(run.Ended)},
		{Name: "repetitions", Value: fmt.Sprint(run.Repetitions)},
		{Name: "executions planned", Value: fmt.Sprint(run.Planned)},
		{Name: "samples", Value: fmt.Sprint(len(samples))},
		{Name: map[bool]string{true: "node boots", false: "guest boots"}[run.Accelerator == result.ClusterNodes], Value: fmt.Sprint(len(boots))},
		{Name: "order", Value: map[bool]string{true: "random, interleaved in blocks", false: "separate blocks of time"}[run.Interleaved]},
		{Name: "seed", Value: fmt.Sprint(run.Seed)},
		{Name: "noise", Value: Observe(run, samples).fact()},
		{Name: "accelerator", Value: joined(run.Accelerator, run.AccelReason)},
		{Name: "baselines", Value: strings.Join(run.Baselines, ", ")},
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
		fs = append(fs, document.Fact{Name: "configuration " + c.Name, Value: joined(c.Stack, document.Join(document.Settings(c.Options), c.Description))})
	}
	for _, text := range run.Conditions {
		fs = append(fs, document.Fact{Name: "condition", Value: text})
	}
	fs = append(fs, document.Fact{Name: "guest image", Value: run.Image})
	for _, tool := range slices.Sorted(maps.Keys(run.Tools)) {
		fs = append(fs, document.Fact{Name: tool, Value: shortenDigest(run.Tools[tool])})
	}
	return append(fs, document.Fact{Name: "unnest", Value: joined(run.Version, run.Revision)})
}

// shortenDigest keeps twelve digits of a digest, as container engines do. The run's file has all.
func shortenDigest(version string) string {
	const algorithm, digits = "sha256:", 12
	if strings.HasPrefix(version, algorithm) && len(version) > len(algorithm)+digits {
		return version[:len(algorithm)+digits]
	}
	return version
}

func machineFacts(name string, m result.Machine) []document.Fact {
	fs := []document.Fact{
		{Name: name + " kernel", Value: m.Kernel},
		{Name: name + " CPU", Value: joined(m.CPU, m.Arch)},
		{Name: name + " start", Value: m.Start},
		{Name: name + " halt_poll_ns", Value: m.HaltPoll},
		{Name: name + " randomize_va_space", Value: m.RandomAddresses},
	}
	if m.VCPUs > 0 {
		fs = append(fs, document.Fact{Name: name + " size", Value: fmt.Sprintf("%s, %d MiB of memory", document.Plural(m.VCPUs, "CPU"), m.Memory>>20)})
	}
	return fs
}

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

// Source is a run, with its samples and the path of its directory.
type Source struct {
	Dir     string
	Run     result.Run
	Samples []result.Sample
}
