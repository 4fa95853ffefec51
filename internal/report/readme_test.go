package report

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"unnest/internal/measure/result"
)

// TestReadme compares the quickstart's output in the README with the report of the samples
// that are kept. -update writes it again.
func TestReadme(t *testing.T) {
	const readme, indent = "../../README.md", "    "
	run, samples, err := result.Load("../../docs/results/runs/quickstart")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Text(&out, Build(run, samples, Options{Dir: "runs/" + run.ID, Papers: AllPapers()}), TextOptions{Brief: true}); err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for line := range strings.Lines(out.String()) {
		if line != "\n" {
			line = indent + line
		}
		want.WriteString(line)
	}
	page, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), indent+run.Title+"\n")
	_, after, ends := strings.Cut(rest, indent+"run directory ")
	if !found || !ends {
		t.Fatal("the README does not show the quickstart's output from its title to the run directory")
	}
	after = "\n" + indent + "run directory " + after
	switch {
	case before+want.String()+after == string(page):
	case *update:
		if err := os.WriteFile(readme, []byte(before+want.String()+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the README shows another output than docs/results/runs/quickstart has; rewrite it with -update:\n%s", want.String())
	}
}
