package report

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"strconv"
	"strings"
)

// JSON prints the whole document.
func JSON(w io.Writer, doc Document) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(doc)
}

// CSV prints the estimates in long form: one row per case, configuration and
// metric, with empty fields where a number is missing.
func CSV(w io.Writer, doc Document) error {
	header := []string{"run", "suite", "case", "group", "size", "tool", "configuration", "stack", "accelerator", "metric", "unit", "order", "primary",
		"n", "median", "mean", "stddev", "stderr", "min", "p25", "p75", "p90", "p99", "max", "low", "high", "confidence"}
	for _, b := range doc.Baselines {
		for _, field := range []string{"ratio", "ratio_low", "ratio_high", "welch_p", "mann_whitney_p", "adjusted_p", "detectable", "verdict", "equivalent"} {
			header = append(header, field+" vs "+b)
		}
	}
	rows := [][]string{append(header, "doubts")}
	for _, e := range doc.Estimates {
		row := estimateFields(e)
		for _, b := range doc.Baselines {
			row = append(row, comparisonFields(e.against(b))...)
		}
		rows = append(rows, append(row, strings.Join(e.Doubts, "; ")))
	}
	return csv.NewWriter(w).WriteAll(rows)
}

func estimateFields(e Estimate) []string {
	size := ""
	if e.Size > 0 {
		size = strconv.Itoa(e.Size)
	}
	return append([]string{e.Run, e.Suite, e.Case, e.Group, size, e.Tool, e.Configuration, e.Stack, e.Accelerator, e.Metric, e.Unit, string(e.Order),
		strconv.FormatBool(e.Primary), strconv.Itoa(e.N)},
		exact(e.Median, e.Mean, e.StdDev, e.StdErr, e.Min, e.P25, e.P75, e.P90, e.P99, e.Max, e.Interval.Low, e.Interval.High, e.Interval.Confidence)...)
}

func comparisonFields(c *Comparison) []string {
	if c == nil {
		return make([]string, 9)
	}
	return append(exact(c.Ratio, c.Interval.Low, c.Interval.High, c.Welch, c.MannWhitney, c.Adjusted, c.Detectable),
		string(c.Verdict), string(c.Equivalent))
}

// exact prints numbers so that reading them gives the same again.
func exact(ns ...Number) []string {
	fields := make([]string, len(ns))
	for i, n := range ns {
		if n.Defined() {
			fields[i] = strconv.FormatFloat(float64(n), 'g', -1, 64)
		}
	}
	return fields
}
