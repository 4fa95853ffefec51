package render

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"unnest.io/unnest/internal/report/document"
)

// ErrNoSamples is returned by the formats of samples for a document that is not the
// report of one run.
var ErrNoSamples = errors.New("the document has no samples: use unnest report on one run")

// GoBench prints the samples in Go benchmark format, in base units, for benchstat: one
// line per execution, named after the title, with the keys of its samples.
// "benchstat -col /config" compares the configurations with the main baseline.
func GoBench(w io.Writer, doc document.Document) error {
	if doc.Samples.Run == "" {
		return ErrNoSamples
	}
	var b bytes.Buffer
	for _, f := range append([]document.Fact{{Name: "unnest-run", Value: doc.Samples.Run}}, doc.Samples.Facts...) {
		if f.Value != "" {
			fmt.Fprintf(&b, "%s: %s\n", f.Name, document.Clean(f.Value))
		}
	}
	samples := slices.Collect(doc.Samples.All)
	slices.SortStableFunc(samples, func(a, b document.Sample) int { return after(a, doc.Samples.First) - after(b, doc.Samples.First) })
	benchUnits(&b, samples)
	for _, line := range benchLines(samples) {
		b.WriteString(benchName(line[0]) + "\t1")
		for _, s := range line {
			unit, factor := benchUnit(s)
			fmt.Fprintf(&b, "\t%s %s", strconv.FormatFloat(s.Value*factor, 'g', -1, 64), unit)
		}
		b.WriteString("\n")
	}
	_, err := w.Write(b.Bytes())
	return err
}

// after is 0 for a sample of a configuration, and 1 for the others.
func after(s document.Sample, configuration string) int {
	if slices.Contains(s.Keys, document.Fact{Name: "config", Value: configuration}) {
		return 0
	}
	return 1
}

// benchUnits declares in which direction each unit is better.
func benchUnits(b *bytes.Buffer, samples []document.Sample) {
	declared := map[string]bool{}
	for _, s := range samples {
		if unit, _ := benchUnit(s); !declared[unit] {
			declared[unit] = true
			fmt.Fprintf(b, "Unit %s better=%s\n", unit, s.Better)
		}
	}
	b.WriteString("\n")
}

// benchLines splits samples by execution, in the order of first appearance. A metric with
// several values in one execution takes several lines.
func benchLines(samples []document.Sample) [][]document.Sample {
	type place struct{ execution, nth int } // nth value of its metric in the execution
	type metric struct {
		execution int
		name      string
	}
	var lines [][]document.Sample
	at, values := map[place]int{}, map[metric]int{}
	for _, s := range samples {
		m := metric{s.Execution, s.Metric}
		p := place{s.Execution, values[m]}
		values[m]++
		i, known := at[p]
		if !known {
			i, lines = len(lines), append(lines, nil)
			at[p] = i
		}
		lines[i] = append(lines[i], s)
	}
	return lines
}

// benchName names a benchmark: "BenchmarkUDPPingPong/size=1280/config=NAT". A "-" before a number at the end would be
// read as that of GOMAXPROCS, so it becomes "_".
func benchName(s document.Sample) string {
	name := "Benchmark" + camel(s.Title)
	for _, k := range s.Keys {
		name += "/" + k.Name + "=" + benchValue(k.Value)
	}
	if rest := strings.TrimRight(name, "0123456789"); rest != name && strings.HasSuffix(rest, "-") {
		return rest[:len(rest)-1] + "_" + name[len(rest):]
	}
	return name
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
func benchUnit(s document.Sample) (string, float64) {
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
	case !s.Primary:
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
