package comparison

import (
	"fmt"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/estimate"
	"unnest.io/unnest/internal/report/naming"
	"unnest.io/unnest/internal/report/provenance"
)

// maxDifferences is the number of differences in the headlines.
const maxDifferences = 5

func compareTitle(a, b result.Run) string {
	if naming.Run(a) == naming.Run(b) {
		return naming.Run(a) + ": two runs compared"
	}
	return naming.Run(a) + " (A) and " + naming.Run(b) + " (B) compared"
}

func joinDirs(a, b string) string {
	if a == "" && b == "" {
		return ""
	}
	return "A: " + a + ", B: " + b
}

func settings(a, b result.Run) string {
	if provenance.PlannedSetting(a) == provenance.PlannedSetting(b) {
		return provenance.PlannedSetting(a)
	}
	return "A: " + provenance.PlannedSetting(a) + "; B: " + provenance.PlannedSetting(b)
}

// attributed names the run of each warning, and merges warnings of both.
func attributed(a, b []string) []string {
	var lines []string
	for _, w := range a {
		of := estimate.SideA
		if slices.Contains(b, w) {
			of = estimate.SideA + " and " + estimate.SideB
		}
		lines = append(lines, of+": "+w)
	}
	for _, w := range document.Without(b, a) {
		lines = append(lines, estimate.SideB+": "+w)
	}
	return lines
}

// compareHeadlines count the differences of the primary metrics and list the first.
func compareHeadlines(estimates []estimate.Estimate) []string {
	var differences []string
	compared, judged := 0, 0
	for _, e := range estimates {
		for _, c := range e.Comparisons {
			if !e.Primary || !c.P.Defined() {
				continue
			}
			compared++
			if c.Verdict != "" {
				judged++
			}
			if c.Verdict == stats.Better || c.Verdict == stats.Worse {
				differences = append(differences, fmt.Sprintf("%s, %s: B is %s.", e.Case, e.Configuration, c.Words))
			}
		}
	}
	switch {
	case compared == 0:
		return []string{"The two runs have no samples in common."}
	case judged == 0:
		return []string{fmt.Sprintf("%s without a verdict: the runs share no block, so what the machine did in between looks like a difference.", document.Plural(compared, "comparison"))}
	case len(differences) == 0:
		return []string{fmt.Sprintf("No difference found in %s.", document.Plural(compared, "comparison"))}
	}
	lines := []string{fmt.Sprintf("B differs from A in %d of %s.", len(differences), document.Plural(compared, "comparison"))}
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
func compareProvenance(a, b provenance.Source, samplesA, samplesB []result.Sample) (warnings []string, t document.Table) {
	t = document.Table{ID: "provenance", Title: "Provenance", Columns: []document.Column{{Name: "difference in", Header: true}, {Name: estimate.SideA}, {Name: estimate.SideB}}}
	factsA, factsB := provenance.Facts(a.Dir, a.Run, samplesA), provenance.Facts(b.Dir, b.Run, samplesB)
	var names, same, differing []string
	for _, f := range slices.Concat(factsA, factsB) {
		if !slices.Contains(names, f.Name) {
			names = append(names, f.Name)
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
		t.Rows = append(t.Rows, []document.Cell{{Text: name}, orNone(va), orNone(vb)})
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

func valueOf(facts []document.Fact, name string) string {
	for _, f := range facts {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

func orNone(s string) document.Cell {
	if s == "" {
		return document.NoValue
	}
	return document.Cell{Text: s}
}
