package report

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stats"
	"unnest/internal/report/papers"
)

// JSON prints the data of a document, or the whole document if it has none.
func JSON(w io.Writer, doc Document) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if doc.Data != nil {
		return enc.Encode(doc.Data)
	}
	return enc.Encode(doc)
}

// CSV prints the records of a document, or else its estimates in long form: one row
// per case, configuration and metric, with empty fields where a number is missing.
func CSV(w io.Writer, doc Document) error {
	if doc.Records != nil {
		return csv.NewWriter(w).WriteAll(doc.Records)
	}
	header := []string{"run", "suite", "case", "group", "size", "tool", "configuration", "stack", "accelerator", "metric", "unit", "order", "primary",
		"n", "center", "median", "mean", "stddev", "stderr", "min", "p25", "p75", "p90", "p99", "max", "low", "high", "confidence"}
	for _, b := range doc.Baselines {
		for _, field := range []string{"ratio", "ratio_low", "ratio_high", "ratio_confidence", "p", "detectable", "needs", "verdict", "equivalent"} {
			header = append(header, field+" vs "+b)
		}
	}
	header = append(header, "doubts")
	steps := slices.ContainsFunc(doc.Estimates, func(e Estimate) bool { return e.Step != nil })
	architectures := publishedFor(doc.Estimates)
	if steps {
		header = append(header, stepHeader(architectures)...)
	}
	if len(doc.Suites) > 0 {
		header = append(header, scoreHeader...)
	}
	rows := [][]string{header}
	for _, e := range doc.Estimates {
		row := estimateFields(e)
		for _, b := range doc.Baselines {
			row = append(row, comparisonFields(e.against(b))...)
		}
		row = append(row, strings.Join(e.Warnings, "; "))
		if steps {
			row = append(row, stepFields(e.Step, architectures)...)
		}
		if len(doc.Suites) > 0 {
			row = append(row, scoreFields(e.Score)...)
		}
		rows = append(rows, row)
	}
	for _, s := range doc.Suites {
		rows = append(rows, totalRows(doc, s, header)...)
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
		exact(e.Center, e.Median, e.Mean, e.StdDev, e.StdErr, e.Min, e.P25, e.P75, e.P90, e.P99, e.Max, e.Interval.Low, e.Interval.High, e.Interval.Confidence)...)
}

func comparisonFields(c *Comparison) []string {
	if c == nil {
		return make([]string, 9)
	}
	return append(exact(c.Ratio, c.Interval.Low, c.Interval.High, c.Interval.Confidence, c.P, c.Detectable),
		strconv.Itoa(c.Needs), string(c.Verdict), string(c.Equivalent))
}

// stepHeader names the columns of a run at several levels of virtualization.
func stepHeader(architectures []string) []string {
	header := []string{"level", "below", "vcpus", "relative_stderr", "change", "per_vcpu", "change_per_vcpu", "t", "df", "welch_p",
		"step_ratio", "step_ratio_low", "step_ratio_high", "step_ratio_confidence", "step_p", "step_verdict"}
	for _, a := range architectures {
		header = append(header, "published mean "+a, "published stderr "+a, "published change "+a)
	}
	return header
}

// stepFields are the fields under stepHeader, empty for a nil step.
func stepFields(s *Step, architectures []string) []string {
	if s == nil {
		return make([]string, len(stepHeader(architectures)))
	}
	vcpus := ""
	if s.VCPUs > 0 {
		vcpus = strconv.Itoa(s.VCPUs)
	}
	row := []string{strconv.Itoa(s.Level), s.Below, vcpus}
	row = append(row, exact(s.RelStdErr, s.Change, s.PerVCPU, s.ChangePerVCPU, s.T, s.DF, s.P)...)
	c := s.Comparison
	if c == nil {
		c = &Comparison{Ratio: missing, Interval: interval(stats.Interval{}), P: missing}
	}
	row = append(row, exact(c.Ratio, c.Interval.Low, c.Interval.High, c.Interval.Confidence, c.P)...)
	row = append(row, string(c.Verdict))
	for _, a := range architectures {
		p := s.published(a)
		row = append(row, exact(p.Mean, p.StdErr, p.Change)...)
	}
	return row
}

// scoreHeader names the columns of a run that has scores.
var scoreHeader = []string{"score", "counted", "published table", "published value", "published unit", "published score"}

// scoreFields are the fields under scoreHeader, empty for a nil score.
func scoreFields(s *Score) []string {
	if s == nil {
		return make([]string, len(scoreHeader))
	}
	row := append(exact(s.Score), strconv.FormatBool(s.Counted))
	if s.Published == nil {
		return append(row, "", "", "", "")
	}
	return append(row, strconv.Itoa(s.Published.Table), string(s.Published.Value), s.Published.Unit, string(s.Published.Score))
}

// totalRows are the rows of the totals of a suite. They name no case; n is the number of
// counted cases, and mean is the figure.
func totalRows(doc Document, s SuiteScore, header []string) [][]string {
	var rows [][]string
	add := func(t Total, metric string, value Number, i Interval, published *papers.Total) {
		fields := map[string]string{"run": doc.Run, "suite": s.Suite, "configuration": t.Configuration, "metric": metric,
			"unit": "1", "order": string(result.HIB), "primary": "false", "n": strconv.Itoa(s.Cases)}
		for name, n := range map[string]Number{"mean": value, "low": i.Low, "high": i.High, "confidence": i.Confidence} {
			fields[name] = exact(n)[0]
		}
		if published != nil {
			fields["published table"], fields["published score"] = strconv.Itoa(published.Table), string(published.Total)
		}
		row := make([]string, len(header))
		for j, name := range header {
			row[j] = fields[name]
		}
		rows = append(rows, row)
	}
	for _, t := range s.Totals {
		add(t, "total_score", t.Total, interval(stats.Interval{}), t.Published)
		add(t, "total_of_rounded_scores", t.Rounded, interval(stats.Interval{}), nil)
		add(t, "geometric_mean vs "+s.Baseline, t.GeoMean, t.Interval, nil)
	}
	return rows
}

// exact prints numbers so that reading them returns the same numbers.
func exact(ns ...Number) []string {
	fields := make([]string, len(ns))
	for i, n := range ns {
		if n.Defined() {
			fields[i] = strconv.FormatFloat(float64(n), 'g', -1, 64)
		}
	}
	return fields
}
