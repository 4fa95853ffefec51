package scores

import (
	"fmt"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/score"
	"unnest.io/unnest/internal/report/document"
)

// suiteJSON is a suite as JSON. The maps are by configuration and omit configurations
// without the figure.
type suiteJSON struct {
	Configurations []string                      `json:"configurations"`
	Total          map[string]float64            `json:"total"`
	TotalRounded   map[string]float64            `json:"total_rounded"`
	Counted        map[string]int                `json:"cases_counted"`
	Partial        []string                      `json:"partial"` // configurations with partial totals
	Baseline       string                        `json:"baseline,omitempty"`
	GeoMean        map[string]float64            `json:"geomean"`
	Interval       map[string]*document.Interval `json:"geomean_interval"`
	Cases          []caseJSON                    `json:"cases"`
	Missing        []score.Missing               `json:"missing"`
	Warnings       []score.Warning               `json:"warnings"`
}

type caseJSON struct {
	Name        string             `json:"name"`
	Order       result.Order       `json:"order"`
	Unit        string             `json:"unit"`
	Counted     bool               `json:"counted"`
	Values      map[string]float64 `json:"values"` // means
	Repetitions map[string]int     `json:"repetitions"`
	Scores      map[string]float64 `json:"scores"`
}

// suitesData is what JSON prints of scores.
type suitesData struct {
	Suites map[string]suiteJSON `json:"suites"` // by name
}

func suitesJSON(suites []score.Suite) suitesData {
	byName := map[string]suiteJSON{}
	for _, s := range suites {
		byName[s.Name] = newSuiteJSON(s)
	}
	return suitesData{byName}
}

func newSuiteJSON(s score.Suite) suiteJSON {
	j := suiteJSON{
		Configurations: s.Configurations, Baseline: s.Baseline, Partial: []string{},
		Total: map[string]float64{}, TotalRounded: map[string]float64{}, Counted: map[string]int{},
		GeoMean: map[string]float64{}, Interval: map[string]*document.Interval{},
		// Appended to, an empty list is [] and not null.
		Missing: append([]score.Missing{}, s.Missing...), Warnings: append([]score.Warning{}, s.Warnings...),
	}
	for _, name := range s.Configurations {
		if t, has := s.Totals[name]; has {
			j.Total[name], j.TotalRounded[name], j.Counted[name] = t.Raw, t.Rounded, t.Cases
			if t.Partial {
				j.Partial = append(j.Partial, name)
			}
		}
		if g, has := s.GeoMeans[name]; has {
			j.GeoMean[name] = g.Ratio
			if g.HasInterval() {
				j.Interval[name] = &document.Interval{Low: document.Number(g.Low), High: document.Number(g.High), Confidence: score.Confidence}
			}
		}
	}
	for _, c := range s.Cases {
		k := caseJSON{
			Name: c.Name, Order: c.Order, Unit: c.Unit, Counted: c.Counted,
			Values: map[string]float64{}, Repetitions: map[string]int{}, Scores: map[string]float64{},
		}
		for name, cell := range c.Cells {
			k.Values[name], k.Repetitions[name], k.Scores[name] = cell.Mean, cell.N, cell.Score
		}
		j.Cases = append(j.Cases, k)
	}
	return j
}

// scoreRecords are suites in long form; the totals of a suite name no case.
func scoreRecords(suites []score.Suite) [][]string {
	records := [][]string{{"suite", "case", "order", "unit", "configuration", "quantity", "value"}}
	for _, s := range suites {
		for _, name := range s.Configurations {
			add := func(c score.Case, quantity string, value float64) {
				records = append(records, []string{s.Name, c.Name, string(c.Order), c.Unit, name, quantity, document.Exact(document.Number(value))})
			}
			for _, c := range s.Cases {
				if cell, has := c.Cells[name]; has {
					add(c, "mean", cell.Mean)
					add(c, "repetitions", float64(cell.N))
					add(c, "score", cell.Score)
				}
			}
			whole := score.Case{Order: result.HIB}
			if t, has := s.Totals[name]; has {
				add(whole, "total", t.Raw)
				add(whole, "total_rounded", t.Rounded)
				add(whole, "cases_counted", float64(t.Cases))
			}
			if g, has := s.GeoMeans[name]; has {
				add(whole, fmt.Sprintf("geomean vs %s", s.Baseline), g.Ratio)
				if g.HasInterval() {
					add(whole, "geomean low", g.Low)
					add(whole, "geomean high", g.High)
				}
			}
		}
	}
	return records
}
