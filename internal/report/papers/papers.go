// Package papers holds the figures that papers print:
//
//   - Lubomski, Kalinowski, Krawczyk: Multi-level virtualization and its impact
//     on system performance in cloud computing, Tables 3-7;
//   - FitzGerald: A Comparative Analysis of Nested Virtualization in x86_64 and
//     S390x Hypervisors, 2014, Tables 5-14;
//   - Bacou, Todeschi, Tchana, Hagimont: Nested Virtualization Without the Nest,
//     ICPP 2019, the text of §5.2 and §5.3;
//   - the study of collocated HVMs, PVMs and containers on Xen 4.4, the text of §IV to §VI.
//
// Numbers are as printed, misprints included. The embedded CSV files name their
// sources. Comparing the figures with ours belongs to the packages that build reports.
package papers

import (
	"bytes"
	"embed"
	"encoding/csv"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/suite"
)

//go:embed *.csv
var files embed.FS

// Number is a number as printed; its digits say how far it was rounded. It is empty
// where the paper has none.
type Number string

// Float returns the number, NaN where there is none.
func (n Number) Float() float64 {
	x, err := strconv.ParseFloat(string(n), 64)
	if err != nil {
		return math.NaN()
	}
	return x
}

// Unit returns one unit of the last digit: 0.01 for 7.06, 1 for 4427.
func (n Number) Unit() float64 {
	_, decimals, _ := strings.Cut(string(n), ".")
	return math.Pow(10, -float64(len(decimals)))
}

// Total is a total score of Lubomski et al.: of a suite in Tables 3-6, of the
// application stack in Table 7. It has no unit.
type Total struct {
	Table         int    `json:"table"`
	Suite         string `json:"-"` // CPU, multicore, java, memory, network, disk, application
	Execution     string `json:"-"` // local or remote in Table 7, else empty
	Configuration string `json:"-"`
	Total         Number `json:"total"`
	Cases         int    `json:"cases"` // in the total
}

// casesOf counts the cases of the suites of which only totals are printed: by §3.3, of
// the network by §3.4.
var casesOf = map[string]int{"CPU": 27, "multicore": 19, "memory": 9, "java": 6, "network": 2, "application": 1}

// Score is the score of one case in one configuration: of Lubomski et al.,
// Tables 5 and 6, with the result it was made from, or Table 4, which has no
// results.
type Score struct {
	Table         int          `json:"table"`
	Suite         string       `json:"-"`
	Case          string       `json:"-"`
	Configuration string       `json:"-"`
	Order         result.Order `json:"-"` // empty in Table 4
	Value         Number       `json:"value"`
	Unit          string       `json:"unit"` // of Value, as printed; empty in Table 4
	Score         Number       `json:"score"`
}

// Mean is a mean as FitzGerald prints it. He does not print over how many runs: six fit p = 0.207 of §3.1.
type Mean struct {
	Mean, StdErr Number // transactions per second, or milliseconds
	Change       Number // against the previous level, percent of it (his ΔL); empty at L0
	RelStdErr    Number // percent of the mean
}

// SysbenchRow is one row of FitzGerald's Tables 5-14. The rows of L0 in the tables
// without over-commitment (6, 8, 10, 12, 14) repeat those of the table before: L0
// was measured once, with all processors and memory.
type SysbenchRow struct {
	Table         int
	Test          string // cpu, threads, memory (write), memory (read), oltp
	Overcommitted bool   // every level was given all processors and memory
	Architecture  string // S390x or x86_64
	Level         string // L0, L1, L2
	Throughput    Mean   // transactions per second
	Response      Mean   // mean response time in milliseconds
}

// Ratio is what Bacou et al. print of one configuration against another.
type Ratio struct {
	Section       string // "5.3.2"
	Benchmark     string // UDP_RR, TCP_STREAM, Memcached, NGINX
	Metric        string // latency, throughput, deviation (the standard one, of latency) or CPU time
	Size          int    // of the messages in bytes, 0: every one
	Configuration string
	Baseline      string // empty of a deviation, whose baseline is its mean
	Extent        string // about; worst or best: over all sizes; empty: exact
	Value         Number
	Form          string // what Value counts: "times", "times lower", "% higher", "% lower", "% of the mean", "times the mean"
}

// String returns the ratio as printed: "17.9 % higher", "about 2 times".
func (r Ratio) String() string {
	text := string(r.Value) + " " + r.Form
	switch r.Extent {
	case "about":
		return "about " + text
	case "worst", "best":
		return text + " at " + r.Extent
	}
	return text
}

// Factor returns Configuration over Baseline: 1.179 for "17.9 % higher".
func (r Ratio) Factor() float64 {
	switch v := r.Value.Float(); r.Form {
	case "times", "times the mean":
		return v
	case "times lower":
		return 1 / v
	case "% higher":
		return 1 + v/100
	case "% lower":
		return 1 - v/100
	case "% of the mean":
		return v / 100
	}
	panic(fmt.Sprintf("papers: unknown form of a ratio: %q", r.Form))
}

// Ratios returns what Bacou et al. print, in the order of their sections.
func Ratios() []Ratio {
	var all []Ratio
	for _, r := range read("bacou_ratios.csv") {
		ratio := Ratio{
			Section: r["section"], Benchmark: r["benchmark"], Metric: r["metric"], Configuration: r["configuration"],
			Baseline: r.text("baseline"), Extent: r.text("extent"), Value: r.number("value"), Form: r["form"],
		}
		if r.text("size") != "" {
			ratio.Size = r.integer("size")
		}
		all = append(all, ratio)
	}
	return all
}

// Collocated is a throughput in the text of the study of collocated domains, in responses/s, or its
// change from a baseline in percent.
type Collocated struct {
	Section       string
	Figure        string
	Size          int // KB of the document
	Configuration string
	Baseline      string // empty: none
	Value         Number
	Form          string // "%" or "responses/s"
}

// Collocations returns what that study prints, in the order of its sections.
func Collocations() (all []Collocated) {
	for _, r := range read("collocation.csv") {
		all = append(all, Collocated{
			r["section"], r["figure"], r.integer("size"), r["configuration"], r.text("baseline"), r.number("value"), r["form"],
		})
	}
	return all
}

// Totals returns the total scores of Lubomski et al., Tables 3-7, in their order.
func Totals() []Total {
	disk := map[string]bool{}
	for _, s := range DiskScores() {
		disk[s.Case] = true
	}
	var totals []Total
	for _, r := range read("lubomski_totals.csv") {
		cases, known := casesOf[r["suite"]]
		if !known {
			cases = len(disk)
		}
		totals = append(totals, Total{r.integer("table"), r["suite"], r["execution"], r["configuration"], r.number("total"), cases})
	}
	return totals
}

// NetworkScores returns the scores of Lubomski et al., Table 4.
func NetworkScores() []Score { return scores("lubomski_network.csv") }

// DiskScores returns the results and scores of Lubomski et al., Tables 5 and 6,
// case by case. Formula (1) divides by the best of both tables.
func DiskScores() []Score { return scores("lubomski_disk.csv") }

func scores(file string) []Score {
	var all []Score
	for _, r := range read(file) {
		all = append(all, Score{
			Table: r.integer("table"), Suite: r["suite"], Case: r["case"], Order: result.Order(r["order"]), Unit: r["unit"],
			Configuration: r["configuration"], Value: r.number("value"), Score: r.number("score"),
		})
	}
	return all
}

// Sysbench returns FitzGerald's Tables 5-14, by table, architecture and level.
func Sysbench() []SysbenchRow {
	var rows []SysbenchRow
	for _, r := range read("fitzgerald_sysbench.csv") {
		rows = append(rows, SysbenchRow{
			Table: r.integer("table"), Test: r["test"], Overcommitted: r["overcommitted"] == "yes",
			Architecture: r["architecture"], Level: r["level"],
			Throughput: r.mean("throughput"), Response: r.mean("response"),
		})
	}
	return rows
}

// withDocker returns ratios. It repeats those of NAT and Overlay with the names of Docker's own networks, which the paper
// measured.
func withDocker(ratios []Ratio) []Ratio {
	byDocker := strings.NewReplacer("NAT", "DockerNAT", "Overlay", "DockerOverlay")
	all := ratios
	for _, r := range ratios {
		docker := r
		docker.Configuration, docker.Baseline = byDocker.Replace(r.Configuration), byDocker.Replace(r.Baseline)
		if docker != r {
			all = append(all, docker)
		}
	}
	return all
}

// record is a line of a file by column name.
type record map[string]string

// read returns the records of an embedded file. It panics on a file that it cannot
// read, because the files are compiled in.
func read(file string) []record {
	text, err := files.ReadFile(file)
	if err != nil {
		panic(fmt.Sprintf("papers: %v", err))
	}
	reader := csv.NewReader(bytes.NewReader(text))
	reader.Comment = '#'
	lines, err := reader.ReadAll()
	if err != nil {
		panic(fmt.Sprintf("papers: read %s: %v", file, err))
	}
	var records []record
	for _, line := range lines[1:] {
		r := record{}
		for i, column := range lines[0] {
			r[column] = line[i]
		}
		records = append(records, r)
	}
	return records
}

func (r record) integer(column string) int {
	i, err := strconv.Atoi(r[column])
	if err != nil {
		panic(fmt.Sprintf("papers: column %s: %v", column, err))
	}
	return i
}

// text returns a word or, where the paper has none, nothing.
func (r record) text(column string) string {
	if r[column] == "-" {
		return ""
	}
	return r[column]
}

// number returns a number or, where the paper prints a dash, none.
func (r record) number(column string) Number {
	n := Number(r[column])
	if n == "-" || n == "" {
		return ""
	}
	if math.IsNaN(n.Float()) {
		panic(fmt.Sprintf("papers: column %s: %q is not a number", column, n))
	}
	return n
}

func (r record) mean(column string) Mean {
	return Mean{
		Mean: r.number(column), Change: r.number(column + "_change"),
		StdErr: r.number(column + "_stderr"), RelStdErr: r.number(column + "_relative"),
	}
}

// Figures are the printed figures that a report shows next to the figures of a run.
// Scores and Totals are under our names of suites and cases.
type Figures struct {
	Levels       []SysbenchRow // of FitzGerald 2014
	Scores       []Score       // of Lubomski et al.
	Totals       []Total
	Ratios       []Ratio      // of Bacou et al. 2019
	Collocations []Collocated // of the study of collocated domains
}

// networkCases are the cases of the study multilevel-network by the paper's names.
var networkCases = map[string]string{"netperf tcp": "tcp_stream/16384", "netperf udp": "udp_stream/1280"}

// All returns every printed figure of a case that we measure too.
func All() Figures {
	all := Figures{Levels: Sysbench(), Ratios: withDocker(Ratios()), Totals: Totals(), Collocations: Collocations()}
	names := map[[2]string]string{}
	for _, c := range suite.All() {
		if c.Paper != "" {
			names[[2]string{c.Suite, c.Paper}] = c.Name
		}
	}
	for paper, name := range networkCases {
		names[[2]string{"network", paper}] = name
	}
	for _, s := range slices.Concat(DiskScores(), NetworkScores()) {
		s.Suite = strings.ToLower(s.Suite)
		if name, ok := names[[2]string{s.Suite, s.Case}]; ok {
			s.Case = name
			all.Scores = append(all.Scores, s)
		}
	}
	for i := range all.Totals {
		all.Totals[i].Suite = strings.ToLower(all.Totals[i].Suite)
	}
	return all
}

// Score returns the printed score of a case in a configuration, nil if there is none.
func (f Figures) Score(suite, name, configuration string) *Score {
	i := slices.IndexFunc(f.Scores, func(s Score) bool {
		return s.Suite == suite && s.Case == name && s.Configuration == configuration
	})
	if i < 0 {
		return nil
	}
	return &f.Scores[i]
}

// Total returns the printed total of a suite in a configuration, nil if there is none.
func (f Figures) Total(suite, configuration string) *Total {
	i := slices.IndexFunc(f.Totals, func(t Total) bool { return t.Suite == suite && t.Configuration == configuration })
	if i < 0 {
		return nil
	}
	return &f.Totals[i]
}
