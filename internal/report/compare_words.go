package report

import (
	"fmt"
	"slices"
	"strings"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stats"
)

// maxDifferences is the number of differences in the headlines.
const maxDifferences = 5

func compareTitle(a, b result.Run) string {
	if titleOf(a) == titleOf(b) {
		return titleOf(a) + ": two runs compared"
	}
	return titleOf(a) + " (A) and " + titleOf(b) + " (B) compared"
}

func joinDirs(a, b string) string {
	if a == "" && b == "" {
		return ""
	}
	return "A: " + a + ", B: " + b
}

func settings(a, b result.Run) string {
	if setting(a) == setting(b) {
		return setting(a)
	}
	return "A: " + setting(a) + "; B: " + setting(b)
}

// attributed names the run of each warning, and merges warnings of both.
func attributed(a, b []string) []string {
	var lines []string
	for _, w := range a {
		of := sideA
		if slices.Contains(b, w) {
			of = sideA + " and " + sideB
		}
		lines = append(lines, of+": "+w)
	}
	for _, w := range without(b, a) {
		lines = append(lines, sideB+": "+w)
	}
	return lines
}

// compareHeadlines count the differences of the primary metrics and list the first.
func compareHeadlines(estimates []Estimate) []string {
	var differences []string
	compared := 0
	for _, e := range estimates {
		for _, c := range e.Comparisons {
			if !e.Primary || !c.P.Defined() {
				continue
			}
			compared++
			if c.Verdict == stats.Better || c.Verdict == stats.Worse {
				differences = append(differences, fmt.Sprintf("%s, %s: B is %s.", e.Case, e.Configuration, c.Words))
			}
		}
	}
	switch {
	case compared == 0:
		return []string{"The two runs have no samples in common."}
	case len(differences) == 0:
		return []string{fmt.Sprintf("No difference found in %s.", plural(compared, "comparison"))}
	}
	lines := []string{fmt.Sprintf("B differs from A in %d of %s.", len(differences), plural(compared, "comparison"))}
	lines = append(lines, differences[:min(len(differences), maxDifferences)]...)
	if rest := len(differences) - maxDifferences; rest > 0 {
		lines = append(lines, fmt.Sprintf("The tables have %d more.", rest))
	}
	return lines
}

// decisive reports whether a fact can explain a difference in the results.
func decisive(name string) bool {
	switch name {
	case "run", "run directory", "state", "started", "ended", "seed", "executions planned", "samples", "guest boots", "noise":
		return false
	}
	return true
}

// compareProvenance lists the facts in which two runs differ, and warns of those that
// may matter.
func compareProvenance(a, b Input, samplesA, samplesB []result.Sample) (warnings []string, t Table) {
	t = Table{ID: "provenance", Title: "Provenance", Columns: []Column{{Name: "difference in", Header: true}, {Name: sideA}, {Name: sideB}}}
	factsA, factsB := facts(a.Dir, a.Run, samplesA), facts(b.Dir, b.Run, samplesB)
	var names, same, differing []string
	for _, f := range slices.Concat(factsA, factsB) {
		if !slices.Contains(names, f.name) {
			names = append(names, f.name)
		}
	}
	for _, name := range names {
		va, vb := valueOf(factsA, name), valueOf(factsB, name)
		switch {
		case va == "" && vb == "":
			continue
		case va == vb:
			same = append(same, name)
			continue
		case decisive(name):
			differing = append(differing, name)
		}
		t.Rows = append(t.Rows, []Cell{{Text: name}, orNone(va), orNone(vb)})
	}
	if a.Run.File != b.Run.File {
		differing = append(differing, "experiment file")
	}
	if len(same) > 0 {
		t.Notes = []string{"Equal in both runs: " + strings.Join(same, ", ") + "."}
	}
	if len(differing) > 0 {
		warnings = []string{"The runs differ in: " + strings.Join(differing, ", ") + ". See the provenance."}
	}
	return warnings, t
}

func valueOf(facts []fact, name string) string {
	for _, f := range facts {
		if f.name == name {
			return f.value
		}
	}
	return ""
}

func orNone(s string) Cell {
	if s == "" {
		return noValue
	}
	return Cell{Text: s}
}
