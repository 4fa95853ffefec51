package report

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"unnest/internal/measure/result"
)

// TestTextFitsTerminal prints every published run, a comparison of two and the advice from it for
// a terminal of 80 columns.
func TestTextFitsTerminal(t *testing.T) {
	dirs, err := filepath.Glob("../../docs/results/runs/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("published runs: %d, error %v", len(dirs), err)
	}
	docs := map[string]Document{}
	for _, dir := range dirs {
		run, samples, err := result.Load(dir)
		if err != nil {
			t.Fatal(err)
		}
		shown := filepath.Join("docs/results/runs", filepath.Base(dir))
		docs[shown] = Build(run, samples, Options{Dir: shown, Papers: AllPapers()})
		docs[shown+", compared"] = Compare(Input{shown, run, samples}, Input{shown, run, samples}, Options{})
		docs[shown+", advice"] = Advise(Input{shown, run, samples}, nil)
	}
	for name, doc := range docs {
		var out bytes.Buffer
		if err := Text(&out, doc, TextOptions{}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
				t.Errorf("%s: %d columns: %s", name, n, line)
			}
		}
	}
}
