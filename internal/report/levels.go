package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"unnest/internal/result"
	"unnest/internal/stats"
)

// Step is an Estimate by its level of virtualization, as FitzGerald 2014, Tables
// 5-14, sets it out: beside what is one level below. Relative numbers are
// fractions.
type Step struct {
	Level         int           `json:"level"`           // hypervisors under the operating system
	Below         string        `json:"below,omitempty"` // the configuration one level below, none at the lowest
	RelStdErr     Number        `json:"relative_stderr"` // standard error over the mean
	Change        Number        `json:"change"`          // of the mean against that of Below: the thesis' ΔL
	VCPUs         int           `json:"vcpus,omitempty"` // set when the levels have different numbers
	PerVCPU       Number        `json:"per_vcpu"`        // mean over VCPUs, of throughput only
	ChangePerVCPU Number        `json:"change_per_vcpu"`
	T             Number        `json:"t"` // Welch's, with the sign of Change
	DF            Number        `json:"df"`
	P             Number        `json:"p"`
	Adjusted      Number        `json:"adjusted_p"` // by Holm over the case's table
	Detectable    Number        `json:"detectable"` // smallest change this run could have seen
	Verdict       stats.Verdict `json:"verdict,omitempty"`
	Published     []Published   `json:"published,omitempty"`
}

// ladder is a set of configurations that differ in their level of virtualization
// and in the size of their guests only.
type ladder struct {
	levels []int                    // ascending
	rungs  [][]result.Configuration // of each level, in the order of the run
}

// at returns the k-th configuration of the i-th level, the last one where there
// are fewer. Runs with and without over-commitment share one L0 (FitzGerald 2014,
// §2.4).
func (l ladder) at(i, k int) result.Configuration {
	return l.rungs[i][min(k, len(l.rungs[i])-1)]
}

// width returns the number of configurations of the level that has most.
func (l ladder) width() int {
	most := 0
	for _, r := range l.rungs {
		most = max(most, len(r))
	}
	return most
}

// names joins the k-th configurations from the lowest level up.
func (l ladder) names(k int) string {
	var names []string
	for i := range l.levels {
		names = append(names, l.at(i, k).Name)
	}
	return strings.Join(names, " → ")
}

// ladders finds the configurations of a run that stand at several levels: those
// alike in what stands above the VMs and in every option but the size of the
// guest.
func ladders(run result.Run) []ladder {
	var order []string
	levels := map[string]map[int][]result.Configuration{}
	for _, c := range run.Configurations {
		level, above, known := levelOf(c.Stack)
		if !known {
			continue
		}
		key := above + "\x00" + sharedOptions(c.Options)
		if levels[key] == nil {
			order, levels[key] = append(order, key), map[int][]result.Configuration{}
		}
		levels[key][level] = append(levels[key][level], c)
	}
	var found []ladder
	for _, key := range order {
		if len(levels[key]) < 2 {
			continue
		}
		l := ladder{levels: slices.Sorted(maps.Keys(levels[key]))}
		for _, level := range l.levels {
			l.rungs = append(l.rungs, levels[key][level])
		}
		found = append(found, l)
	}
	return found
}

// levelOf counts the VMs of a stack and returns what stands above them. It is
// not known of a machine reached over SSH.
func levelOf(stack string) (level int, above string, known bool) {
	var rest []string
	for layer := range strings.SplitSeq(stack, "/") {
		switch layer {
		case "ssh", "":
			return 0, "", false
		case "vm":
			level++
		case "metal":
		default:
			rest = append(rest, layer)
		}
	}
	return level, strings.Join(rest, "/"), true
}

// sharedOptions writes the options that configurations must share to differ in their
// level only. The thesis gives each level fewer processors and less memory
// (FitzGerald 2014, §2.4).
func sharedOptions(options map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(options)) {
		if key != "vcpus" && key != "memory" {
			parts = append(parts, key+"="+options[key])
		}
	}
	return strings.Join(parts, ",")
}

// rung is one row of the tables: a configuration and the one below it.
type rung struct {
	name, below string // below is empty at the lowest level
	level       int
	vcpus       int // 0: not told, or the same at every level
	belowVCPUs  int
}

// rungsOf lists the rungs of ladders, from the lowest level of each up.
func rungsOf(ladders []ladder) []rung {
	var all []rung
	for _, l := range ladders {
		sized := l.sized()
		for i, level := range l.levels {
			for k, c := range l.rungs[i] {
				r := rung{name: c.Name, level: level}
				if i > 0 {
					r.below = l.at(i-1, k).Name
				}
				if sized {
					r.vcpus = vcpus(c)
				}
				if sized && i > 0 {
					r.belowVCPUs = vcpus(l.at(i-1, k))
				}
				all = append(all, r)
			}
		}
	}
	return all
}

// sized reports whether every configuration tells its number of vCPUs, and not
// all the same.
func (l ladder) sized() bool {
	counts := map[int]bool{}
	for _, r := range l.rungs {
		for _, c := range r {
			counts[vcpus(c)] = true
		}
	}
	return len(counts) > 1 && !counts[0]
}

// vcpus returns the number of vCPUs of a configuration, 0 when it does not tell.
func vcpus(c result.Configuration) int {
	n, err := strconv.Atoi(c.Options["vcpus"])
	if err != nil || n < 1 {
		return 0
	}
	return n
}

// Metrics of the thesis: "transactional throughput and application response
// time" (FitzGerald 2014, §3.0).
const (
	throughput = "throughput"
	response   = "latency_mean"
)

// levelMetrics are the thesis' metrics that a case has, else its first.
func (b *builder) levelMetrics(c result.Case) []result.Metric {
	var metrics []result.Metric
	for _, name := range []string{throughput, response} {
		if m := metricNamed(b.metrics[c.Name], name); m != nil {
			metrics = append(metrics, *m)
		}
	}
	if len(metrics) == 0 && len(b.metrics[c.Name]) > 0 {
		metrics = b.metrics[c.Name][:1]
	}
	return metrics
}

// leveled is one case by levels: for each metric one estimate per row.
type leveled struct {
	id      string
	of      result.Case
	metrics []result.Metric
	rows    []rung
	cells   [][]*Estimate
	alpha   float64
}

// levels sets cases out by level of virtualization, one section per case, when
// the run has configurations at several levels. estimates are those of the i-th
// group of cases; each that the sections show gets its Step.
func (b *builder) levels(i int, cases []result.Case, estimates []Estimate) []Group {
	ladders := ladders(b.run)
	if len(ladders) == 0 {
		return nil
	}
	var groups []Group
	var all []leveled
	for j, c := range cases {
		l := leveled{id: fmt.Sprintf("g%d-levels-%d", i+1, j+1), of: c, metrics: b.levelMetrics(c), rows: rungsOf(ladders), alpha: b.opts.Alpha}
		if !l.fill(estimates) {
			continue
		}
		l.test()
		l.addPublished(b.opts.Published)
		if b.tabled(cases) && ofTableOne(b.run) {
			all = append(all, l)
			continue
		}
		g := Group{ID: l.id, Title: caseTitle(c) + ": levels of virtualization"}
		for m, family := range l.cells {
			g.Tables = append(g.Tables, b.levelTable(l, m))
			if slices.ContainsFunc(family, func(e *Estimate) bool { return e.N > 0 }) {
				g.Charts = append(g.Charts, b.levelChart(l, m, ladders))
			}
		}
		g.Tables = append(g.Tables, b.stepTable(l))
		if t, ok := b.publishedTable(l); ok {
			g.Tables = append(g.Tables, t)
		}
		groups = append(groups, g)
	}
	if len(all) > 0 {
		groups = append(groups, b.suiteLevels(fmt.Sprintf("g%d-levels", i+1), all))
	}
	return groups
}

// caseTitle names a case by itself.
func caseTitle(c result.Case) string {
	if c.Title == "" {
		return c.Name
	}
	return c.Title
}

// fill finds the estimates of l and makes their steps, all but the tests. It
// reports whether any has samples.
func (l *leveled) fill(estimates []Estimate) bool {
	some := false
	for _, m := range l.metrics {
		family := make([]*Estimate, len(l.rows))
		for i, r := range l.rows {
			at := slices.IndexFunc(estimates, func(e Estimate) bool {
				return e.Suite == l.of.Suite && e.Case == l.of.Name && e.Configuration == r.name && e.Metric == m.Name
			})
			e := &estimates[at]
			some = some || e.N > 0
			e.Step = newStep(*e, r)
			family[i] = e
		}
		for i, r := range l.rows {
			if below := l.below(family, i); below != nil {
				family[i].Step.compare(*family[i], *below, r.belowVCPUs)
			}
		}
		l.cells = append(l.cells, family)
	}
	return some
}

// below returns the estimate below that of row i, nil at the lowest level.
func (l *leveled) below(family []*Estimate, i int) *Estimate {
	j := slices.IndexFunc(l.rows, func(r rung) bool { return r.name == l.rows[i].below })
	if j < 0 {
		return nil
	}
	return family[j]
}

// newStep is the step of e before anything is set beside it.
func newStep(e Estimate, r rung) *Step {
	s := &Step{Level: r.level, Below: r.below, VCPUs: r.vcpus, RelStdErr: Number(e.moments().RelStdErr()),
		Change: missing, PerVCPU: missing, ChangePerVCPU: missing, T: missing, DF: missing, P: missing, Adjusted: missing, Detectable: missing}
	if r.vcpus > 0 && e.Metric == throughput {
		s.PerVCPU = e.Mean / Number(r.vcpus)
	}
	return s
}

// moments are what Welch's test needs of e.
func (e Estimate) moments() stats.Moments {
	return stats.Moments{N: e.N, Mean: float64(e.Mean), StdErr: float64(e.StdErr)}
}

// compare sets e against the level below, which has vcpus vCPUs.
func (s *Step) compare(e, below Estimate, vcpus int) {
	s.Change = Number(e.moments().RelativeChange(below.moments()))
	if s.PerVCPU.Defined() {
		base := below.Mean / Number(vcpus)
		s.ChangePerVCPU = (s.PerVCPU - base) / base
	}
	s.Detectable = Number(stats.MinimumDetectable(e.moments(), below.moments()))
	welch, err := stats.Welch(e.moments(), below.moments())
	if err != nil { // too few values, or none that vary: there is no test
		return
	}
	s.T, s.DF, s.P = Number(welch.Statistic), Number(welch.DF), Number(welch.P)
}

// test corrects the p-values of the case, the family of one table, and judges
// them.
func (l *leveled) test() {
	var ps []float64
	l.steps(func(e, _ *Estimate) { ps = append(ps, float64(e.Step.P)) })
	adjusted := stats.Holm(ps)
	n := 0
	l.steps(func(e, below *Estimate) {
		e.Step.Adjusted = Number(adjusted[n])
		n++
		if e.N == 0 || below.N == 0 {
			return
		}
		judged := stats.Comparison{HigherIsBetter: e.Order == result.HIB}
		judged.A.Moments, judged.B.Moments = e.moments(), below.moments()
		e.Step.Verdict = judged.Verdict(float64(e.Step.Adjusted), l.alpha)
	})
}

// steps calls f for every pair of neighbouring levels, metric by metric.
func (l *leveled) steps(f func(e, below *Estimate)) {
	for _, family := range l.cells {
		for i, e := range family {
			if below := l.below(family, i); below != nil {
				f(e, below)
			}
		}
	}
}

// levelTable is the thesis' table of a case, the part of one metric: one row per
// level with the mean, ΔL, the standard error, and the same in percent of the
// mean.
func (b *builder) levelTable(l leveled, m int) Table {
	family := l.cells[m]
	first := *family[0]
	t := Table{
		ID: l.id + "-" + anchor("means", first.Metric), Setting: setting(b.run),
		Title: fmt.Sprintf("%s by level of virtualization: %s (%s, %s)", caseTitle(l.of), first.Metric, first.Unit, better(first.Order)),
	}
	sized := l.sized()
	perVCPU := sized && first.Metric == throughput
	t.Columns = []Column{{Name: "level", Header: true}, {Name: "configuration", Header: true},
		{Name: "n", Numeric: true, Wide: !slices.ContainsFunc(family, func(e *Estimate) bool { return e.N != b.run.Repetitions })}}
	if sized {
		t.Columns = append(t.Columns, Column{Name: "vCPUs", Numeric: true})
	}
	t.Columns = append(t.Columns, Column{Name: "mean", Numeric: true}, Column{Name: "ΔL", Numeric: true},
		Column{Name: "standard error", Numeric: true}, Column{Name: "of the mean", Numeric: true})
	if perVCPU {
		t.Columns = append(t.Columns, Column{Name: "mean per vCPU", Numeric: true}, Column{Name: "ΔL per vCPU", Numeric: true})
	}
	for i, e := range family {
		row := []Cell{{Text: levelName(e.Step.Level)}, {Text: e.Configuration, Series: e.Configuration}, {Text: fmt.Sprint(e.N)}}
		if sized {
			row = append(row, countCell(l.rows[i].vcpus))
		}
		row = append(row, numeric(e.Mean, number(e.Mean)), changeCell(e.Step.Change),
			numeric(e.StdErr, number(e.StdErr)), shareCell(e.Step.RelStdErr))
		if perVCPU {
			row = append(row, numeric(e.Step.PerVCPU, number(e.Step.PerVCPU)), changeCell(e.Step.ChangePerVCPU))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// sized reports whether the levels differ in their number of vCPUs.
func (l *leveled) sized() bool {
	return slices.ContainsFunc(l.rows, func(r rung) bool { return r.vcpus > 0 })
}

// levelName names a level as the thesis does.
func levelName(level int) string { return "L" + strconv.Itoa(level) }

// bootNotes tell of guests that were booted fewer times than they were measured:
// across levels the boot is what is repeated.
func (b *builder) bootNotes(l leveled) []string {
	var fewer []string
	for i, r := range l.rows {
		boots := map[string]bool{}
		for _, s := range b.samples {
			if s.Suite == l.of.Suite && s.Case == l.of.Name && s.Configuration == r.name && s.Boot != "" {
				boots[s.Boot] = true
			}
		}
		if n := l.cells[0][i].N; r.level > 0 && len(boots) > 0 && len(boots) < n {
			fewer = append(fewer, fmt.Sprintf("%s (%d times in %s)", r.name, n, plural(len(boots), "boot")))
		}
	}
	if len(fewer) == 0 {
		return nil
	}
	return []string{"Measured more often than booted: " + list(fewer) + ". A standard error from few boots tells little of how one boot differs from the next."}
}

// stepTable tests each level against the one below.
func (b *builder) stepTable(l leveled) Table {
	t := Table{ID: l.id + "-tests", Title: caseTitle(l.of) + ": each level against the one below", Setting: setting(b.run)}
	t.Columns = []Column{{Name: "metric", Header: true}, {Name: "step", Header: true}, {Name: "ΔL", Numeric: true},
		{Name: "t", Numeric: true}, {Name: "df", Numeric: true}, {Name: "p", Numeric: true},
		{Name: "adjusted p", Numeric: true}, {Name: "detectable", Numeric: true}, {Name: "verdict"}}
	l.steps(func(e, below *Estimate) {
		repeat := len(t.Rows) > 0 && t.Rows[len(t.Rows)-1][0].Text == e.Metric
		t.Rows = append(t.Rows, append([]Cell{{Text: e.Metric, Repeat: repeat}}, stepCells(*e, *below)...))
	})
	t.Notes = []string{
		"ΔL is the change of the mean against the level below. A step to fewer vCPUs costs throughput for that alone: there see ΔL per vCPU.",
		pNote + " Adjusted p: corrected by Holm for the other tests in this table.",
		detectableNote,
	}
	if !l.sized() {
		t.Notes[0] = "ΔL is the change of the mean against the level below."
	}
	t.Notes = append(t.Notes, b.bootNotes(l)...)
	return t
}

// Notes below every table of steps.
const (
	pNote          = "p, of Welch's t test: " + stats.PMeaning + ". It is not the probability that the means are equal."
	detectableNote = "Detectable is the smallest change that a run of this size and noise would have seen about four times out of five; with few repetitions less often."
)

// stepCells are the cells on the step from below to e.
func stepCells(e, below Estimate) []Cell {
	s := e.Step
	return []Cell{
		{Text: below.Configuration + " → " + e.Configuration}, changeCell(s.Change),
		numeric(s.T, decimal(s.T, 2)), numeric(s.DF, decimal(s.DF, 1)), pCell(s.P), pCell(s.Adjusted),
		shareCell(s.Detectable), stepVerdict(e, below),
	}
}

// suiteLevels sets the cases of a suite out by level in one table, of the first
// metric each: what Lubomski et al. compare are sums over the cases.
func (b *builder) suiteLevels(id string, all []leveled) Group {
	name := all[0].of.Suite
	g := Group{ID: id, Title: fmt.Sprintf("Suite %s: levels of virtualization", name)}
	t := Table{ID: id + "-tests", Title: g.Title + ", each against the one below", Setting: setting(b.run)}
	t.Columns = []Column{{Name: "case", Header: true}, {Name: "unit, order", Header: true}, {Name: "step", Header: true},
		{Name: "ΔL", Numeric: true}, {Name: "t", Numeric: true, Wide: true}, {Name: "df", Numeric: true, Wide: true}, {Name: "p", Numeric: true, Wide: true},
		{Name: "adjusted p", Numeric: true}, {Name: "detectable", Numeric: true}, {Name: "verdict"}}
	for _, l := range all {
		l.steps(func(e, below *Estimate) {
			if e.Metric != l.metrics[0].Name {
				return
			}
			repeat := len(t.Rows) > 0 && t.Rows[len(t.Rows)-1][0].Text == e.Case
			t.Rows = append(t.Rows, append([]Cell{{Text: e.Case, Repeat: repeat}, {Text: unitAndOrder(e.Unit, e.Order), Repeat: repeat}}, stepCells(*e, *below)...))
		})
	}
	t.Notes = []string{
		"ΔL is the change of the mean against the level below.",
		pNote + " Adjusted p: corrected by Holm for the other tests of the same case.",
		detectableNote,
	}
	t.Notes = append(t.Notes, b.bootNotes(all[0])...)
	g.Tables = []Table{t}
	return g
}

// stepVerdict says what a test shows, or why there is none.
func stepVerdict(e, below Estimate) Cell {
	for _, side := range []Estimate{e, below} {
		if side.N == 0 {
			return Cell{Text: side.Configuration + " " + side.Missing, Short: side.Configuration + " missing", Missing: true}
		}
	}
	if !e.Step.P.Defined() && e.N > 1 && below.N > 1 {
		return Cell{Text: "no test: both are constant", Missing: true}
	}
	return Cell{Text: string(e.Step.Verdict)}
}

// levelChart draws one metric by level, as FitzGerald 2014, Figs. 2-16.
func (b *builder) levelChart(l leveled, m int, ladders []ladder) Chart {
	first := l.cells[m][0]
	c := Chart{
		ID: l.id + "-" + anchor("chart", l.metrics[m].Name), Kind: Levels, Setting: setting(b.run),
		Title: fmt.Sprintf("%s: %s by level, mean and standard error", caseTitle(l.of), quantity(first.Metric)),
		Axis:  fmt.Sprintf("%s, %s (%s)", quantity(first.Metric), first.Unit, better(first.Order)),
	}
	var levels []int
	for _, r := range l.rows {
		levels = append(levels, r.level)
	}
	slices.Sort(levels)
	levels = slices.Compact(levels)
	for _, level := range levels {
		c.Categories = append(c.Categories, levelName(level))
	}
	for _, ladder := range ladders {
		for k := range ladder.width() {
			series := ChartSeries{Name: ladder.names(k), Slot: len(c.Series) % slots}
			for _, level := range levels {
				mean, stdErr := missing, missing
				if i := slices.Index(ladder.levels, level); i >= 0 {
					e := l.estimate(m, ladder.at(i, k).Name)
					mean, stdErr = e.Mean, e.StdErr
				}
				series.add(mean, Interval{Low: mean - stdErr, High: mean + stdErr})
			}
			c.Series = append(c.Series, series)
		}
	}
	c.Words = describe(c, func(v Number) string { return number(v) + " " + first.Unit })
	return c
}

// estimates are all estimates of l.
func (l *leveled) estimates() []Estimate {
	var all []Estimate
	for _, e := range slices.Concat(l.cells...) {
		all = append(all, *e)
	}
	return all
}

// estimate returns the estimate of the m-th metric in a configuration.
func (l *leveled) estimate(m int, configuration string) *Estimate {
	return l.cells[m][slices.IndexFunc(l.rows, func(r rung) bool { return r.name == configuration })]
}

// countCell is a cell for a count that may not be known.
func countCell(n int) Cell {
	if n == 0 {
		return Cell{Text: none, Missing: true}
	}
	return Cell{Text: strconv.Itoa(n)}
}

// changeCell prints a fraction as a percentage with its sign.
func changeCell(v Number) Cell {
	if !v.Defined() {
		return Cell{Text: none, Missing: true}
	}
	places := 2
	if math.Abs(float64(v)) >= 10 { // of the thesis' +2577.2 %
		places = 1
	}
	return Cell{Text: fmt.Sprintf("%+.*f %%", places, 100*float64(v))}
}

// shareCell prints a positive fraction as a percentage with three significant
// digits.
func shareCell(v Number) Cell {
	if !v.Defined() {
		return Cell{Text: none, Missing: true}
	}
	percent := 100 * v
	return Cell{Text: decimal(percent, max(0, decimals(percent)-1)) + " %"}
}

// pCell prints p with three decimals, as the thesis does.
func pCell(p Number) Cell {
	if p < 0.001 {
		return Cell{Text: "< 0.001"}
	}
	return numeric(p, decimal(p, 3))
}
