package report_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/noise"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/advice"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/papers"
	"unnest.io/unnest/internal/report/provenance"
	"unnest.io/unnest/internal/report/record"
	"unnest.io/unnest/internal/report/render"
	"unnest.io/unnest/internal/report/runs"
)

const docs = "../../docs"

// kept returns the report of a published run.
func kept(t *testing.T, name string) (document.Document, result.Run) {
	t.Helper()
	if page, computed := strings.CutPrefix(name, "page:"); computed {
		return tablesOf(t, page), result.Run{}
	}
	name, advised := strings.CutPrefix(name, "advice:")
	run, journal, err := rundir.Read(docs + "/results/runs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if advised {
		return advice.Build(provenance.Source{Run: run, Samples: noise.Select(journal)}, nil), run
	}
	return runs.Build(run, noise.Select(journal), runs.Options{Dir: "docs/results/runs/" + name, Papers: papers.All()}), run
}

// tablesOf returns the tables of a page that recomputed has. Their IDs count from 1. The second of two columns with one name
// gets the suffix _2.
func tablesOf(t *testing.T, name string) (doc document.Document) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(docs, "results", name+".md"))
	if err != nil || recomputed[name] == nil {
		t.Fatalf("recomputed has no page %s (%v)", name, err)
	}
	var tables []document.Table
	before := ""
	for line := range strings.Lines(string(page)) {
		var row []document.Cell
		for _, text := range cellsOf(strings.TrimSpace(line)) {
			row = append(row, document.Cell{Text: text})
		}
		switch last := len(tables) - 1; {
		case !strings.HasPrefix(line, "|"):
		case !strings.HasPrefix(before, "|"):
			table := document.Table{ID: strconv.Itoa(last + 2)}
			names := map[string]bool{}
			for _, c := range row {
				if names[c.Text] {
					c.Text += " 2"
				}
				names[c.Text] = true
				table.Columns = append(table.Columns, document.Column{Name: c.Text})
			}
			tables = append(tables, table)
		default:
			tables[last].Rows = append(tables[last].Rows, row)
		}
		before = line
	}
	return document.Document{Groups: []document.Group{{Tables: tables}}}
}

// rewrite makes the file of a page have text, with -update, or fails.
func rewrite(t *testing.T, file, page, text, what string) {
	t.Helper()
	switch {
	case page == text:
	case *update:
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s %s; rewrite it with -update", file, what)
	}
}

// byHand are the pages of published runs that no report ends.
var byHand = []string{"aa", "boot"}

// TestPublishedPages compares each page that shows a run with the report of the run. A page may have a part of
// its own before it, which takes the place of the report's title. -update writes the report again.
func TestPublishedPages(t *testing.T) {
	dirs, err := filepath.Glob(docs + "/results/runs/*")
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, dir := range dirs {
		name := filepath.Base(dir)
		file := filepath.Join(docs, "results", name+".md")
		page, err := os.ReadFile(file)
		if os.IsNotExist(err) || slices.Contains(byHand, name) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		doc, _ := kept(t, name)
		var out bytes.Buffer
		if err := render.Markdown(&out, doc); err != nil {
			t.Fatal(err)
		}
		title, rest, _ := strings.Cut(strings.TrimRight(out.String(), "\n")+"\n", "\n")
		head := title + "\n"
		if before, _, own := strings.Cut(string(page), "## The run\n"); own && !strings.HasPrefix(string(page), title) {
			head = before + "## The run\n"
		}
		compared++
		for _, g := range doc.Groups {
			for _, c := range g.Charts {
				slots := map[int]bool{}
				for _, one := range c.Series {
					if slots[one.Slot] {
						t.Errorf("%s: chart %s: %s looks like another series", name, c.ID, one.Name)
					}
					slots[one.Slot] = true
				}
			}
		}
		rewrite(t, file, string(page), head+rest, "shows another report than its run has")
	}
	if compared < 35 {
		t.Errorf("compared %d pages", compared)
	}
}

// A mark says of which run a number is: the run, the case (or suite:NAME), the metric and the configuration, or the
// configuration / the baseline, and perhaps a form: mean, min or max of the values; lower or higher, in percent, of a
// ratio; of a suite, geomean, or verdicts against the baseline: slower, faster, equal and not known. A mark of a cell of a
// table of the run's page has table:ID, the cells that find its row, with semicolons between them, and the column; _ is a space. In place of the run,
// advice:RUN is the advice on a run, and page:NAME a page whose tables the tests recompute from all rounds; 1 is the ID of the first table.
var (
	marked = regexp.MustCompile(`<!-- = (\S+) (\S+) (\S+) (\S+?)(?:/([^\s/]+))?( \w+)? -->(\**(?:\d+(?:\.\d+)?)(?:, \d+, \d+, \d+| ?[^\d\[|,.;<>()]{0,12}\[\d+(?:\.\d+)?, \d+(?:\.\d+)?\])?)`)
	anyKey = regexp.MustCompile(`<!-- = `)
	number = regexp.MustCompile(`\d+(?:\.\d+)?`)
)

// cellOf returns the numbers in a cell of a table of a report.
func cellOf(doc document.Document, id, row, column string) (found []float64, err error) {
	words := strings.NewReplacer("_", " ")
	for _, g := range doc.Groups {
		for _, table := range g.Tables {
			j := slices.IndexFunc(table.Columns, func(c document.Column) bool { return words.Replace(c.Name) == words.Replace(column) })
			if table.ID != id || j < 0 {
				continue
			}
			for _, cells := range table.Rows {
				names := strings.Split(words.Replace(row), ";")
				if slices.ContainsFunc(names, func(name string) bool {
					return !slices.ContainsFunc(cells, func(c document.Cell) bool { return words.Replace(c.Text) == name })
				}) {
					continue
				}
				for _, text := range number.FindAllString(cells[j].Text, -1) {
					v, err := strconv.ParseFloat(text, 64)
					if err != nil {
						return nil, err
					}
					found = append(found, v)
				}
				return found, nil
			}
		}
	}
	return nil, fmt.Errorf("no cell %s of %s in table %s", column, row, id)
}

// numbersOf returns the numbers for a mark: a value, and the ends of its interval; or counts of verdicts.
func numbersOf(data record.Data, suite bool, name, metric, configuration, baseline, form string) ([]float64, error) {
	if suite && form == "geomean" {
		for _, s := range data.Suites {
			for _, total := range s.Totals {
				if s.Suite == name && total.Configuration == configuration {
					return []float64{float64(total.GeoMean), float64(total.Interval.Low), float64(total.Interval.High)}, nil
				}
			}
		}
		return nil, fmt.Errorf("no total of suite %s in %s", name, configuration)
	}
	counts := map[stats.Verdict]int{}
	for _, e := range data.Estimates {
		mine := e.Configuration == configuration && (e.Metric == metric || metric == "primary" && e.Primary)
		if !mine || suite && e.Suite != name || !suite && e.Case != name {
			continue
		}
		c := e.Against(baseline)
		if baseline != "" && c == nil {
			return nil, fmt.Errorf("%s has no comparison with %s", configuration, baseline)
		}
		if suite {
			counts[c.Verdict]++
			continue
		}
		return formOf(e, c, form)
	}
	if suite && len(counts) > 0 {
		return []float64{float64(counts[stats.Worse]), float64(counts[stats.Better]), float64(counts[stats.Equal]), float64(counts[stats.Unknown] + counts[stats.TooFew])}, nil
	}
	return nil, fmt.Errorf("no %s of %s in %s", metric, name, configuration)
}

func formOf(e estimate.Estimate, c *estimate.Comparison, form string) ([]float64, error) {
	value, interval := e.Center, e.Interval
	if c != nil {
		value, interval = c.Ratio, c.Interval
	}
	low, high := float64(interval.Low), float64(interval.High)
	switch form {
	case "":
		return []float64{float64(value), low, high}, nil
	case "mean":
		return []float64{float64(e.Mean)}, nil
	case "min":
		return []float64{float64(e.Min)}, nil
	case "max":
		return []float64{float64(e.Max)}, nil
	case "lower":
		return []float64{100 * (1 - float64(value)), 100 * (1 - high), 100 * (1 - low)}, nil
	case "higher":
		return []float64{100 * (float64(value) - 1), 100 * (low - 1), 100 * (high - 1)}, nil
	}
	return nil, fmt.Errorf("unknown form %q", form)
}

// TestMarkedNumbers computes each marked number of a page again, and rounds it as it is printed. -update writes
// the numbers again.
func TestMarkedNumbers(t *testing.T) {
	reports, docsOf := map[string]record.Data{}, map[string]document.Document{}
	checked := 0
	for _, file := range handWritten(t) {
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		good := 0
		text := marked.ReplaceAllStringFunc(string(page), func(whole string) string {
			m := marked.FindStringSubmatch(whole)
			good++
			if _, has := reports[m[1]]; !has {
				docsOf[m[1]], _ = kept(t, m[1])
				reports[m[1]] = record.Data{}
				if !strings.Contains(m[1], ":") {
					reports[m[1]] = dataOf(docsOf[m[1]])
				}
			}
			name, suite := strings.CutPrefix(m[2], "suite:")
			want, err := numbersOf(reports[m[1]], suite, name, m[3], m[4], m[5], strings.TrimSpace(m[6]))
			if id, cell := strings.CutPrefix(m[2], "table:"); cell {
				column, _, _ := strings.Cut(strings.TrimPrefix(whole, "<!-- = "+strings.Join(m[1:4], " ")+" "), " -->")
				want, err = cellOf(docsOf[m[1]], id, m[3], column)
			}
			if err != nil {
				t.Errorf("%s: %s: %v", file, whole, err)
				return whole
			}
			i := -1
			shown := number.ReplaceAllStringFunc(m[7], func(old string) string {
				if i++; i >= len(want) || math.IsNaN(want[i]) {
					t.Errorf("%s: %s: there is no number for %s", file, whole, old)
					return old
				}
				_, decimals, _ := strings.Cut(old, ".")
				now := strconv.FormatFloat(want[i], 'f', len(decimals), 64)
				if now != old && !*update {
					t.Errorf("%s: %s: the run has %s instead of %s", file, whole, now, old)
				}
				return now
			})
			return strings.TrimSuffix(whole, m[7]) + shown
		})
		if n := len(anyKey.FindAllString(string(page), -1)); n != good {
			t.Errorf("%s: %d of %d marks have no number behind them, or no key", file, n-good, n)
		}
		if at := regexp.MustCompile(`(?m)^ *<!-- = .*$`).FindString(string(page)); at != "" {
			t.Errorf("%s: %.60s: a mark at the beginning of a line ends the paragraph: put a word before it", file, at)
		}
		checked += good
		if *update && text != string(page) {
			rewrite(t, file, string(page), text, "")
		}
	}
	if checked < 100 {
		t.Errorf("checked %d marks", checked)
	}
}

// handWritten are the pages that no report ends.
func handWritten(t *testing.T) (files []string) {
	t.Helper()
	for _, pattern := range []string{"/../README.md", "/*.md", "/*/*.md"} {
		matches, err := filepath.Glob(docs + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range matches {
			name := strings.TrimSuffix(filepath.Base(file), ".md")
			_, err := os.Stat(filepath.Join(docs, "results/runs", name))
			if filepath.Base(filepath.Dir(file)) != "results" || err != nil || slices.Contains(byHand, name) {
				files = append(files, file)
			}
		}
	}
	return files
}

// versions are numbers that nobody measures: versions of programs, sections of papers, and aims.
var versions = regexp.MustCompile(`(?i)\bApache-2\.0|§\d+\.\d+|\b(aim|AppArmor|CNI|containerd|CRI-O|Debian|Docker|ESXi|Go|Helm|Karpenter|Kafka|kernel|Kubernetes|libvirt|Linux|MySQL|nerdctl|NGINX|NVRAM|Podman|QEMU|SciMark|Spark|sysbench|systemd|TLS|Ubuntu|version|virtiofsd|Xen)( of)?( the)? \(?v?(\d:)?\d+\.\d+`)

var notProse = regexp.MustCompile("(?s)<!-- begin (\\S+) -->.*?<!-- end \\S+ -->|```.*?```|`[^`]*`|\\]\\([^)]*\\)|(?m:^(?: {4}|\t)[^\n]*$)")

// unmarked is how many decimal fractions of a page have no mark yet. Make it smaller, not larger: mark what a
// published run has. The rest is of papers, plans, prices, settings and of pages that a test writes, whose command the page names.
var unmarked = map[string]int{
	"README.md": 1, "docs/decisions/statistics.md": 2, "docs/explanation/snapshots.md": 1, "docs/explanation/statistics.md": 7,
	"docs/plan.md": 3, "docs/results/busy-tenant.md": 7, "docs/results/kubernetes-conformance.md": 1,
	"docs/results/plan-google2011.md": 89, "docs/results/poll.md": 2, "docs/results/quickstart-decisions.md": 67,
	"docs/results/sched-cost.md": 7, "docs/results/split-pods.md": 19, "docs/results/xen-cost.md": 6, "docs/suites.md": 3,
}

// A number that is new on a page has a mark, or is not a measurement.
func TestUnmarkedNumbers(t *testing.T) {
	decimal, address := regexp.MustCompile(`\b\d+\.\d+\b`), regexp.MustCompile(`\bv?\d+(\.\d+){2,}\b`)
	for _, file := range handWritten(t) {
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := address.ReplaceAllString(marked.ReplaceAllString(notProse.ReplaceAllString(computedAgain(t, file, string(page)), " "), " "), " ")
		text = versions.ReplaceAllString(text, " ")
		name := strings.TrimPrefix(filepath.ToSlash(filepath.Clean(file)), "../../")
		if n := len(decimal.FindAllString(text, -1)); n != unmarked[name] {
			t.Errorf("%s: %d decimal fractions without a mark, want %d: put <!-- = RUN CASE METRIC CONFIGURATION/BASELINE --> before a new one", name, n, unmarked[name])
		}
	}
}
