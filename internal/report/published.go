package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unnest/internal/measure/result"
)

// PublishedLevel is one row of FitzGerald 2014, Tables 5-14: the mean of six
// runs of a SysBench test. A zero Throughput or Response was not published.
type PublishedLevel struct {
	Architecture  string // as printed: "S390x"
	Level         string // "L1", as configurations are named
	Overcommitted bool   // every level was given all processors and memory
	Test          string // "cpu", "memory (write)"
	Throughput    float64
	ThroughputSE  float64 // standard error
	Response      float64 // mean response time in ms
	ResponseSE    float64
}

// Published is a published mean beside one of ours, in our unit.
type Published struct {
	Architecture string `json:"architecture"`
	Mean         Number `json:"mean"`
	StdErr       Number `json:"stderr"`
	Change       Number `json:"change"` // against its own level below, of the printed means
}

// publishedTool is what the thesis measured with.
const publishedTool = "sysbench"

// matches reports whether p is of the test that a case runs: "memory (write)" is
// sysbench-memory-write, or memory_write when its tool is sysbench. The tests
// are nothing to the like-named cases of other tools.
func (p PublishedLevel) matches(c result.Case) bool {
	test := anchor(p.Test)
	for _, name := range []string{anchor(c.Name), anchor(groupKey(c))} {
		if name == publishedTool+"-"+test || c.Tool == publishedTool && name == test {
			return true
		}
	}
	return false
}

// addPublished sets the published means beside the estimates of l that they
// match: the same test, a configuration named after the level ("L1", "L1-3"),
// and, above L0, as many vCPUs as the level below with over-commitment, fewer
// without.
func (l *leveled) addPublished(rows []PublishedLevel) {
	rows = slices.DeleteFunc(slices.Clone(rows), func(p PublishedLevel) bool { return !p.matches(l.of) })
	for m := range l.metrics {
		for i, r := range l.rows {
			e := l.cells[m][i]
			overcommitted := r.vcpus == 0 || r.vcpus >= r.belowVCPUs
			for _, p := range rows {
				mean, stdErr, ok := p.in(l.metrics[m])
				if !ok || p.Overcommitted != overcommitted || p.Level != levelName(r.level) || !namedAfter(r.name, p.Level) {
					continue
				}
				change := missing
				if below, _, ok := p.below(rows).in(l.metrics[m]); ok {
					change = (mean - below) / below
				}
				e.Step.Published = append(e.Step.Published, Published{p.Architecture, mean, stdErr, change})
			}
		}
	}
}

// in returns the mean of p for one of our metrics, in its unit. A throughput of
// bytes or bits has no published counterpart.
func (p PublishedLevel) in(m result.Metric) (mean, stdErr Number, ok bool) {
	switch m.Name {
	case throughput:
		volume := strings.HasSuffix(m.Unit, "B/s") || strings.HasSuffix(m.Unit, "bit/s")
		return Number(p.Throughput), Number(p.ThroughputSE), p.Throughput != 0 && !volume
	case response:
		perUnit, known := milliseconds[m.Unit]
		return Number(p.Response / perUnit), Number(p.ResponseSE / perUnit), known && p.Response != 0
	}
	return missing, missing, false
}

// milliseconds are the units of response times.
var milliseconds = map[string]float64{"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1, "s": 1e3, "sec": 1e3}

// below returns the row of the level below p, an empty one at L0.
func (p PublishedLevel) below(rows []PublishedLevel) PublishedLevel {
	level, err := strconv.Atoi(strings.TrimPrefix(p.Level, "L"))
	i := slices.IndexFunc(rows, func(o PublishedLevel) bool {
		return err == nil && o.Level == levelName(level-1) && o.Architecture == p.Architecture && o.Overcommitted == p.Overcommitted && o.Test == p.Test
	})
	if i < 0 {
		return PublishedLevel{}
	}
	return rows[i]
}

// namedAfter reports whether a configuration is called as a level, or as the
// level with something after it: "L1", "L1-3", not "L10".
func namedAfter(name, level string) bool {
	rest, ok := strings.CutPrefix(name, level)
	return ok && (rest == "" || rest[0] < '0' || rest[0] > '9')
}

// publishedTable sets the published means beside ours; there is none when
// nothing matches.
func (b *builder) publishedTable(l leveled) (Table, bool) {
	t := Table{ID: l.id + "-published", Title: caseTitle(l.of) + ": beside the published means", Setting: setting(b.run)}
	architectures := publishedFor(l.estimates())
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
		"FitzGerald 2014, Tables 5-14: mean ± standard error of six runs of SysBench 0.5, throughput in transactions per second; ΔL follows from the printed means. The machines are others, so compare ΔL rather than the means.",
		"A configuration with fewer vCPUs than the level below stands beside the thesis' measurements without over-commitment, every other beside those with.",
	}
	return t, len(t.Rows) > 0
}

// publishedFor are the architectures published beside estimates, in their order.
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

// published returns what was published for an architecture, missing numbers if
// nothing.
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

// asPrinted prints a published number with the digits that it was printed with.
func asPrinted(v Number) string {
	if !v.Defined() {
		return none
	}
	const digits = 6 // more than any has; hides what a change of unit adds
	rounded, err := strconv.ParseFloat(strconv.FormatFloat(float64(v), 'g', digits, 64), 64)
	if err != nil {
		return none
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}
