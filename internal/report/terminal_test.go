package report_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/report/advice"
	"unnest.io/unnest/internal/report/comparison"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/papers"
	"unnest.io/unnest/internal/report/provenance"
	"unnest.io/unnest/internal/report/render/text"
	"unnest.io/unnest/internal/report/runs"
)

// TestTextFitsTerminal prints every published run, a comparison of two and the advice from it for
// a terminal of 80 columns.
func TestTextFitsTerminal(t *testing.T) {
	dirs, err := filepath.Glob("../../docs/results/runs/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("published runs: %d, error %v", len(dirs), err)
	}
	docs := map[string]document.Document{}
	for _, dir := range dirs {
		run, samples, err := rundir.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		shown := filepath.Join("docs/results/runs", filepath.Base(dir))
		docs[shown] = runs.Build(run, samples, runs.Options{Dir: shown, Papers: papers.All()})
		docs[shown+", compared"] = comparison.Build(provenance.Source{Dir: shown, Run: run, Samples: samples}, provenance.Source{Dir: shown, Run: run, Samples: samples}, true, nil)
		docs[shown+", advice"] = advice.Build(provenance.Source{Dir: shown, Run: run, Samples: samples}, nil)
	}
	for name, doc := range docs {
		var out bytes.Buffer
		if err := text.Print(&out, doc, text.Options{}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
	}
}
