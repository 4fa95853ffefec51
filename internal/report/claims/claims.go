// Package claims tests what the papers claim against runs: each claim that has a number or an order has a row
// with the paper's value, ours with its interval, and what follows by one rule, see Decide.
package claims

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/papers"
)

//go:embed claims.csv
var file []byte

// Claim is one claim of a paper, and how it is measured here.
type Claim struct {
	ID      string `json:"id"`
	Paper   string `json:"paper"` // bacou, domains, lubomski, fitzgerald
	Section string `json:"section"`
	Words   string `json:"claim"`
	Printed string `json:"printed"` // as the paper says it

	Run           string `json:"run,omitempty"`  // published run; empty: not testable here
	Case          string `json:"case,omitempty"` // a final * stands for all such cases
	Metric        string `json:"metric,omitempty"`
	Configuration string `json:"configuration,omitempty"`
	Baseline      string `json:"baseline,omitempty"` // empty: Metric itself, not its ratio
	Extent        string `json:"extent,omitempty"`   // worst or best of the cases by Words
	Reason        string `json:"reason,omitempty"`   // why it is not testable here

	published published
}

// published is what a claim says as numbers.
type published struct {
	low, high float64 // the value, within its rounding; NaN: only an order
	order     int     // of the ratio against 1: -1 lower, 1 higher, 0 none
	margin    float64 // of an equality; 0: none is claimed
}

// value is the middle of what the paper prints; 1 of an equality.
func (p published) value() float64 {
	if p.margin > 0 {
		return 1
	}
	return math.Sqrt(p.low * p.high)
}

var (
	printedForm  = regexp.MustCompile(`^(?:about )?([0-9.]+)(?: to ([0-9.]+))? (times lower|times the mean|times|% higher|% lower|% of the mean)(?: at (?:worst|best))?$`)
	equalityForm = regexp.MustCompile(`^within ([0-9.]+) %$`)
)

// parse reads what a paper prints. A number stands for all that are rounded to it.
func parse(printed string) (published, error) {
	none := published{low: math.NaN(), high: math.NaN()}
	switch printed {
	case "lower":
		none.order = -1
		return none, nil
	case "higher":
		none.order = 1
		return none, nil
	case "no difference":
		none.margin = stats.DefaultMargin
		return none, nil
	}
	if m := equalityForm.FindStringSubmatch(printed); m != nil {
		percent, err := strconv.ParseFloat(m[1], 64)
		none.margin = percent / 100
		return none, err
	}
	m := printedForm.FindStringSubmatch(printed)
	if m == nil {
		return none, fmt.Errorf("%q: want such as 17.9 %% higher, 2.1 times, lower or within 3.5 %%", printed)
	}
	first, last := papers.Number(m[1]), papers.Number(m[1])
	if m[2] != "" {
		last = papers.Number(m[2])
	}
	factor := func(x float64) float64 {
		return papers.Ratio{Value: papers.Number(strconv.FormatFloat(x, 'g', -1, 64)), Form: m[3]}.Factor()
	}
	low, high := factor(first.Float()-first.Unit()/2), factor(last.Float()+last.Unit()/2)
	p := published{low: min(low, high), high: max(low, high)}
	switch {
	case strings.HasSuffix(m[3], "mean"):
	case p.low > 1:
		p.order = 1
	case p.high < 1:
		p.order = -1
	}
	return p, nil
}

// All returns the claims by paper and section. It panics on data that it cannot read, because they are compiled in.
func All() (all []Claim) {
	reader := csv.NewReader(bytes.NewReader(file))
	reader.Comment = '#'
	lines, err := reader.ReadAll()
	if err != nil {
		panic(fmt.Sprintf("claims: %v", err))
	}
	for _, l := range lines[1:] {
		c := Claim{ID: l[0], Paper: l[1], Section: l[2], Words: l[3], Printed: l[4], Run: l[5], Case: l[6], Metric: l[7],
			Configuration: l[8], Baseline: l[9], Extent: l[10], Reason: l[11]}
		if c.Run != "" {
			if c.published, err = parse(c.Printed); err != nil {
				panic(fmt.Sprintf("claims: %s: %v", c.ID, err))
			}
		}
		all = append(all, c)
	}
	return all
}
