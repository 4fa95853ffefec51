package report_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	xhtml "golang.org/x/net/html"
	"golang.org/x/perf/benchfmt"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/render"
	"unnest.io/unnest/internal/report/render/html"
	"unnest.io/unnest/internal/report/render/text"
	"unnest.io/unnest/internal/report/runs"
)

// hostile is the synthetic run with names that try to be markup, with line
// breaks and with escape sequences.
func hostile() document.Document {
	const markup = `</script><script>alert(1)</script><img src=x onerror="alert(1)">`
	run, samples := synthetic(6)
	name := func(s string) string { return s + markup + "\x1b[2J\n| a | **b**" }
	run.Title, run.Description, run.File, run.Error = name("title"), name("description"), name("file"), name("error")
	run.State, run.Image, run.Host.CPU = result.Failed, name("image"), name("cpu")
	for i := range run.Configurations {
		run.Configurations[i].Name = name(run.Configurations[i].Name)
	}
	for i := range run.Baselines {
		run.Baselines[i] = name(run.Baselines[i])
	}
	for i := range run.Cases {
		run.Cases[i].Title = name(run.Cases[i].Title)
		run.Cases[i].Size = 0
	}
	for i := range samples {
		samples[i].Configuration = name(samples[i].Configuration)
		samples[i].Tags = map[string]string{"a|b": "c|,|d"}
	}
	run.Failures = []result.Failure{{Configuration: run.Configurations[0].Name, Case: run.Cases[0].Name, Error: name("failure")}}
	return runs.Build(run, samples, runs.Options{Dir: name("dir"), Notes: []string{name("note")}})
}

// elements counts the elements of a page by their tag.
func elements(t *testing.T, page string) map[string]int {
	t.Helper()
	count := map[string]int{}
	z := xhtml.NewTokenizer(strings.NewReader(page))
	for {
		switch z.Next() {
		case xhtml.ErrorToken:
			return count
		case xhtml.StartTagToken, xhtml.SelfClosingTagToken:
			name, _ := z.TagName()
			count[string(name)]++
		}
	}
}

func printed(t *testing.T, doc document.Document) string {
	t.Helper()
	var b bytes.Buffer
	if err := html.Print(&b, doc); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestHTMLEscapesNames(t *testing.T) {
	got := printed(t, hostile())
	count := elements(t, got)
	if count["script"] != 4 || count["img"] != 0 {
		t.Errorf("page has %d script and %d img elements, want 4 and 0", count["script"], count["img"])
	}
	if strings.Contains(got, "alert(1)</script>") || strings.Contains(got, `onerror="alert`) {
		t.Error("page holds the markup of a name as it was")
	}
	_, island, _ := strings.Cut(got, `id="report-data">`)
	island, _, _ = strings.Cut(island, "</script>")
	var data struct{ Charts []document.Chart }
	if err := json.Unmarshal([]byte(strings.ReplaceAll(island, "null", "0")), &data); err != nil {
		t.Fatalf("parse the data of the charts: %v", err)
	}
	if name := data.Charts[0].Series[0].Name; !strings.Contains(name, "<script>alert(1)") {
		t.Errorf("series %q lost its name", name)
	}
}

// The page needs nothing but itself.
func TestHTMLIsSelfContained(t *testing.T) {
	got := printed(t, build(synthetic(6)))
	count := elements(t, got)
	for _, tag := range []string{"link", "img", "iframe", "base"} {
		if count[tag] > 0 {
			t.Errorf("page has %d %s elements", count[tag], tag)
		}
	}
	markup := strings.NewReplacer(library, "", script, "", style, "").Replace(got)
	for _, outside := range []string{"src=", "href=\"http", "url(", "@import"} {
		if strings.Contains(markup+style+script, outside) {
			t.Errorf("page refers to something outside: %s", outside)
		}
	}
	if !strings.Contains(got, "Licensed to the Apache Software Foundation") {
		t.Error("page lost the licence of the chart library")
	}
}

// What the charts show, the tables say.
func TestHTMLSaysEverythingWithoutJavaScript(t *testing.T) {
	doc := build(synthetic(6))
	got := strings.ReplaceAll(printed(t, doc), document.NoBreak, " ")
	for _, e := range dataOf(doc).Estimates {
		if e.Primary && !strings.Contains(got, ">"+document.Rounded(e.Center)+"</td>") {
			t.Errorf("no cell holds the value %s of %s in %s", document.Rounded(e.Center), e.Case, e.Configuration)
		}
	}
	for _, h := range doc.Headlines {
		if !strings.Contains(got, "<li>"+xhtml.EscapeString(h)+"</li>") {
			t.Errorf("page lacks the headline %q", h)
		}
	}
	if empty := printed(t, build(result.Run{ID: "r"}, nil)); strings.Contains(empty, library) {
		t.Error("a page without charts carries the chart library")
	}
}

func TestTextCannotSteerTheTerminal(t *testing.T) {
	var b bytes.Buffer
	if err := text.Print(&b, hostile(), text.Options{Width: 120}); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsRune(b.String(), '\x1b') {
		t.Error("an escape sequence of a name reached the terminal")
	}
}

func TestMarkdownEscapesNames(t *testing.T) {
	var b bytes.Buffer
	if err := render.Markdown(&b, hostile()); err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile("(?s)\n```text\n[^`]*\n```\n")
	if text := code.ReplaceAllString(b.String(), ""); strings.Contains(text, "```") || strings.Contains(text, "<script>") || strings.Contains(text, "**b**") {
		t.Error("a name became markup")
	}
	columns := 0
	for l := range strings.Lines(b.String()) {
		if !strings.HasPrefix(l, "|") {
			columns = 0
			continue
		}
		n := strings.Count(strings.ReplaceAll(l, `\|`, ""), "|")
		if columns != 0 && n != columns {
			t.Errorf("row with %d bars in a table of %d: %s", n, columns, l)
		}
		columns = n
	}
}

// Every document has the same columns, and a row for each estimate and comparison.
func TestCSVIsTidy(t *testing.T) {
	doc := build(holed())
	var b bytes.Buffer
	if err := render.CSV(&b, doc); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(rows[0], strings.Fields(runColumns)) {
		t.Errorf("columns %v", rows[0])
	}
	want := map[string]int{"estimate": len(dataOf(doc).Estimates)}
	for _, e := range dataOf(doc).Estimates {
		want["comparison"] += len(e.Comparisons)
	}
	field := map[string]int{}
	for i, name := range rows[0] {
		field[name] = i
	}
	got := map[string]int{}
	for _, row := range rows[1:] {
		got[row[field["kind"]]]++
		if row[field["n"]] == "0" && (row[field["estimate"]] != "" || row[field["low"]] != "") {
			t.Errorf("row without samples has numbers: %v", row)
		}
		if row[field["schema_version"]] != "2" || (row[field["kind"]] == "comparison") != (row[field["baseline"]] != "") {
			t.Errorf("row %v", row)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("rows %v, want %v", got, want)
	}
}

// benchstat reads what GoBench prints: every sample, in its unit, with the keys.
func TestGoBenchParsesBack(t *testing.T) {
	run, samples := synthetic(6)
	var b bytes.Buffer
	if err := render.GoBench(&b, build(run, samples)); err != nil {
		t.Fatal(err)
	}
	r := benchfmt.NewReader(&b, "report")
	lines, values := 0, 0
	for r.Scan() {
		switch rec := r.Result().(type) {
		case *benchfmt.SyntaxError:
			t.Errorf("syntax: %v", rec)
		case *benchfmt.Result:
			lines++
			values += len(rec.Values)
			if rec.GetConfig("accelerator") != "tcg" || rec.Iters != 1 {
				t.Errorf("%s: accelerator %q, %d iterations", rec.Name, rec.GetConfig("accelerator"), rec.Iters)
			}
			if lines == 1 {
				if string(rec.Name) != "UDPPingPong/size=64/config=NoCont" {
					t.Errorf("first benchmark %s", rec.Name)
				}
				if v, ok := rec.Value("sec/op"); !ok || math.Abs(v-samples[0].Value*1e-6) > 1e-15 {
					t.Errorf("latency %v, %v, want %v µs", v, ok, samples[0].Value)
				}
			}
		}
	}
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	if lines != 6*7*3 || values != len(samples) {
		t.Errorf("%d lines with %d values, want %d with %d", lines, values, 6*7*3, len(samples))
	}
	if got := r.Units().GetBetter("B/s"); got != 1 {
		t.Errorf("throughput: better %d, want higher", got)
	}
	if got := r.Units().GetBetter("sec/op"); got != -1 {
		t.Errorf("latency: better %d, want lower", got)
	}
	b.Reset()
	for i := range run.Configurations {
		run.Configurations[i].Name = fmt.Sprintf("poll-%d", 50*i)
	}
	run.Baselines = nil
	names := map[string]string{"NoCont": "poll-0", "NAT": "poll-50", "BrFusion": "poll-100"}
	for i := range samples {
		samples[i].Configuration = names[samples[i].Configuration]
	}
	if err := render.GoBench(&b, build(run, samples)); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for r = benchfmt.NewReader(&b, "report"); r.Scan(); {
		if rec, ok := r.Result().(*benchfmt.Result); ok {
			_, parts := rec.Name.Parts()
			found[string(parts[len(parts)-1])] = true
		}
	}
	if !maps.Equal(found, map[string]bool{"/config=poll_0": true, "/config=poll_50": true, "/config=poll_100": true}) {
		t.Errorf("configurations that end in a number: %v", found)
	}
}

// benchstat -col /config compares with the configuration that is printed first: the main baseline, whatever was measured
// first.
func TestGoBenchBeginsWithTheBaseline(t *testing.T) {
	run, samples := synthetic(6)
	slices.Reverse(samples)
	var b bytes.Buffer
	if err := render.GoBench(&b, build(run, samples)); err != nil {
		t.Fatal(err)
	}
	_, first, _ := strings.Cut(b.String(), "config=")
	if samples[0].Configuration == run.Baselines[0] || !strings.HasPrefix(first, run.Baselines[0]+"\t") {
		t.Errorf("%s was measured first, and %.20q is printed first, want %s", samples[0].Configuration, first, run.Baselines[0])
	}
}

func TestGoBenchWithHostileNamesParses(t *testing.T) {
	var b bytes.Buffer
	if err := render.GoBench(&b, hostile()); err != nil {
		t.Fatal(err)
	}
	r := benchfmt.NewReader(&b, "report")
	lines := 0
	for r.Scan() {
		switch rec := r.Result().(type) {
		case *benchfmt.SyntaxError:
			t.Errorf("syntax: %v", rec)
		case *benchfmt.Result:
			lines++
		}
	}
	if lines != 6*7*3 {
		t.Errorf("%d lines, want %d", lines, 6*7*3)
	}
}

func TestPKBLabels(t *testing.T) {
	var b bytes.Buffer
	if err := render.PKB(&b, hostile()); err != nil {
		t.Fatal(err)
	}
	var s struct {
		Metric, Unit, Test, Labels string
		Timestamp                  float64
	}
	if err := json.NewDecoder(&b).Decode(&s); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"|accelerator:tcg|,", "|block:0|", "|tag_a/b:c/,/d|"} {
		if !strings.Contains(s.Labels, want) {
			t.Errorf("labels %q lack %q", s.Labels, want)
		}
	}
	if s.Metric != "latency_mean" || s.Unit != "us" || s.Timestamp != float64(started.Unix()) || s.Test != "udp_rr/64" {
		t.Errorf("sample %+v", s)
	}
}
