package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"unnest/internal/measure/collocation"
	"unnest/internal/measure/result"
)

// ErrNoSamples is returned by the formats of samples for a document that is not the
// report of one run.
var ErrNoSamples = errors.New("the document has no samples: use unnest report on one run")

// GoBench prints the samples in Go benchmark format, in base units, for benchstat: one
// line per execution, named after the group of cases, with size and configuration as
// keys. "benchstat -col /config" compares the configurations.
func GoBench(w io.Writer, doc Document) error {
	if doc.Source.ID == "" {
		return fmt.Errorf("print in Go benchmark format: %w", ErrNoSamples)
	}
	var b bytes.Buffer
	run := doc.Source
	for _, f := range []fact{{"unnest-run", run.ID}, {"accelerator", run.Accelerator}, {"goarch", run.Host.Arch}, {"cpu", run.Host.CPU}, {"kernel", run.Host.Kernel}} {
		if f.value != "" {
			fmt.Fprintf(&b, "%s: %s\n", f.name, clean(f.value))
		}
	}
	cases := map[string]result.Case{}
	for _, c := range run.Cases {
		cases[c.Name] = c
	}
	benchUnits(&b, cases, doc.Samples)
	for _, execution := range executions(doc.Samples) {
		b.WriteString(benchName(cases[execution[0].Case], execution[0]) + "\t1")
		for _, s := range execution {
			unit, factor := benchUnit(s, cases[s.Case].Primary)
			fmt.Fprintf(&b, "\t%s %s", strconv.FormatFloat(s.Value*factor, 'g', -1, 64), unit)
		}
		b.WriteString("\n")
	}
	_, err := w.Write(b.Bytes())
	return err
}

// benchUnits declares in which direction each unit is better.
func benchUnits(b *bytes.Buffer, cases map[string]result.Case, samples []result.Sample) {
	declared := map[string]bool{}
	for _, s := range samples {
		if unit, _ := benchUnit(s, cases[s.Case].Primary); !declared[unit] {
			declared[unit] = true
			fmt.Fprintf(b, "Unit %s better=%s\n", unit, map[result.Order]string{result.HIB: "higher", result.LIB: "lower"}[s.Order])
		}
	}
	b.WriteString("\n")
}

// executions splits samples by execution, in the order of first appearance. A metric
// with several values in one execution takes several lines.
func executions(samples []result.Sample) [][]result.Sample {
	type line struct {
		execution result.Execution
		domain    string // that was measured; empty: all
		nth       int    // value of its metric in the execution
	}
	type metric struct {
		execution    result.Execution
		domain, name string
	}
	var order []line
	byLine, values := map[line][]result.Sample{}, map[metric]int{}
	for _, s := range samples {
		domain := s.Tags[collocation.DomainTag]
		m := metric{s.Execution(), domain, s.Metric}
		l := line{s.Execution(), domain, values[m]}
		values[m]++
		if byLine[l] == nil {
			order = append(order, l)
		}
		byLine[l] = append(byLine[l], s)
	}
	out := make([][]result.Sample, len(order))
	for i, l := range order {
		out[i] = byLine[l]
	}
	return out
}

// benchName names a benchmark: "BenchmarkUDPPingPong/size=1280/config=NAT".
func benchName(c result.Case, s result.Sample) string {
	name := "Benchmark" + camel(groupTitle(c))
	if c.Size > 0 {
		name += "/size=" + strconv.Itoa(c.Size)
	}
	if domain := s.Tags[collocation.DomainTag]; domain != "" {
		name += "/domain=" + benchValue(domain)
	}
	return name + "/config=" + benchValue(s.Configuration)
}

// camel makes a Go identifier from words.
func camel(words string) string {
	var b strings.Builder
	for _, word := range strings.FieldsFunc(words, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		runes := []rune(word)
		b.WriteRune(unicode.ToUpper(runes[0]))
		b.WriteString(string(runes[1:]))
	}
	return b.String()
}

// benchValue replaces white space and slashes, which end a value.
func benchValue(s string) string { return strings.ReplaceAll(benchUnitPart(s), "/", "_") }

// baseUnits are the base units that benchstat scales, with the factors to them.
var baseUnits = map[string]struct {
	name   string
	factor float64
}{
	"ns": {"sec", 1e-9}, "us": {"sec", 1e-6}, "µs": {"sec", 1e-6}, "ms": {"sec", 1e-3}, "s": {"sec", 1},
	"Mbit/s": {"B/s", 1e6 / 8}, "KB/s": {"B/s", 1e3}, "MB/s": {"B/s", 1e6}, "MiB/s": {"B/s", 1 << 20}, "GB/s": {"B/s", 1e9},
}

// benchUnit returns the base unit of a sample and the factor to it: "sec/op" or "B/s" of
// the primary metric of its case, with the name of the metric before it of another one,
// "latency_p99-sec/op", because benchstat groups by unit.
func benchUnit(s result.Sample, primary string) (string, float64) {
	unit, perOp := strings.CutSuffix(s.Unit, "/op")
	factor := 1.0
	if base, known := baseUnits[unit]; known {
		perOp = perOp || base.name == "sec"
		unit, factor = base.name, base.factor
	}
	if perOp {
		unit += "/op"
	}
	switch metric := benchValue(s.Metric); {
	case unit == "" || unit == "1":
		return metric, factor
	case s.Metric != primary:
		return metric + "-" + benchUnitPart(unit), factor
	}
	return benchUnitPart(unit), factor
}

// benchUnitPart replaces white space in a unit; slashes stay.
func benchUnitPart(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			return '_'
		}
		return r
	}, s)
}
