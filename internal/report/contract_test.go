package report_test

import (
	"bytes"
	"encoding/csv"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/perf/benchfmt"

	"unnest.io/unnest/docs/schemas"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/score"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/advice"
	"unnest.io/unnest/internal/report/claims"
	"unnest.io/unnest/internal/report/comparison"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/means"
	"unnest.io/unnest/internal/report/plans"
	"unnest.io/unnest/internal/report/provenance"
	"unnest.io/unnest/internal/report/render"
	"unnest.io/unnest/internal/report/scores"
)

// contract is what programs rely on in one kind of document. Keys and columns may be added
// here; a removed one needs a new version and an entry in docs/upgrading.md.
type contract struct {
	version int
	schema  string // of the JSON, the file in docs/schemas
	columns string // of the CSV, the first ones
}

const runColumns = "schema_version kind run suite case group size tool configuration baseline stack accelerator " +
	"metric unit order primary n estimate low high confidence mean stddev stderr " +
	"min p25 median p75 p90 p99 max p detectable needs family verdict equivalent " +
	"level vcpus change per_vcpu change_per_vcpu welch_t welch_df welch_p source notes"

var ofRuns = contract{2, "report", runColumns}

// contractDocuments is one document of each kind with its contract.
func contractDocuments(t *testing.T) map[string]struct {
	document.Document
	contract
} {
	t.Helper()
	run, samples := synthetic(6)
	later, laterSamples := later()
	means, err := means.Build(stats.Moments{N: 6, Mean: 1068.5, StdErr: 2.4}, stats.Moments{N: 6, Mean: 1041.3, StdErr: 18.6})
	if err != nil {
		t.Fatal(err)
	}
	scored, err := score.Suites([]score.Row{
		{Suite: "disk", Case: "read", Order: result.HIB, Unit: "MB/s", Configuration: "plain", Value: 100},
		{Suite: "disk", Case: "read", Order: result.HIB, Unit: "MB/s", Configuration: "nested", Value: 50},
	}, score.Options{Baseline: "plain"})
	if err != nil {
		t.Fatal(err)
	}
	return map[string]struct {
		document.Document
		contract
	}{
		"report":  {build(run, samples), ofRuns},
		"startup": {build(startup(24)), ofRuns},
		"levels":  {buildNested(), ofRuns},
		"suite":   {buildSuite(), ofRuns},
		"compare": {comparison.Build(provenance.Source{Dir: "a", Run: run, Samples: samples}, provenance.Source{Dir: "b", Run: later, Samples: laterSamples}, true, nil), ofRuns},
		"summary": {means, contract{1, "summary",
			"mean_a standard_error_a n_a mean_b standard_error_b n_b t df p df_truncated p_truncated delta_percent minimum_detectable minimum_detectable_percent"}},
		"score": {scores.Build(scored), contract{1, "score", "suite case order unit configuration quantity value"}},
		"advise": {advice.Build(provenance.Source{Run: run, Samples: samples}, nil), contract{1, "advise",
			"subject advice from to suite metric order cases n ratio low high confidence p verdict needs command"}},
		"plan": {plans.Plan(threeUsers()), contract{1, "plan",
			"user pods containers pods_left_out pods_split_hostlo pods_split_best kubernetes resize hostlo spread whole best bound"}},
		"frontier": {plans.Frontier(choices()), contract{1, "links", "user pods containers pods_left_out cost cut pods_split"}},
		"combined": {comparison.Combine(severalRuns(0.9, 1, 1.1), nil), contract{1, "combined", "schema_version case configuration baseline metric order runs ratio low high"}},
		"papers":   {claims.Build(nil, []string{"a warning"}), contract{1, "papers", "schema_version id paper section claim printed published ours low high confidence n answer"}},
		"replay":   {plans.Replay(comingAndGoing()), contract{1, "replay", "user stays containers plan cost vms_bought containers_migrated"}},
	}
}

// What each schema is of, and the keys of reports that hold the text of a page.
var (
	schemaTitles = map[string]string{
		"report": "unnest report and unnest compare", "combined": "unnest report of several runs", "summary": "unnest compare --summary",
		"score": "unnest score", "advise": "unnest advise", "papers": "unnest papers", "plan": "unnest plan", "links": "unnest plan --links",
		"replay": "unnest plan --replay",
	}
	pageText = map[string][]string{"report": {"groups", "paths", "provenance", "headlines", "figures", "warnings", "doubts", "failures", "methods"}}
)

// The JSON of each document follows its schema in docs/schemas.
func TestJSONContract(t *testing.T) {
	for name, doc := range contractDocuments(t) {
		var out bytes.Buffer
		if err := render.JSON(&out, doc.Document); err != nil {
			t.Fatal(err)
		}
		o := schemas.Output{Name: doc.schema, Title: schemaTitles[doc.schema], Version: doc.version, Value: doc.Data, Text: pageText[doc.schema]}
		if err := o.Test("../..", *update, out.Bytes()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if rest, ok := strings.CutPrefix(out.String(), "{\n  \"schema_version\": "); !ok {
			t.Errorf("%s does not begin with its version: %.40s", name, rest)
		}
	}
}

func TestCSVContract(t *testing.T) {
	page, err := os.ReadFile("../../docs/outputs.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, doc := range contractDocuments(t) {
		var out bytes.Buffer
		if err := render.CSV(&out, doc.Document); err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(&out).ReadAll() // fails if rows differ in length
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := strings.Fields(doc.columns)
		if len(rows) < 2 || len(rows[0]) < len(want) || !slices.Equal(rows[0][:len(want)], want) {
			t.Errorf("%s: %d rows, columns %v, want first %v", name, len(rows), rows[0], want)
		}
		for _, column := range rows[0] {
			if !strings.Contains(string(page), column) {
				t.Errorf("%s: docs/outputs.md does not name the column %s", name, column)
			}
		}
	}
}

// What is made of the samples of one run has benchmark lines in base units; other documents
// say that they have no samples.
func TestGoBenchContract(t *testing.T) {
	for name, doc := range contractDocuments(t) {
		var out bytes.Buffer
		err := render.GoBench(&out, doc.Document)
		if doc.Samples.Run == "" {
			if err == nil {
				t.Errorf("%s: benchmark format without samples", name)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		units, lines := map[string]bool{}, 0
		for r := benchfmt.NewReader(&out, name); r.Scan(); {
			switch rec := r.Result().(type) {
			case *benchfmt.SyntaxError:
				t.Errorf("%s: %v", name, rec)
			case *benchfmt.Result:
				lines++
				if !strings.Contains(string(rec.Name), "/config=") {
					t.Errorf("%s: %s has no key config", name, rec.Name)
				}
				for _, v := range rec.Values {
					units[v.Unit] = true
				}
			}
		}
		if lines == 0 {
			t.Errorf("%s: no benchmark lines", name)
		}
		for unit := range units {
			for _, scaled := range []string{"us", "µs", "ms", "ns", "Mbit/s", "MB/s", "KB/s"} {
				if bare := unit[strings.LastIndex(unit, "-")+1:]; bare == scaled || strings.HasPrefix(bare, scaled+"/") {
					t.Errorf("%s: unit %s is not a base unit", name, unit)
				}
			}
		}
	}
}
