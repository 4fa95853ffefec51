package report

import (
	"encoding/json"
	"fmt"
	"io"

	"unnest/internal/measure/stats"
)

// SummaryComparison is what can be said of two means of which only the standard
// error and the number of samples are known, as publications print them. The
// JSON keys are part of the command line.
type SummaryComparison struct {
	A                        summary `json:"a"`
	B                        summary `json:"b"`
	T                        Number  `json:"t"` // Welch's, positive when A is larger
	DF                       Number  `json:"df"`
	P                        Number  `json:"p"`            // two-sided
	DFTruncated              Number  `json:"df_truncated"` // cut to an integer
	PTruncated               Number  `json:"p_truncated"`
	PMeaning                 string  `json:"p_meaning"`
	DeltaPercent             Number  `json:"delta_percent"` // of B against A
	DeltaPercentOf           string  `json:"delta_percent_of"`
	MinimumDetectable        Number  `json:"minimum_detectable"`         // in the unit of the means
	MinimumDetectablePercent Number  `json:"minimum_detectable_percent"` // of A
}

type summary struct {
	Mean   Number `json:"mean"`
	StdErr Number `json:"standard_error"`
	N      int    `json:"n"`
}

// CompareSummaries sets b against a. It fails as stats.Welch does: with fewer
// than two samples on a side, or when both standard errors are 0.
func CompareSummaries(a, b stats.Moments) (SummaryComparison, error) {
	welch, err := stats.Welch(a, b)
	if err != nil {
		return SummaryComparison{}, err
	}
	truncated, err := stats.WelchTruncated(a, b)
	if err != nil {
		return SummaryComparison{}, err
	}
	unit := a
	unit.Mean = 1 // of which a fraction is the difference itself
	return SummaryComparison{
		A: summary{Number(a.Mean), Number(a.StdErr), a.N}, B: summary{Number(b.Mean), Number(b.StdErr), b.N},
		T: Number(welch.Statistic), DF: Number(welch.DF), P: Number(welch.P),
		DFTruncated: Number(truncated.DF), PTruncated: Number(truncated.P),
		PMeaning:     stats.PMeaning,
		DeltaPercent: Number(100 * b.RelativeChange(a)), DeltaPercentOf: sideA,
		MinimumDetectable:        Number(stats.MinimumDetectable(b, unit)),
		MinimumDetectablePercent: Number(100 * stats.MinimumDetectable(b, a)),
	}, nil
}

// JSON prints c as one object.
func (c SummaryComparison) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(c)
}

// Text prints c for a terminal of width columns, 0 for 100.
func (c SummaryComparison) Text(w io.Writer, width int) error {
	if width == 0 {
		width = 100
	}
	p := textPrinter{options: TextOptions{Width: width}}
	for _, side := range []struct {
		name string
		s    summary
	}{{sideA, c.A}, {sideB, c.B}} {
		p.wrapped("", side.name+"  ", fmt.Sprintf("%s ± %s (standard error %s), n = %d", exact(side.s.Mean)[0], exact(side.s.StdErr)[0], shareCell(side.s.StdErr/abs(side.s.Mean)).Text, side.s.N))
	}
	p.buf.WriteString("\n")
	for _, line := range []struct{ name, text string }{
		{"B against A", fmt.Sprintf("%s of A", changeCell(c.DeltaPercent/100).Text)},
		{"Welch's t", fmt.Sprintf("%s, positive when A is larger", decimal(c.T, 3))},
		{"df", fmt.Sprintf("%s, cut to an integer %s", decimal(c.DF, 2), decimal(c.DFTruncated, 0))},
		{"p", fmt.Sprintf("%s, with df cut %s (two-sided)", pCell(c.P).Text, pCell(c.PTruncated).Text)},
		{"detectable", fmt.Sprintf("%s, %s of A", number(c.MinimumDetectable), shareCell(c.MinimumDetectablePercent/100).Text)},
	} {
		p.wrapped("", fmt.Sprintf("  %-12s ", line.name), line.text)
	}
	p.buf.WriteString("\n")
	for _, note := range []string{
		"p is " + c.PMeaning + ". It is not the probability that the means are equal. Tables of the t distribution, and FitzGerald 2014, cut df to an integer.",
		"detectable is the smallest difference that two such samples would have shown about four times out of five, in a test at 5 %; with few samples less often.",
	} {
		p.wrapped("", "", note)
	}
	_, err := w.Write(p.buf.Bytes())
	return err
}

func abs(n Number) Number {
	if n < 0 {
		return -n
	}
	return n
}
