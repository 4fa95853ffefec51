package claims

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"unnest.io/unnest/experiments"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/provenance"
)

// Version is the version of the JSON. Keys are added without a new version; it changes when one is removed or gets
// another meaning.
const Version = 1

// Row is a claim with what was measured here.
type Row struct {
	Claim
	Published   document.Number   `json:"published"` // as a ratio, or a share of the mean; null: the paper has an order only
	Ours        document.Number   `json:"ours"`
	Interval    document.Interval `json:"interval"`
	N           int               `json:"n"` // blocks
	Where       string            `json:"where,omitempty"`
	RunID       string            `json:"run_id,omitempty"`
	Accelerator string            `json:"accelerator,omitempty"`
	Date        string            `json:"date,omitempty"`
	Decision
	Command string `json:"command,omitempty"` // that repeats it
	Fresh   bool   `json:"fresh,omitempty"`   // each block of the run had guests of its own
}

// data is what JSON prints.
type data struct {
	Counts     map[Answer]int  `json:"counts"`
	Tests      int             `json:"tests"`
	Found      int             `json:"found"`
	Confidence document.Number `json:"confidence"`
	Warnings   []string        `json:"warnings,omitempty"`
	Claims     []Row           `json:"claims"`
}

// Runs returns the names of the published runs that the claims need, each once.
func Runs() (names []string) {
	for _, c := range All() {
		if c.Run != "" && !slices.Contains(names, c.Run) {
			names = append(names, c.Run)
		}
	}
	return names
}

// Test tests the claims against runs by the names of Runs. Claims are judged together: they are one family.
func Test(all []Claim, runs map[string]provenance.Source) ([]Row, stats.Family) {
	tables, measured := map[string]*table{}, make([]ours, len(all))
	var ps []float64
	for i, c := range all {
		input, has := runs[c.Run]
		if !has {
			continue
		}
		if tables[c.Run] == nil {
			tables[c.Run] = newTable(input)
		}
		if measured[i] = tables[c.Run].measure(c); measured[i].why == "" && c.Baseline != "" {
			ps = append(ps, measured[i].effect.P())
		}
	}
	family := stats.Judge(ps, stats.DefaultAlpha)
	rows := make([]Row, len(all))
	for i, c := range all {
		rows[i] = rowOf(c, measured[i], family)
		if input, has := runs[c.Run]; has {
			rows[i].RunID, rows[i].Accelerator, rows[i].Date = input.Run.ID, input.Run.Accelerator, input.Run.Started.Format("2006-01-02")
			rows[i].Fresh = input.Run.Fresh
			rows[i].Command = "unnest bench " + cmp.Or(experiments.Command(input.Run.Experiment), input.Run.Experiment)
		} else if c.Run != "" {
			rows[i].Decision = Decision{Answer: NotDecided, Why: "no run of it"}
		}
	}
	return rows, family
}

func rowOf(c Claim, o ours, family stats.Family) Row {
	r := Row{Claim: c, Published: document.Missing, Ours: document.Missing, Interval: document.NoInterval, Where: o.label}
	if c.Run == "" {
		r.Decision = Decision{Answer: NotTestable, Why: c.Reason}
		return r
	}
	if v := c.published.value(); !math.IsNaN(v) {
		r.Published = document.Number(v)
	}
	interval := o.effect.Interval(family.Confidence())
	r.N = o.effect.N
	switch {
	case c.Baseline != "" && o.effect.N > 0:
		r.Ours = document.Number(o.effect.Ratio())
	case c.Baseline == "" && len(o.values) > 0:
		r.N, r.Ours = len(o.values), estimate.Describe(observed(o.values)).Center
		interval, _ = stats.CenterInterval(o.values, stats.DefaultConfidence) // undefined with too few, which o says
	}
	r.Interval = estimate.ConfidenceInterval(interval)
	if o.why != "" || !interval.Defined() {
		r.Decision = Decision{Answer: NotDecided, Why: cmp.Or(o.why, "too few blocks")}
		return r
	}
	r.Decision = decide(c.published, c.Baseline != "", interval)
	return r
}

func observed(values []float64) (all []stats.Observation) {
	for i, v := range values {
		all = append(all, stats.Observation{Block: i, Value: v})
	}
	return all
}

// titles of the papers, in the order of the page.
var titles = [][2]string{
	{"bacou", "Nested Virtualization Without the Nest (Bacou et al., ICPP 2019)"},
	{"lubomski", "Multi-level virtualization and its impact on system performance (Lubomski et al.)"},
	{"fitzgerald", "Nested virtualization in x86_64 and S390x hypervisors (FitzGerald 2014)"},
	{"domains", "Performance of collocated VMs and containers on Xen"},
}

// Build reports the claims of the papers next to runs by the names of Runs, with warnings of these.
func Build(runs map[string]provenance.Source, warnings []string) document.Document {
	rows, family := Test(All(), runs)
	d := data{Counts: map[Answer]int{}, Tests: family.Tests, Found: family.Found, Confidence: document.Number(family.Confidence()), Claims: rows}
	for _, r := range rows {
		d.Counts[r.Answer]++
	}
	doc := document.Document{
		Command: "papers", Title: "Every claim of the papers, tested", SchemaVersion: Version, Records: records(rows), Methods: methods(family),
		Answer: fmt.Sprintf("Of %d claims with a number or an order, %d agree with the runs here and %d do not; %d are not decided and %d are not testable here.",
			len(rows), d.Counts[Agrees], d.Counts[Disagrees], d.Counts[NotDecided], d.Counts[NotTestable]),
		Series: []document.Series{{Name: "here", Slot: 0}, {Name: "paper", Slot: 1}},
	}
	if slices.ContainsFunc(rows, func(r Row) bool { return r.Accelerator == "tcg" }) {
		doc.Warnings = []string{"Guests ran under TCG, which emulates the processor: times and ratios differ under KVM. Repeat a row on a machine with KVM before you doubt a paper."}
	}
	doc.Warnings = append(doc.Warnings, warnings...)
	d.Warnings = doc.Warnings
	doc.Data = d
	for _, paper := range titles {
		doc.Groups = append(doc.Groups, group(paper[0], paper[1], rows))
	}
	return doc
}

func group(paper, title string, rows []Row) document.Group {
	rows = slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Paper != paper })
	t := document.Table{ID: paper + "-claims", Title: title, Rows: make([][]document.Cell, len(rows))}
	t.Column(document.Column{Name: "§", Header: true}, func(i int) document.Cell {
		return document.Cell{Text: rows[i].Section, Repeat: i > 0 && rows[i].Section == rows[i-1].Section}
	})
	column := func(c document.Column, text func(Row) string) {
		t.Column(c, func(i int) document.Cell { return document.Cell{Text: text(rows[i])} })
	}
	column(document.Column{Name: "claim", Header: true}, func(r Row) string {
		if r.Where != "" {
			return r.Words + " (here " + r.Where + ")"
		}
		return r.Words
	})
	column(document.Column{Name: "paper"}, printed)
	t.Column(document.Column{Name: "here", Numeric: true}, func(i int) document.Cell {
		if !rows[i].Ours.Defined() {
			return document.NoValue
		}
		return document.Cell{Text: document.RatioWithInterval(rows[i].Ours, rows[i].Interval)}
	})
	column(document.Column{Name: "result"}, answerOf)
	column(document.Column{Name: "why", Wide: true}, func(r Row) string { return r.Why })
	column(document.Column{Name: "run", Wide: true}, func(r Row) string {
		if r.RunID == "" {
			return ""
		}
		text := fmt.Sprintf("%s, %s, %s", r.Run, r.Accelerator, r.Date)
		if r.Fresh {
			text += ", fresh guests"
		}
		return text
	})
	column(document.Column{Name: "repeat it", Wide: true}, func(r Row) string { return r.Command })
	g := document.Group{ID: paper, Title: title, Tables: []document.Table{t}}
	if chart := chart(paper, title, rows); len(chart.Categories) > 0 {
		g.Charts = []document.Chart{chart}
	}
	return g
}

// printed is what the paper says, and its ratio where it says it in other words.
func printed(r Row) string {
	if !r.Published.Defined() || r.published.margin > 0 || r.published.high-r.published.low > 0.05*r.published.high {
		return r.Printed
	}
	return fmt.Sprintf("%s (%s)", r.Printed, document.Ratio(r.Published))
}

// answerOf is the answer, and whether the value agrees, too.
func answerOf(r Row) string {
	switch {
	case r.Answer == Agrees && r.Order == "same" && r.Value == "outside":
		return "agrees in order, not in size"
	case r.Answer == Agrees && r.Order == "same" && r.Value == "inside":
		return "agrees in order and size"
	}
	return string(r.Answer)
}

// chart shows the paper's point and our interval of each row that has both.
func chart(paper, title string, rows []Row) document.Chart {
	c := document.Chart{ID: paper + "-chart", Kind: document.Forest, Title: title + ": the paper's value and ours, with its interval", Axis: "ratio, or share of the mean"}
	here, there := document.ChartSeries{Name: "here", Slot: 0}, document.ChartSeries{Name: "paper", Slot: 1}
	for _, r := range rows {
		if r.Ours.Defined() && r.Published.Defined() {
			c.Categories = append(c.Categories, r.Words)
			here.Add(r.Ours, r.Interval)
			there.Add(r.Published, document.NoInterval)
		}
	}
	c.Series = []document.ChartSeries{here, there}
	c.Complete()
	return c
}

func records(rows []Row) [][]string {
	all := [][]string{{"schema_version", "id", "paper", "section", "claim", "printed", "published", "ours", "low", "high", "confidence", "n", "answer", "value", "order", "why", "run", "run_id", "case", "metric", "configuration", "baseline", "accelerator", "date", "command", "fresh"}}
	for _, r := range rows {
		numbers := document.Exacts(r.Published, r.Ours, r.Interval.Low, r.Interval.High, r.Interval.Confidence)
		all = append(all, slices.Concat(
			[]string{strconv.Itoa(Version), r.ID, r.Paper, r.Section, r.Words, r.Printed}, numbers,
			[]string{strconv.Itoa(r.N), string(r.Answer), r.Value, r.Order, r.Why, r.Run, r.RunID, cmp.Or(r.Where, r.Case), r.Metric, r.Configuration, r.Baseline, r.Accelerator, r.Date, r.Command, strconv.FormatBool(r.Fresh)}))
	}
	return all
}

func methods(f stats.Family) []document.Method {
	return []document.Method{
		{Term: "here", Text: fmt.Sprintf("The geometric mean of the ratios within the blocks of the run, with its interval. All claims are one family: at most %s of the differences that the page finds are expected to be false, and the intervals of ratios have %s. The worst or best of the cases is chosen by its ratio, which favours extremes. A share of the mean is of one configuration, at %s. Over several cases it is their geometric mean, in the blocks that have all of them.",
			document.Percent(stats.DefaultAlpha), document.Level(document.Number(f.Confidence())), document.Percent(stats.DefaultConfidence))},
		{Term: "agrees", Text: "Our interval excludes 1 on the paper's side: the order is the same, and not by chance. In size: it holds the paper's value, within its rounding. An equality agrees if the whole interval is within its margin (" + document.Percent(stats.DefaultMargin) + " where the paper names none); a claim about one configuration if the interval holds the paper's value."},
		{Term: "disagrees", Text: "Our interval excludes 1 on the other side, or it holds 1 and excludes the paper's value; of an equality, all of it is outside of the margin."},
		{Term: "not decided", Text: "The interval holds 1 and the paper's value, or there is none: fewer than " + strconv.Itoa(stats.MinRepetitions) + " blocks, or the run was too noisy to conclude or has only a part of the cases."},
		{Term: "full load", Text: "The load at which a domain alone answers most. The paper compares the peaks of pairs, at 80 or 90 % of it."},
		{Term: "totals", Text: "Lubomski et al. add up scores, and subtract those of cases where lower is better: a change of about 2 % in each case of Java or multicore is one of 6 to 8 % of their total. Such totals have an order here and no value. The values of disk are geometric means of the quotients in Tables 5 and 6, as ours."},
		{Term: "what an interval covers", Text: "One run, whose guests were booted once: another run on the same machine differs by more. Where the column run says fresh guests, each block had guests of its own (fresh: true), and the interval also covers another run."},
	}
}

// Answer is what follows for a claim.
type Answer string

// The answers.
const (
	Agrees      Answer = "agrees"
	Disagrees   Answer = "disagrees"
	NotDecided  Answer = "not decided"
	NotTestable Answer = "not testable here"
)

// Decision is what follows for a claim, and from what.
type Decision struct {
	Answer Answer `json:"answer"`
	Value  string `json:"value"` // inside or outside our interval; empty: the paper has none
	Order  string `json:"order"` // same, opposite or not known; empty: the paper has none
	Why    string `json:"why,omitempty"`
}

// decide compares what a paper claims with the interval of ours. A claim agrees if our interval excludes 1 on the
// paper's side, and disagrees if on the other side, or if it holds 1 but not the paper's value. If it holds both, it
// decides nothing. An equality agrees if the whole interval is within its margin, and disagrees if none of it is. A claim
// about one configuration agrees if the interval holds the paper's value.
//
// The order is enough to agree, because the machines differ; Value says whether the size agrees, too.
func decide(p published, ratio bool, ours stats.Interval) Decision {
	var d Decision
	holds := p.low <= ours.High && ours.Low <= p.high // false without a value
	if p.low > 0 {
		d.Value = map[bool]string{true: "inside", false: "outside"}[holds]
	}
	if p.margin > 0 {
		d.Answer = map[stats.Answer]Answer{stats.Yes: Agrees, stats.No: Disagrees, stats.Undecided: NotDecided}[stats.Within(ours, p.margin)]
		if d.Answer == NotDecided {
			d.Why = "the interval is neither within the margin nor outside of it"
		}
		return d
	}
	if !ratio || p.order == 0 {
		d.Answer = map[bool]Answer{true: Agrees, false: Disagrees}[holds]
		return d
	}
	order := 0
	if !ours.Contains(1) {
		order = map[bool]int{true: 1, false: -1}[ours.Low > 1]
	}
	d.Order = map[int]string{p.order: "same", -p.order: "opposite", 0: "not known"}[order]
	switch {
	case order == p.order:
		d.Answer = Agrees
	case order == -p.order, d.Value == "outside":
		d.Answer = Disagrees
	default:
		d.Answer, d.Why = NotDecided, "the interval holds 1"
	}
	return d
}
