// Package means builds the report on how one published mean differs from another.
package means

import (
	"fmt"
	"math"

	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/naming"
)

// Comparison is what can be said of two means of which only the standard error
// and the number of samples are known, as publications print them. The JSON keys are
// part of the command line.
type Comparison struct {
	A                        mean            `json:"a"`
	B                        mean            `json:"b"`
	T                        document.Number `json:"t"` // Welch's, positive when A is larger
	DF                       document.Number `json:"df"`
	P                        document.Number `json:"p"`            // two-sided
	DFTruncated              document.Number `json:"df_truncated"` // cut to an integer
	PTruncated               document.Number `json:"p_truncated"`
	PMeaning                 string          `json:"p_meaning"`
	DeltaPercent             document.Number `json:"delta_percent"` // of B against A
	DeltaPercentOf           string          `json:"delta_percent_of"`
	MinimumDetectable        document.Number `json:"minimum_detectable"`         // in the unit of the means
	MinimumDetectablePercent document.Number `json:"minimum_detectable_percent"` // of A
}

type mean struct {
	Mean   document.Number `json:"mean"`
	StdErr document.Number `json:"standard_error"`
	N      int             `json:"n"`
}

// Version is the version of the JSON of a MeansComparison. Keys are added without a new version; it changes
// when one is removed or gets another meaning.
const Version = 1

// Build reports how b differs from a; its Data is a MeansComparison. It fails as
// stats.Welch does: with fewer than two samples on a side, or when both standard errors
// are 0.
func Build(a, b stats.Moments) (document.Document, error) {
	welch, err := stats.Welch(a, b)
	if err != nil {
		return document.Document{}, err
	}
	truncated, err := stats.WelchTruncated(a, b)
	if err != nil {
		return document.Document{}, err
	}
	detectable, err := stats.MinimumDetectable(b, a)
	if err != nil {
		return document.Document{}, err
	}
	return Comparison{
		A: mean{document.Number(a.Mean), document.Number(a.StdErr), a.N}, B: mean{document.Number(b.Mean), document.Number(b.StdErr), b.N},
		T: document.Number(welch.Statistic), DF: document.Number(welch.DF), P: document.Number(welch.P),
		DFTruncated: document.Number(truncated.DF), PTruncated: document.Number(truncated.P),
		PMeaning:     stats.PMeaning,
		DeltaPercent: document.Number(100 * b.RelativeChange(a)), DeltaPercentOf: "A",
		MinimumDetectable:        document.Number(detectable),
		MinimumDetectablePercent: document.Number(100 * detectable / math.Abs(a.Mean)),
	}.document(), nil
}

func (c Comparison) document() document.Document {
	means := document.Table{ID: "means", Title: "The two means", Columns: document.NumericColumns("side", "mean", "standard error", "of the mean", "n")}
	for _, side := range []struct {
		name string
		mean
	}{{"A", c.A}, {"B", c.B}} {
		share := document.ShareCell(side.StdErr / document.Number(math.Abs(float64(side.Mean))))
		means.Rows = append(means.Rows, append(document.TextRow(side.name, document.Exact(side.Mean), document.Exact(side.StdErr)), share, document.Cell{Text: fmt.Sprint(side.N)}))
	}
	test := document.Table{ID: "test", Title: "Welch's t test", Columns: []document.Column{{Name: "quantity", Header: true}, {Name: "value", Numeric: true}, {Name: "with df cut to an integer", Numeric: true}}}
	test.Rows = [][]document.Cell{
		{{Text: "t, positive when A is larger"}, {Text: document.Decimal(c.T, 3)}, {}},
		{{Text: "df"}, {Text: document.Decimal(c.DF, 2)}, {Text: document.Decimal(c.DFTruncated, 0)}},
		{{Text: "p, two-sided"}, document.PCell(c.P), document.PCell(c.PTruncated)},
		{{Text: "detectable difference"}, {Text: document.Rounded(c.MinimumDetectable)}, {}},
		{{Text: "detectable difference, of A"}, document.ShareCell(c.MinimumDetectablePercent / 100), {}},
	}
	test.Notes = []string{
		"p is " + naming.PMeaning + " Tables of the t distribution, and FitzGerald 2014, cut df to an integer.",
		"Detectable is the difference of the means that this test finds at 5 % in 80 % of such samples (noncentral t).",
	}
	record := []string{document.Exact(c.A.Mean), document.Exact(c.A.StdErr), fmt.Sprint(c.A.N), document.Exact(c.B.Mean), document.Exact(c.B.StdErr), fmt.Sprint(c.B.N)}
	doc := document.Document{
		Command: "compare", Title: "Two means compared", SchemaVersion: Version, Data: c,
		Headlines: []string{fmt.Sprintf("B differs from A by %s of A (%s).", document.ChangeCell(c.DeltaPercent/100).Text, document.PValue(c.P))},
		Groups:    []document.Group{{ID: "compared", Title: "Comparison", Tables: []document.Table{means, test}}},
		Records: [][]string{
			{"mean_a", "standard_error_a", "n_a", "mean_b", "standard_error_b", "n_b", "t", "df", "p", "df_truncated", "p_truncated", "delta_percent", "minimum_detectable", "minimum_detectable_percent"},
			append(record, document.Exacts(c.T, c.DF, c.P, c.DFTruncated, c.PTruncated, c.DeltaPercent, c.MinimumDetectable, c.MinimumDetectablePercent)...),
		},
	}
	doc.AnswerFirst(0)
	return doc
}
