package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stats"
)

// SchemaVersion is the version of the JSON and CSV of a document. Fields and columns are
// added without a new version; it changes when one is removed or gets another meaning.
// Version 1 had medians, bootstrap intervals and Holm's adjusted p.
const SchemaVersion = 2

// DataVersion is the version of the JSON of the Data of a document: a score, a plan, a
// comparison of means. It changes as SchemaVersion does.
const DataVersion = 1

// versioned puts the version before the other keys of data, which must be an object.
func versioned(data any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(data); err != nil {
		return nil, err
	}
	rest, ok := bytes.CutPrefix(b.Bytes(), []byte("{"))
	if !ok {
		return nil, fmt.Errorf("encode %T: is not an object", data)
	}
	return fmt.Appendf(nil, `{"schema_version":%d,%s`, DataVersion, rest), nil
}

// JSON prints the data of a document, or the whole document if it has none.
func JSON(w io.Writer, doc Document) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if doc.Data != nil {
		data, err := versioned(doc.Data)
		if err != nil {
			return err
		}
		return enc.Encode(data)
	}
	doc.SchemaVersion = SchemaVersion
	return enc.Encode(doc)
}

// The kinds of rows of the CSV.
const (
	rowEstimate   = "estimate"   // of a metric of a case in a configuration
	rowComparison = "comparison" // of an estimate with that of a baseline
	rowStep       = "step"       // of an estimate with that of the level of virtualization below
	rowScore      = "score"      // of a case in a suite
	rowTotal      = "total"      // of a suite
	rowPublished  = "published"  // figure of a paper
)

// csvColumns are the columns of the CSV of every document that is made of runs. Fields
// that a kind of row does not have are empty. estimate is the geometric mean of an
// estimate, and the ratio of a comparison or a step.
var csvColumns = []string{
	"schema_version", "kind", "run", "suite", "case", "group", "size", "tool", "configuration", "baseline", "stack", "accelerator",
	"metric", "unit", "order", "primary", "n", "estimate", "low", "high", "confidence", "mean", "stddev", "stderr",
	"min", "p25", "median", "p75", "p90", "p99", "max", "p", "detectable", "needs", "family", "verdict", "equivalent",
	"level", "vcpus", "change", "per_vcpu", "change_per_vcpu", "welch_t", "welch_df", "welch_p", "source", "notes",
}

// csvRow is a row by column.
type csvRow map[string]string

func (r csvRow) fields() []string {
	fields := make([]string, len(csvColumns))
	for i, name := range csvColumns {
		fields[i] = r[name]
	}
	return fields
}

// numbers sets columns to numbers; a missing one leaves its column empty.
func (r csvRow) numbers(of map[string]Number) {
	for name, n := range of {
		r[name] = exact(n)[0]
	}
}

// CSV prints the records of a document, or else its estimates in long form: one row per
// estimate, comparison, step, score, total and published figure, with the same columns in
// every document.
func CSV(w io.Writer, doc Document) error {
	if doc.Records != nil {
		return csv.NewWriter(w).WriteAll(doc.Records)
	}
	rows := [][]string{csvColumns}
	add := func(rs ...csvRow) {
		for _, r := range rs {
			r["schema_version"] = strconv.Itoa(SchemaVersion)
			rows = append(rows, r.fields())
		}
	}
	for _, e := range doc.Estimates {
		add(estimateRow(e))
		for _, c := range e.Comparisons {
			add(comparisonRow(e, c))
		}
		if e.Step != nil {
			add(stepRows(e, *e.Step)...)
		}
		if e.Score != nil {
			add(scoreRows(e, *e.Score)...)
		}
	}
	for _, s := range doc.Suites {
		add(totalRows(doc, s)...)
	}
	return csv.NewWriter(w).WriteAll(rows)
}

// cellRow is a row about the cell of e.
func cellRow(kind string, e Estimate) csvRow {
	r := csvRow{"kind": kind, "run": e.Run, "suite": e.Suite, "case": e.Case, "group": e.Group, "tool": e.Tool,
		"configuration": e.Configuration, "stack": e.Stack, "accelerator": e.Accelerator, "metric": e.Metric,
		"unit": e.Unit, "order": string(e.Order), "primary": strconv.FormatBool(e.Primary)}
	if e.Size > 0 {
		r["size"] = strconv.Itoa(e.Size)
	}
	return r
}

func estimateRow(e Estimate) csvRow {
	r := cellRow(rowEstimate, e)
	r["n"], r["notes"] = strconv.Itoa(e.N), strings.Join(e.Warnings, "; ")
	if e.Missing != "" {
		r["notes"] = e.Missing
	}
	r.numbers(map[string]Number{"estimate": e.Center, "low": e.Interval.Low, "high": e.Interval.High, "confidence": e.Interval.Confidence,
		"mean": e.Mean, "stddev": e.StdDev, "stderr": e.StdErr, "min": e.Min, "p25": e.P25, "median": e.Median, "p75": e.P75, "p90": e.P90, "p99": e.P99, "max": e.Max})
	return r
}

// compared sets the columns of a comparison.
func (r csvRow) compared(c Comparison) {
	r["baseline"], r["n"], r["family"], r["verdict"], r["equivalent"] = c.Baseline, strconv.Itoa(c.N), c.Family, string(c.Verdict), string(c.Equivalent)
	r["unit"], r["notes"] = "1", strings.Join(c.Warnings, "; ")
	if c.Needs > 0 {
		r["needs"] = strconv.Itoa(c.Needs)
	}
	r.numbers(map[string]Number{"estimate": c.Ratio, "low": c.Interval.Low, "high": c.Interval.High, "confidence": c.Interval.Confidence, "p": c.P, "detectable": c.Detectable})
}

func comparisonRow(e Estimate, c Comparison) csvRow {
	r := cellRow(rowComparison, e)
	r.compared(c)
	return r
}

func stepRows(e Estimate, s Step) []csvRow {
	r := cellRow(rowStep, e)
	if s.Comparison != nil {
		r.compared(*s.Comparison)
	}
	r["baseline"], r["level"] = s.Below, strconv.Itoa(s.Level)
	if s.VCPUs > 0 {
		r["vcpus"] = strconv.Itoa(s.VCPUs)
	}
	r.numbers(map[string]Number{"change": s.Change, "per_vcpu": s.PerVCPU, "change_per_vcpu": s.ChangePerVCPU, "welch_t": s.T, "welch_df": s.DF, "welch_p": s.P})
	rows := []csvRow{r}
	for _, p := range s.Published {
		row := cellRow(rowPublished, e)
		row["source"] = "FitzGerald 2014, " + p.Architecture
		row.numbers(map[string]Number{"mean": p.Mean, "stderr": p.StdErr, "change": p.Change})
		rows = append(rows, row)
	}
	return rows
}

func scoreRows(e Estimate, s Score) []csvRow {
	r := cellRow(rowScore, e)
	r["unit"] = "1"
	if !s.Counted {
		r["notes"] = "not counted in the totals"
	}
	r.numbers(map[string]Number{"estimate": s.Score})
	if s.Published == nil {
		return []csvRow{r}
	}
	p := cellRow(rowPublished, e)
	p["source"] = fmt.Sprintf("Lubomski et al., Table %d", s.Published.Table)
	p["unit"], p["mean"], p["estimate"] = s.Published.Unit, string(s.Published.Value), string(s.Published.Score)
	return []csvRow{r, p}
}

// totalRows are the rows of the totals of a suite. They name no case; n is the number of
// counted cases.
func totalRows(doc Document, s SuiteScore) []csvRow {
	var rows []csvRow
	add := func(t Total, kind, metric, baseline string, value Number, i Interval) csvRow {
		r := csvRow{"kind": kind, "run": doc.Run, "suite": s.Suite, "configuration": t.Configuration, "baseline": baseline,
			"metric": metric, "unit": "1", "order": string(result.HIB), "primary": "false", "n": strconv.Itoa(s.Cases)}
		r.numbers(map[string]Number{"estimate": value, "low": i.Low, "high": i.High, "confidence": i.Confidence})
		rows = append(rows, r)
		return r
	}
	for _, t := range s.Totals {
		add(t, rowTotal, "total_score", "", t.Total, interval(stats.Interval{}))
		add(t, rowTotal, "total_of_rounded_scores", "", t.Rounded, interval(stats.Interval{}))
		add(t, rowTotal, "geometric_mean", s.Baseline, t.GeoMean, t.Interval)
		if t.Published != nil {
			p := add(t, rowPublished, "total_score", "", missing, interval(stats.Interval{}))
			p["estimate"], p["source"] = string(t.Published.Total), fmt.Sprintf("Lubomski et al., Table %d", t.Published.Table)
			p["n"] = ""
		}
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
