package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"unnest/internal/measure/result"
)

// ErrNoSamples is returned by the formats of samples for a document that is not the
// report of one run.
var ErrNoSamples = errors.New("the document has no samples: use unnest report on one run")

// GoBench prints the samples in Go benchmark format for benchstat: one line per
// execution, named after the group of cases, with size and configuration as keys.
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
	benchUnits(&b, doc.Samples)
	cases := map[string]result.Case{}
	for _, c := range run.Cases {
		cases[c.Name] = c
	}
	for _, execution := range executions(doc.Samples) {
		b.WriteString(benchName(cases[execution[0].Case], execution[0]) + "\t1")
		for _, s := range execution {
			fmt.Fprintf(&b, "\t%s %s", strconv.FormatFloat(s.Value, 'g', -1, 64), benchUnit(s))
		}
		b.WriteString("\n")
	}
	_, err := w.Write(b.Bytes())
	return err
}

// benchUnits declares in which direction each unit is better.
func benchUnits(b *bytes.Buffer, samples []result.Sample) {
	declared := map[string]bool{}
	for _, s := range samples {
		if unit := benchUnit(s); !declared[unit] {
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
		nth       int // value of its metric in the execution
	}
	type metric struct {
		execution result.Execution
		name      string
	}
	var order []line
	byLine, values := map[line][]result.Sample{}, map[metric]int{}
	for _, s := range samples {
		m := metric{s.Execution(), s.Metric}
		l := line{s.Execution(), values[m]}
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

// benchUnit joins unit and metric, because benchstat groups by unit:
// "us-latency_mean/op", "Mbit/s-throughput".
func benchUnit(s result.Sample) string {
	metric := benchValue(s.Metric)
	unit, perOp := strings.CutSuffix(s.Unit, "/op")
	switch _, isTime := milliseconds[unit]; {
	case perOp || isTime:
		return benchUnitPart(unit) + "-" + metric + "/op"
	case unit == "" || unit == "1":
		return metric
	}
	return benchUnitPart(unit) + "-" + metric
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
