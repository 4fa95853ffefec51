package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unnest/internal/measure/result"
	"unnest/internal/report/papers"
)

// Published is a published mean in our unit.
type Published struct {
	Architecture string `json:"architecture"`
	Mean         Number `json:"mean"`
	StdErr       Number `json:"stderr"`
	Change       Number `json:"change"` // against its own level below, of the printed means
}

// publishedTool is the tool of the thesis.
const publishedTool = "sysbench"

// testMatches reports whether a test of the thesis is the one that a case runs:
// "memory (write)" is sysbench-memory-write, or memory_write when its tool is sysbench.
// Cases of other tools with the same name do not match.
func testMatches(test string, c result.Case) bool {
	test = anchor(test)
	for _, name := range []string{anchor(c.Name), anchor(groupKey(c))} {
		if name == publishedTool+"-"+test || c.Tool == publishedTool && name == test {
			return true
		}
	}
	return false
}

// addPublished gives the estimates of l the published means that match: the same test,
// a configuration named after the level ("L1", "L1-3"), and, above L0, as many vCPUs as
// the level below with over-commitment, fewer without.
func (l *leveled) addPublished(rows []papers.SysbenchRow) {
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
				change := missing
				if below, _, ok := publishedMean(rowBelow(p, rows), l.metrics[m]); ok {
					change = (mean - below) / below
				}
				e.Step.Published = append(e.Step.Published, Published{p.Architecture, mean, stdErr, change})
			}
		}
	}
}

// publishedMean returns the mean of p for one of our metrics, in its unit. There is no
// published throughput in bytes or bits.
func publishedMean(p papers.SysbenchRow, m result.Metric) (mean, stdErr Number, ok bool) {
	printed, perUnit, known := p.Throughput, 1.0, !strings.HasSuffix(m.Unit, "B/s") && !strings.HasSuffix(m.Unit, "bit/s")
	if m.Name == response {
		printed = p.Response
		perUnit, known = milliseconds[m.Unit]
	}
	if m.Name != response && m.Name != throughput || !known || printed.Mean == "" {
		return missing, missing, false
	}
	return Number(printed.Mean.Float() / perUnit), Number(printed.StdErr.Float() / perUnit), true
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
func (l leveled) publishedTable() Table {
	t := Table{ID: l.id + "-published", Title: caseTitle(l.of) + ": this run and the published means"}
	architectures := publishedFor(values(slices.Concat(l.cells...)))
	t.Columns = []Column{{Name: "metric", Header: true}, {Name: "configuration", Header: true}, {Name: "this run", Numeric: true}, {Name: "ΔL", Numeric: true}}
	for _, a := range architectures {
		t.Columns = append(t.Columns, Column{Name: a, Numeric: true}, Column{Name: "ΔL " + a, Numeric: true})
	}
	for _, family := range l.cells {
		for i, e := range family {
			if len(e.Step.Published) == 0 {
				continue
			}
			name := withUnit(*e)
			row := []Cell{{Text: name, Repeat: len(t.Rows) > 0 && t.Rows[len(t.Rows)-1][0].Text == name}, {Text: l.rows[i].name, Series: l.rows[i].name},
				numeric(e.Mean, plusMinus(number(e.Mean), number(e.StdErr), e.StdErr)), changeCell(e.Step.Change)}
			for _, a := range architectures {
				p := e.Step.published(a)
				row = append(row, numeric(p.Mean, plusMinus(asPrinted(p.Mean), asPrinted(p.StdErr), p.StdErr)), changeCell(p.Change))
			}
			t.Rows = append(t.Rows, row)
		}
	}
	t.Notes = []string{
		"FitzGerald 2014, Tables 5-14: mean ± standard error of six runs of SysBench 0.5, throughput in transactions per second; ΔL follows from the printed means. The machines differ, so compare ΔL rather than the means.",
		"Configurations with fewer vCPUs than the level below are listed with the measurements without over-commitment, the others with those with over-commitment.",
	}
	return t
}

// publishedFor are the architectures with published means for estimates, in their order.
func publishedFor(estimates []Estimate) []string {
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

// published returns the published mean of an architecture, missing numbers if there is
// none.
func (s *Step) published(architecture string) Published {
	for _, p := range s.Published {
		if p.Architecture == architecture {
			return p
		}
	}
	return Published{architecture, missing, missing, missing}
}

func plusMinus(mean, stdErr string, se Number) string {
	if !se.Defined() {
		return mean
	}
	return fmt.Sprintf("%s ± %s", mean, stdErr)
}

// asPrinted prints a published number with its original digits.
func asPrinted(v Number) string {
	if !v.Defined() {
		return none
	}
	const digits = 6 // more than any has; hides rounding errors of a change of unit
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(float64(v), 'g', digits, 64), 64)
	if err != nil {
		return none
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}
