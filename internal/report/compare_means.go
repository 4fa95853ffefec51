package report

import (
	"fmt"
	"math"

	"unnest/internal/measure/stats"
)

// MeansComparison is what can be said of two means of which only the standard error
// and the number of samples are known, as publications print them. The JSON keys are
// part of the command line.
type MeansComparison struct {
	A                        mean   `json:"a"`
	B                        mean   `json:"b"`
	T                        Number `json:"t"` // Welch's, positive when A is larger
	DF                       Number `json:"df"`
	P                        Number `json:"p"`            // two-sided
	DFTruncated              Number `json:"df_truncated"` // cut to an integer
	PTruncated               Number `json:"p_truncated"`
	PMeaning                 string `json:"p_meaning"`
	DeltaPercent             Number `json:"delta_percent"` // of B against A
	DeltaPercentOf           string `json:"delta_percent_of"`
	MinimumDetectable        Number `json:"minimum_detectable"`         // in the unit of the means
	MinimumDetectablePercent Number `json:"minimum_detectable_percent"` // of A
}

type mean struct {
	Mean   Number `json:"mean"`
	StdErr Number `json:"standard_error"`
	N      int    `json:"n"`
}

// CompareMeans reports how b differs from a; its Data is a MeansComparison. It fails as
// stats.Welch does: with fewer than two samples on a side, or when both standard errors
// are 0.
func CompareMeans(a, b stats.Moments) (Document, error) {
	welch, err := stats.Welch(a, b)
	if err != nil {
		return Document{}, err
	}
	truncated, err := stats.WelchTruncated(a, b)
	if err != nil {
		return Document{}, err
	}
	detectable, err := stats.MinimumDetectable(b, a)
	if err != nil {
		return Document{}, err
	}
	return MeansComparison{
		A: mean{Number(a.Mean), Number(a.StdErr), a.N}, B: mean{Number(b.Mean), Number(b.StdErr), b.N},
		T: Number(welch.Statistic), DF: Number(welch.DF), P: Number(welch.P),
		DFTruncated: Number(truncated.DF), PTruncated: Number(truncated.P),
		PMeaning:     stats.PMeaning,
		DeltaPercent: Number(100 * b.RelativeChange(a)), DeltaPercentOf: sideA,
		MinimumDetectable:        Number(detectable),
		MinimumDetectablePercent: Number(100 * detectable / math.Abs(a.Mean)),
	}.document(), nil
}

// document words c.
func (c MeansComparison) document() Document {
	means := Table{ID: "means", Title: "The two means", Columns: numericColumns("side", "mean", "standard error", "of the mean", "n")}
	for _, side := range []struct {
		name string
		mean
	}{{sideA, c.A}, {sideB, c.B}} {
		share := shareCell(side.StdErr / Number(math.Abs(float64(side.Mean))))
		means.Rows = append(means.Rows, append(textRow(side.name, exact(side.Mean)[0], exact(side.StdErr)[0]), share, Cell{Text: fmt.Sprint(side.N)}))
	}
	test := Table{ID: "test", Title: "Welch's t test", Columns: []Column{{Name: "quantity", Header: true}, {Name: "value", Numeric: true}, {Name: "with df cut to an integer", Numeric: true}}}
	test.Rows = [][]Cell{
		{{Text: "t, positive when A is larger"}, {Text: decimal(c.T, 3)}, {}},
		{{Text: "df"}, {Text: decimal(c.DF, 2)}, {Text: decimal(c.DFTruncated, 0)}},
		{{Text: "p, two-sided"}, pCell(c.P), pCell(c.PTruncated)},
		{{Text: "detectable difference"}, {Text: number(c.MinimumDetectable)}, {}},
		{{Text: "detectable difference, of A"}, shareCell(c.MinimumDetectablePercent / 100), {}},
	}
	test.Notes = []string{
		"p is " + pMeaning + " Tables of the t distribution, and FitzGerald 2014, cut df to an integer.",
		"Detectable is the difference of the means that this test finds at 5 % in 80 % of such samples (noncentral t).",
	}
	record := []string{exact(c.A.Mean)[0], exact(c.A.StdErr)[0], fmt.Sprint(c.A.N), exact(c.B.Mean)[0], exact(c.B.StdErr)[0], fmt.Sprint(c.B.N)}
	doc := Document{
		Command: "compare", Title: "Two means compared", Data: c,
		Headlines: []string{fmt.Sprintf("B differs from A by %s of A (%s).", changeCell(c.DeltaPercent/100).Text, pValue(c.P))},
		Groups:    []Group{{ID: "compared", Title: "Comparison", Tables: []Table{means, test}}},
		Records: [][]string{
			{"mean_a", "standard_error_a", "n_a", "mean_b", "standard_error_b", "n_b", "t", "df", "p", "df_truncated", "p_truncated", "delta_percent", "minimum_detectable", "minimum_detectable_percent"},
			append(record, exact(c.T, c.DF, c.P, c.DFTruncated, c.PTruncated, c.DeltaPercent, c.MinimumDetectable, c.MinimumDetectablePercent)...),
		},
	}
	doc.answerFirst(0)
	return doc
}
