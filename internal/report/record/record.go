// Package record is what a program reads of a report of runs: the object that JSON prints, and
// the rows of the CSV.
package record

import (
	"fmt"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/paths"
)

// Version is the version of Data and of the records. Fields and columns are added without a
// new version; it changes when one is removed or gets another meaning. Version 1 had
// medians, bootstrap intervals and Holm's adjusted p.
const Version = 2

// Data is what JSON prints of a document that is made of runs.
type Data struct {
	Title       string                `json:"title"`
	Description string                `json:"description,omitempty"`
	Run         string                `json:"run"`              // run identifier; two in a comparison
	Dir         string                `json:"dir,omitempty"`    // run directory
	Setting     string                `json:"setting"`          // "6 repetitions, tcg"
	Answer      string                `json:"answer,omitempty"` // the main finding in one sentence
	Paths       []paths.Path          `json:"paths,omitempty"`  // what a packet crosses, or what is under a benchmark
	Headlines   []string              `json:"headlines"`
	NotKnown    []string              `json:"not_known,omitempty"` // comparisons that decide nothing, by subject
	Figures     []document.KeyFigure  `json:"figures,omitempty"`
	Warnings    []string              `json:"warnings,omitempty"`
	Baselines   []string              `json:"baselines"` // the main one first
	Series      []document.Series     `json:"series"`    // the configurations
	Suites      []estimate.SuiteScore `json:"suites,omitempty"`
	Groups      []document.Group      `json:"groups"`
	Failures    document.Table        `json:"failures"`
	Doubts      document.Table        `json:"doubts"` // warnings on single estimates
	Provenance  document.Table        `json:"provenance"`
	File        string                `json:"file,omitempty"` // the experiment file
	Methods     []document.Method     `json:"methods"`
	Families    []estimate.Family     `json:"families,omitempty"`
	Estimates   []estimate.Estimate   `json:"estimates"` // everything computed, in long form
}

// Put makes d print data, with what stands on its page, as JSON and CSV. The caller fills in
// what is computed: Paths, Baselines, Suites, Doubts, Families and Estimates. Nothing of d
// changes after it.
func (data Data) Put(d *document.Document) {
	data.Title, data.Description, data.Run, data.Dir, data.Setting, data.Answer = d.Title, d.Description, d.Run, d.Dir, d.Setting, d.Answer
	data.Headlines, data.NotKnown, data.Figures, data.Warnings, data.Series, data.Groups = d.Headlines, d.NotKnown, d.Figures, d.Warnings, d.Series, d.Groups
	data.Failures, data.Provenance, data.File, data.Methods = d.Failures, d.Provenance, d.File, d.Methods
	d.SchemaVersion, d.Data, d.Records = Version, data, data.records()
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

type csvRow map[string]string

func (r csvRow) fields() []string {
	fields := make([]string, len(csvColumns))
	for i, name := range csvColumns {
		fields[i] = r[name]
	}
	return fields
}

// numbers sets columns to numbers; a missing one leaves its column empty.
func (r csvRow) numbers(of map[string]document.Number) {
	for name, n := range of {
		r[name] = document.Exact(n)
	}
}

// records are the estimates in long form: one row per estimate, comparison, step, score,
// total and published figure, with the same columns for every run.
func (data Data) records() [][]string {
	rows := [][]string{csvColumns}
	add := func(rs ...csvRow) {
		for _, r := range rs {
			r["schema_version"] = strconv.Itoa(Version)
			rows = append(rows, r.fields())
		}
	}
	for _, e := range data.Estimates {
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
	for _, s := range data.Suites {
		add(totalRows(data.Run, s)...)
	}
	return rows
}

func cellRow(kind string, e estimate.Estimate) csvRow {
	r := csvRow{"kind": kind, "run": e.Run, "suite": e.Suite, "case": e.Case, "group": e.Group, "tool": e.Tool,
		"configuration": e.Configuration, "stack": e.Stack, "accelerator": e.Accelerator, "metric": e.Metric,
		"unit": e.Unit, "order": string(e.Order), "primary": strconv.FormatBool(e.Primary)}
	if e.Size > 0 {
		r["size"] = strconv.Itoa(e.Size)
	}
	return r
}

func estimateRow(e estimate.Estimate) csvRow {
	r := cellRow(rowEstimate, e)
	r["n"], r["notes"] = strconv.Itoa(e.N), strings.Join(e.Warnings, "; ")
	if e.Missing != "" {
		r["notes"] = e.Missing
	}
	r.numbers(map[string]document.Number{"estimate": e.Center, "low": e.Interval.Low, "high": e.Interval.High, "confidence": e.Interval.Confidence,
		"mean": e.Mean, "stddev": e.StdDev, "stderr": e.StdErr, "min": e.Min, "p25": e.P25, "median": e.Median, "p75": e.P75, "p90": e.P90, "p99": e.P99, "max": e.Max})
	return r
}

// compared sets the columns of a comparison.
func (r csvRow) compared(c estimate.Comparison) {
	r["baseline"], r["n"], r["family"], r["verdict"], r["equivalent"] = c.Baseline, strconv.Itoa(c.N), c.Family, string(c.Verdict), string(c.Equivalent)
	r["unit"], r["notes"] = "1", strings.Join(c.Warnings, "; ")
	if c.Needs > 0 {
		r["needs"] = strconv.Itoa(c.Needs)
	}
	r.numbers(map[string]document.Number{"estimate": c.Ratio, "low": c.Interval.Low, "high": c.Interval.High, "confidence": c.Interval.Confidence, "p": c.P, "detectable": c.Detectable})
}

func comparisonRow(e estimate.Estimate, c estimate.Comparison) csvRow {
	r := cellRow(rowComparison, e)
	r.compared(c)
	return r
}

func stepRows(e estimate.Estimate, s estimate.Step) []csvRow {
	r := cellRow(rowStep, e)
	if s.Comparison != nil {
		r.compared(*s.Comparison)
	}
	r["baseline"], r["level"] = s.Below, strconv.Itoa(s.Level)
	if s.VCPUs > 0 {
		r["vcpus"] = strconv.Itoa(s.VCPUs)
	}
	r.numbers(map[string]document.Number{"change": s.Change, "per_vcpu": s.PerVCPU, "change_per_vcpu": s.ChangePerVCPU, "welch_t": s.T, "welch_df": s.DF, "welch_p": s.P})
	rows := []csvRow{r}
	for _, p := range s.Published {
		row := cellRow(rowPublished, e)
		row["source"] = "FitzGerald 2014, " + p.Architecture
		row.numbers(map[string]document.Number{"mean": p.Mean, "stderr": p.StdErr, "change": p.Change})
		rows = append(rows, row)
	}
	return rows
}

func scoreRows(e estimate.Estimate, s estimate.Score) []csvRow {
	r := cellRow(rowScore, e)
	r["unit"] = "1"
	if !s.Counted {
		r["notes"] = "not counted in the totals"
	}
	r.numbers(map[string]document.Number{"estimate": s.Score})
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
func totalRows(run string, s estimate.SuiteScore) []csvRow {
	var rows []csvRow
	add := func(t estimate.Total, kind, metric, baseline string, value document.Number, i document.Interval) csvRow {
		r := csvRow{"kind": kind, "run": run, "suite": s.Suite, "configuration": t.Configuration, "baseline": baseline,
			"metric": metric, "unit": "1", "order": string(result.HIB), "primary": "false", "n": strconv.Itoa(s.Cases)}
		r.numbers(map[string]document.Number{"estimate": value, "low": i.Low, "high": i.High, "confidence": i.Confidence})
		rows = append(rows, r)
		return r
	}
	for _, t := range s.Totals {
		add(t, rowTotal, "total_score", "", t.Total, document.NoInterval)
		add(t, rowTotal, "total_of_rounded_scores", "", t.Rounded, document.NoInterval)
		add(t, rowTotal, "geometric_mean", s.Baseline, t.GeoMean, t.Interval)
		if t.Published != nil {
			p := add(t, rowPublished, "total_score", "", document.Missing, document.NoInterval)
			p["estimate"], p["source"] = string(t.Published.Total), fmt.Sprintf("Lubomski et al., Table %d", t.Published.Table)
			p["n"] = ""
		}
	}
	return rows
}
