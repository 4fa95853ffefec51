package report

import (
	"fmt"
	"slices"
	"strings"

	"unnest/internal/measure/stats"
)

// doubts appends a column that says next to each row why to trust it less: because of an
// estimate or its comparisons. Each of sides has one estimate per row. There is no column
// where nothing is doubtful.
func (t *Table) doubts(sides ...[]Estimate) {
	cells, some := make([]Cell, len(t.Rows)), false
	for i := range t.Rows {
		for _, side := range sides {
			cells[i] = doubtsCell(cells[i], side[i], len(sides) > 1)
		}
		some = some || cells[i].Text != ""
	}
	if some {
		t.column(Column{Name: "doubts", Page: true}, func(i int) Cell { return cells[i] })
	}
}

// doubtsCell adds the doubts about e to cell; named says of which run it is.
func doubtsCell(cell Cell, e Estimate, named bool) Cell {
	text := strings.Join(doubtsOf(e), "; ")
	if e.N == 0 {
		text, cell.Missing = e.Missing, true
	}
	if named && text != "" {
		text = e.Run + ": " + text
	}
	cell.Text = strings.Join(slices.DeleteFunc([]string{cell.Text, text}, func(s string) bool { return s == "" }), "; ")
	return cell
}

// doubtsOf are the doubts about an estimate and its comparisons in a few words, each once.
func doubtsOf(e Estimate) []string {
	all := slices.Clone(e.doubts)
	for _, c := range e.Comparisons {
		if c.first {
			all = append(all, c.doubts...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// doubtWords names a warning in a few words. Too few blocks have no word, because there is no
// verdict to doubt.
func doubtWords(w stats.Warning) string {
	switch w.Kind {
	case stats.FewRepetitions:
		return ""
	case stats.Repeated:
		return "several values per block"
	case stats.NoVariance:
		return "all values equal"
	case stats.Noisy:
		return "noisy: " + percent(w.Value)
	case stats.Outliers:
		return plural(w.N, "outlier")
	case stats.Drift:
		return "drifts"
	case stats.NoRatio:
		return fmt.Sprintf("no ratio: %v", w.Err)
	}
	return w.Err.Error() // Unusable
}

// doubtsMethod explains the words of the column.
var doubtsMethod = Method{"doubts", fmt.Sprintf("Reasons to trust a row less. Noisy: the standard deviation is more than %s of the mean, as said. "+
	"Outliers: values more than %v scaled median absolute deviations from the median. Drifts: the values rise or fall over the blocks (Mann-Kendall, p < %v). "+
	"All values equal: the resolution of the tool may be too coarse. Several values per block count as one, because they are not independent.",
	percent(stats.NoisyCV), stats.OutlierMADs, stats.DriftAlpha)}
