package report_test

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/render"
)

// withoutIntervals are the pages of results without an interval that could be drawn: checks, simulations on traces, and
// measurements with too few blocks.
var withoutIntervals = []string{"chaos", "cni-plugins", "fuzzing", "kubernetes-conformance", "kubernetes-pods", "kvm", "lost-dels", "plan-google2011", "plan-speed",
	"restore-soak", "split-pods"}

// Each page of results begins with a sentence that has the result, and a chart with intervals. -update draws the charts
// of pages that no report ends: of a run, of a column with intervals of the page's first table, or of clusters.
func TestPagesBeginWithTheirResult(t *testing.T) {
	files, err := filepath.Glob(docs + "/results/*.md")
	if err != nil {
		t.Fatal(err)
	}
	drawn := regexp.MustCompile(`(?s)(<!-- begin chart (run|column|clusters) (.+?) -->\n\n).*?(\n<!-- end chart -->)`)
	for _, file := range files {
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		text := drawn.ReplaceAllStringFunc(string(page), func(whole string) string {
			m := drawn.FindStringSubmatch(whole)
			var chart document.Chart
			if m[2] == "run" {
				doc, _ := kept(t, m[3])
				chart, _ = doc.Lead()
			} else if m[2] == "clusters" {
				chart = clustersChart(t, m[3])
			} else {
				chart = columnChart(t, string(page), m[3])
			}
			return m[1] + render.Plot(chart) + m[4]
		})
		rewrite(t, file, string(page), text, "draws another chart than its run or its table has")
		blocks := strings.SplitN(text, "\n\n", 5)
		if first := blocks[1]; !strings.HasPrefix(first, "**") && !strings.HasPrefix(first, "> Too noisy to conclude") {
			t.Errorf("%s begins with %.60q, want **its result.**", file, first)
		}
		head := strings.Join(blocks[2:4], "\n\n")
		if name := strings.TrimSuffix(filepath.Base(file), ".md"); strings.Contains(head, "```text\n") == slices.Contains(withoutIntervals, name) {
			t.Errorf("%s: want a chart with intervals after the result, or its name in withoutIntervals", file)
		}
	}
}

var (
	cellInterval = regexp.MustCompile(`(\d+(?:\.\d+)?)[^\d\[|]*\[(\d+(?:\.\d+)?), (\d+(?:\.\d+)?)\]`)
	cellChange   = regexp.MustCompile(`([+-]\d+) % \(([+-]\d+) to ([+-]\d+)\)`)
	link         = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// columnChart draws the column of a page that spec names by its number from 1, before its title: the ratios of the first
// table that has one there, with the first cells of its rows that tell them apart.
func columnChart(t *testing.T, page, spec string) document.Chart {
	t.Helper()
	column, title, _ := strings.Cut(spec, " ")
	n, err := strconv.Atoi(column)
	if err != nil {
		t.Fatal(err)
	}
	c := document.Chart{Kind: document.Ratios, Title: title, Axis: "ratio", Series: []document.ChartSeries{{}}}
	var rows [][]string
	for _, line := range append(strings.Split(page, "\n"), "") {
		cells := strings.Split(strings.Trim(between.ReplaceAllString(notText.ReplaceAllString(line, ""), "|"), "| "), "|")
		if !strings.HasPrefix(line, "|") {
			if len(rows) > 0 {
				break
			}
			continue
		}
		if len(cells) < n {
			continue
		}
		var numbers []document.Number
		if m := cellInterval.FindStringSubmatch(cells[n-1]); m != nil {
			numbers = parsed(m[1:], func(v float64) float64 { return v })
		} else if m := cellChange.FindStringSubmatch(cells[n-1]); m != nil {
			numbers = parsed(m[1:], func(v float64) float64 { return 1 + v/100 })
		} else {
			continue
		}
		if numbers[1] == numbers[2] { // the row that the others are compared with
			continue
		}
		rows = append(rows, cells)
		c.Series[0].Add(numbers[0], document.Interval{Low: numbers[1], High: numbers[2]})
	}
	for first := 1; ; first++ {
		c.Categories = nil
		for _, cells := range rows {
			c.Categories = append(c.Categories, link.ReplaceAllString(strings.Join(cells[:first], ", "), "$1"))
		}
		if len(slices.Compact(slices.Sorted(slices.Values(c.Categories)))) == len(rows) {
			break
		}
	}
	c.Complete()
	return c
}

// clustersChart draws the ratio of the cost of Unnest's plans to that of Karpenter's, within the clusters of the table of plan-karpenter.
func clustersChart(t *testing.T, title string) document.Chart {
	t.Helper()
	cluster := 0
	k := readRounds(t, "plan-karpenter", func(header, row []string, add func(where, what string, round int, value string)) {
		cluster++
		for i, name := range header {
			add(name, "", cluster, row[i])
		}
	})
	c := document.Chart{Kind: document.Ratios, Title: title, Axis: "ratio", Series: []document.ChartSeries{{}}, Categories: []string{"a new cluster", "from today's nodes"}}
	for _, over := range []string{"karpenter_new", "karpenter_today"} {
		e := k.effect(t, "unnest", over, "")
		i := e.Interval(stats.DefaultConfidence)
		c.Series[0].Add(document.Number(e.Ratio()), document.Interval{Low: document.Number(i.Low), High: document.Number(i.High)})
	}
	c.Complete()
	return c
}

// between two cells are spaces.
var between = regexp.MustCompile(` *\| *`)

// notText are marks of numbers and of bold text.
var notText = regexp.MustCompile(`<!--.*?-->|\*\*`)

func parsed(texts []string, of func(float64) float64) (ns []document.Number) {
	for _, text := range texts {
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			panic(err)
		}
		ns = append(ns, document.Number(of(v)))
	}
	return ns
}

// keptRounds are values by round of the table that a page keeps: by what was measured, and where.
type keptRounds map[[2]string][]stats.Observation

// readRounds reads a table: name and value take a row apart.
func readRounds(t *testing.T, page string, take func(header, row []string, add func(where, what string, round int, value string))) keptRounds {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(docs, "results", page+".csv"))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(bytes.NewReader(content)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	kept := keptRounds{}
	for _, row := range rows[1:] {
		take(rows[0], row, func(where, what string, round int, value string) {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			key := [2]string{where, what}
			kept[key] = append(kept[key], stats.Observation{Block: round, Value: v})
		})
	}
	return kept
}

// mean prints the geometric mean of what was measured somewhere, with its interval from six rounds on.
func (k keptRounds) mean(t *testing.T, where, what string, decimals int) string {
	t.Helper()
	xs := stats.Values(k[[2]string{where, what}])
	if len(xs) == 0 {
		return ""
	}
	s, err := stats.Summarize(xs)
	if err != nil {
		t.Fatal(err)
	}
	text := strconv.FormatFloat(s.Center, 'f', decimals, 64)
	if i, err := stats.CenterInterval(xs, stats.DefaultConfidence); err == nil {
		text += fmt.Sprintf(" [%.*f, %.*f]", decimals, i.Low, decimals, i.High)
	}
	return text
}

// effect is the ratio of what was measured at two places.
func (k keptRounds) effect(t *testing.T, where, over, what string) stats.Effect {
	t.Helper()
	e, err := stats.Compare(k[[2]string{where, what}], k[[2]string{over, what}], true)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func ratioText(e stats.Effect, i stats.Interval) string {
	if !i.Defined() {
		return fmt.Sprintf("%.2f", e.Ratio())
	}
	return fmt.Sprintf("%.2f [%.2f, %.2f]", e.Ratio(), i.Low, i.High)
}

// recomputed are the pages whose numbers follow from a table of all rounds next to them: each returns the cells that a
// table of the page has in the row that begins with these cells, by the header of that table.
var recomputed = map[string]func(t *testing.T) func(header, row []string) []string{
	"hostlo-latency": func(t *testing.T) func(header, row []string) []string {
		k := readRounds(t, "hostlo-latency", func(_, row []string, add func(where, what string, round int, value string)) {
			round, err := strconv.Atoi(row[2])
			if err != nil {
				t.Fatal(err)
			}
			add(row[0], row[1], round, row[3])
		})
		ratio := func(way, over string) string {
			e := k.effect(t, way, over, "round trip, µs")
			return ratioText(e, e.Interval(stats.DefaultConfidence))
		}
		return func(header, row []string) (cells []string) {
			switch header[0] {
			case "":
				return []string{row[0], k.mean(t, row[0], "round trip, µs", 1), ratio(row[0], "SameNode"), ratio(row[0], "Hostlo"), k.mean(t, row[0], "round trip with all times recorded, µs", 1)}
			case "part, µs":
				cells = []string{row[0]}
				for _, way := range header[1:] {
					cells = append(cells, k.mean(t, way, row[0], 1))
				}
			case "QEMU, for a round trip":
				cells = []string{row[0]}
				for _, what := range header[1:] {
					// The second "get one, times" of the header ends with a space, as in the rounds.
					cells = append(cells, k.mean(t, row[0], what, 1))
				}
			case "eBPF programs":
				at := strings.LastIndex(row[0], ", ")
				at = strings.LastIndex(row[0][:at], ", ")
				cells = []string{row[0], k.mean(t, row[0][:at], row[0][at+2:], 1)}
			}
			return cells
		}
	},
	"poll": func(t *testing.T) func(header, row []string) []string {
		const trip, vhost, first = "median round trip, us", "vhost-net for a round trip, us", ", 200000, 0"
		k := readRounds(t, "poll", func(header, row []string, add func(where, what string, round int, value string)) {
			round, err := strconv.Atoi(row[3])
			if err != nil {
				t.Fatal(err)
			}
			for i := 4; i < 6; i++ {
				add(strings.ToUpper(row[0])+", "+row[1]+", "+row[2], header[i], round, row[i])
			}
		})
		family := map[string]stats.Family{}
		for _, what := range []string{trip, vhost} {
			var ps []float64
			for key := range k {
				if protocol, _, _ := strings.Cut(key[0], ","); key[1] == what && key[0] != protocol+first {
					ps = append(ps, k.effect(t, key[0], protocol+first, what).P())
				}
			}
			family[what] = stats.Judge(ps, stats.DefaultAlpha)
		}
		ratio := func(where, over, what string) string {
			if where == over {
				return "1"
			}
			e := k.effect(t, where, over, what)
			i, verdict := e.Judge(family[what], stats.DefaultMargin, false)
			if text := ratioText(e, i); verdict != stats.Better && verdict != stats.Worse {
				return text
			}
			return "**" + ratioText(e, i) + "**"
		}
		return func(header, row []string) []string {
			if len(header) < 8 || header[1] != "halt_poll_ns" {
				return nil
			}
			where := strings.Join(row[:3], ", ")
			return append(slices.Clone(row[:3]), k.mean(t, where, trip, 0), ratio(where, row[0]+first, trip), k.mean(t, where, vhost, 0), ratio(where, row[0]+first, vhost), row[7])
		}
	},
	"kubernetes-pods": func(t *testing.T) func(header, row []string) []string {
		k := readRounds(t, "kubernetes-pods", func(header, row []string, add func(where, what string, round int, value string)) {
			round, err := strconv.Atoi(row[1])
			if err != nil {
				t.Fatal(err)
			}
			for i := 2; i < len(row); i++ {
				add(row[0], strings.TrimSuffix(header[i], ", s"), round, row[i])
			}
		})
		return func(header, row []string) []string {
			if header[0] != "seconds" {
				return nil
			}
			ratio := fmt.Sprintf("%.2f, too few blocks for a verdict", k.effect(t, "brfusion", "bridge", row[0]).Ratio())
			return []string{row[0], k.mean(t, "brfusion", row[0], 1), k.mean(t, "bridge", row[0], 1), ratio}
		}
	},
}

// cellsOf returns the cells of a row in Markdown.
func cellsOf(line string) []string {
	cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|"), "|")
	for i, c := range cells {
		cells[i] = strings.TrimSuffix(strings.TrimPrefix(c, " "), " ")
	}
	return cells
}

// computedAgain computes the tables of a page of results again from the table of all rounds next to it, and returns the
// page without the rows that it has computed.
func computedAgain(t *testing.T, file, page string) string {
	t.Helper()
	of, has := recomputed[strings.TrimSuffix(filepath.Base(file), ".md")]
	if !has || filepath.Base(filepath.Dir(file)) != "results" {
		return page
	}
	want, rest, found, known := of(t), []string{}, 0, []string{}
	var header []string
	for line := range strings.Lines(page) {
		switch {
		case !strings.HasPrefix(line, "|"):
			header = nil
		case header == nil:
			header = cellsOf(strings.TrimSpace(line))
		case !strings.HasPrefix(line, "| ---") && !strings.HasPrefix(line, "|---"):
			row := cellsOf(strings.TrimSpace(line))
			if cells := want(header, row); cells != nil {
				if found++; !slices.Equal(cells, row) {
					t.Errorf("%s: row\n%q, but the rounds have\n%q", file, row, cells)
				}
				for _, cell := range cells {
					if strings.Contains(cell, "[") || strings.Contains(cell, "blocks for a verdict") {
						known = append(known, strings.Trim(cell, "*"), "")
					}
				}
				continue
			}
		}
		rest = append(rest, line)
	}
	if found == 0 {
		t.Errorf("%s: no row was computed again", file)
	}
	return strings.NewReplacer(known...).Replace(strings.Join(rest, "")) // a sentence repeats a cell
}
