package levels

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/naming"
	"unnest.io/unnest/internal/report/papers"
)

// publishedTool is the tool of the thesis.
const publishedTool = "sysbench"

// testMatches reports whether a test of the thesis is the one that a case runs:
// "memory (write)" is sysbench-memory-write, or memory_write when its tool is sysbench.
// Cases of other tools with the same name do not match.
func testMatches(test string, c result.Case) bool {
	test = document.Anchor(test)
	names := []string{document.Anchor(c.Name), document.Anchor(naming.GroupKey(c))}
	return slices.Contains(names, publishedTool+"-"+test) || c.Tool == publishedTool && slices.Contains(names, test)
}

// addPublished gives the estimates of l the published means that match: the same test,
// a configuration named after the level ("L1", "L1-3"), and, above L0, as many vCPUs as
// the level below with over-commitment, fewer without.
func (l *leveledCase) addPublished(rows []papers.SysbenchRow) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(p papers.SysbenchRow) bool { return !testMatches(p.Test, l.of) })
	for m := range l.metrics {
		for i, r := range l.rows {
			e := l.cells[m][i]
			overcommitted := r.vcpus == 0 || r.vcpus >= r.belowVCPUs
			for _, p := range rows {
				mean, stdErr, ok := publishedMean(p, l.metrics[m])
				if !ok || p.Overcommitted != overcommitted || p.Level != levelName(r.level) || !namedAfter(r.name, p.Level) {
					continue
				}
				change := document.Missing
				if below, _, ok := publishedMean(rowBelow(p, rows), l.metrics[m]); ok {
					change = (mean - below) / below
				}
				e.Step.Published = append(e.Step.Published, estimate.Published{Architecture: p.Architecture, Mean: mean, StdErr: stdErr, Change: change})
			}
		}
	}
}

// publishedMean returns the mean of p for one of our metrics, in its unit. There is no
// published throughput in bytes or bits.
func publishedMean(p papers.SysbenchRow, m result.Metric) (mean, stdErr document.Number, ok bool) {
	printed, perUnit, known := p.Throughput, 1.0, !strings.HasSuffix(m.Unit, "B/s") && !strings.HasSuffix(m.Unit, "bit/s")
	if m.Name == response {
		printed = p.Response
		perUnit, known = naming.Milliseconds[m.Unit]
	}
	if m.Name != response && m.Name != throughput || !known || printed.Mean == "" {
		return document.Missing, document.Missing, false
	}
	return document.Number(printed.Mean.Float() / perUnit), document.Number(printed.StdErr.Float() / perUnit), true
}

// rowBelow returns the row of the level below p, an empty one at L0.
func rowBelow(p papers.SysbenchRow, rows []papers.SysbenchRow) papers.SysbenchRow {
	level, err := strconv.Atoi(strings.TrimPrefix(p.Level, "L"))
	i := slices.IndexFunc(rows, func(o papers.SysbenchRow) bool {
		return err == nil && o.Level == levelName(level-1) && o.Architecture == p.Architecture && o.Overcommitted == p.Overcommitted && o.Test == p.Test
	})
	if i < 0 {
		return papers.SysbenchRow{}
	}
	return rows[i]
}

// namedAfter reports whether the name of a configuration is a level or begins with it:
// "L1", "L1-3", not "L10".
func namedAfter(name, level string) bool {
	rest, ok := strings.CutPrefix(name, level)
	return ok && (rest == "" || rest[0] < '0' || rest[0] > '9')
}

// publishedTable lists our means with the published ones; it is empty when nothing
// matches.
func (l leveledCase) publishedTable() document.Table {
	t := document.Table{ID: l.id + "-published", Title: naming.Case(l.of) + ": this run and the published means"}
	architectures := publishedFor(values(slices.Concat(l.cells...)))
	t.Columns = []document.Column{{Name: "metric", Header: true}, {Name: "configuration", Header: true}, {Name: "this run", Numeric: true}, {Name: "ΔL", Numeric: true}}
	for _, a := range architectures {
		t.Columns = append(t.Columns, document.Column{Name: a, Numeric: true}, document.Column{Name: "ΔL " + a, Numeric: true})
	}
	for _, family := range l.cells {
		for i, e := range family {
			if len(e.Step.Published) == 0 {
				continue
			}
			name := estimate.WithUnit(*e)
			row := []document.Cell{{Text: name, Repeat: len(t.Rows) > 0 && t.Rows[len(t.Rows)-1][0].Text == name}, {Text: l.rows[i].name, Series: l.rows[i].name},
				document.NumericCell(e.Mean, plusMinus(document.Rounded(e.Mean), document.Rounded(e.StdErr), e.StdErr)), document.ChangeCell(e.Step.Change)}
			for _, a := range architectures {
				p := publishedOf(e.Step, a)
				row = append(row, document.NumericCell(p.Mean, plusMinus(asPrinted(p.Mean), asPrinted(p.StdErr), p.StdErr)), document.ChangeCell(p.Change))
			}
			t.Rows = append(t.Rows, row)
		}
	}
	t.Notes = []string{
		"FitzGerald 2014, Tables 5-14: mean ± standard error of SysBench 0.5, of a number of runs that is not printed (six fit the p of §3.1), throughput in transactions per second; ΔL follows from the printed means. The machines differ, so compare ΔL rather than the means.",
		"Configurations with fewer vCPUs than the level below are listed with the measurements without over-commitment, the others with those with over-commitment.",
	}
	return t
}

// publishedFor are the architectures with published means for estimates, in their order.
func publishedFor(estimates []estimate.Estimate) []string {
	var names []string
	for _, e := range estimates {
		if e.Step == nil {
			continue
		}
		for _, p := range e.Step.Published {
			if !slices.Contains(names, p.Architecture) {
				names = append(names, p.Architecture)
			}
		}
	}
	return names
}

// publishedOf returns the published mean of an architecture, missing numbers if there is
// none.
func publishedOf(s *estimate.Step, architecture string) estimate.Published {
	for _, p := range s.Published {
		if p.Architecture == architecture {
			return p
		}
	}
	return estimate.Published{Architecture: architecture, Mean: document.Missing, StdErr: document.Missing, Change: document.Missing}
}

func plusMinus(mean, stdErr string, se document.Number) string {
	if !se.Defined() {
		return mean
	}
	return fmt.Sprintf("%s ± %s", mean, stdErr)
}

// asPrinted prints a published number with its original digits.
func asPrinted(v document.Number) string {
	if !v.Defined() {
		return document.None
	}
	const digits = 6 // more than any has; hides rounding errors of a change of unit
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(float64(v), 'g', digits, 64), 64)
	if err != nil {
		return document.None
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}
