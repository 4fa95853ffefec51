package report_test

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/noise"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/report/advice"
	"unnest.io/unnest/internal/report/claims"
	"unnest.io/unnest/internal/report/papers"
	"unnest.io/unnest/internal/report/provenance"
	"unnest.io/unnest/internal/report/render"
	"unnest.io/unnest/internal/report/render/text"
	"unnest.io/unnest/internal/report/runs"
)

// TestReadme compares the paths of packets in the README with those in the report of the quickstart that is
// kept. -update writes them again.
func TestReadme(t *testing.T) {
	run, samples, err := rundir.Load("../../docs/results/runs/quickstart")
	if err != nil {
		t.Fatal(err)
	}
	doc := runs.Build(run, samples, runs.Options{})
	var want strings.Builder
	latency := func(value string) float64 {
		us, err := strconv.ParseFloat(strings.TrimSuffix(value, " µs"), 64)
		if err != nil {
			t.Fatal(err)
		}
		return us
	}
	shown := dataOf(doc).Paths
	for _, p := range shown {
		var hops, added []string // added: hops in the VM that the first path lacks
		for _, h := range p.Hops {
			switch nested := h.Place == "nested"; {
			case nested:
				added = append(added, h.Name)
				continue
			case len(added) > 0:
				hops = append(hops, fmt.Sprintf("[%s: %+.1f µs]", strings.Join(added, " → "), latency(p.Value)-latency(shown[0].Value)))
				added = nil
			}
			hops = append(hops, h.Name)
		}
		fmt.Fprintf(&want, "    %-8s  %6s  %s\n", p.Configuration, p.Value, strings.Join(hops, " → "))
	}
	fmt.Fprintf(&want, "\n%s\n%s (%s)\n\n", doc.Headlines[0], doc.Headlines[1], doc.Setting)
	const file, begin, end = "../../README.md", "<!-- begin path -->\n\n", "<!-- end path -->"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(page), strings.TrimSuffix(begin, "\n"))
	was, after, ends := strings.Cut(rest, end)
	switch {
	case !begins || !ends:
		t.Fatalf("the README lacks %q or %q", begin, end)
	case was == "\n"+want.String():
	case *update:
		if err := os.WriteFile(file, []byte(before+begin+want.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the README shows other paths than docs/results/runs/quickstart has; rewrite it with -update:\n%s", want.String())
	}
}

// TestQuickstartPage compares the quickstart's output in docs/quickstart.md, up to its first table, with the
// report of the samples that are kept. -update writes it again.
func TestQuickstartPage(t *testing.T) {
	const readme, indent = "../../docs/quickstart.md", "    "
	run, samples, err := rundir.Load("../../docs/results/runs/quickstart")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := text.Print(&out, runs.Build(run, samples, runs.Options{Dir: "runs/" + run.ID, Papers: papers.All()}), text.Options{Brief: true}); err != nil {
		t.Fatal(err)
	}
	const second = "UDP ping-pong: this run and the ratios of the paper"
	answer, _, found := strings.Cut(out.String(), second)
	if !found {
		t.Fatalf("the output has no table %q:\n%s", second, out.String())
	}
	var want strings.Builder
	for line := range strings.Lines(answer + "…\n") {
		if line != "\n" {
			line = indent + line
		}
		want.WriteString(line)
	}
	page, err := os.ReadFile(readme)
	if err != nil {
		t.Fatal(err)
	}
	current := regexp.MustCompile(`runs/[0-9-]+-quickstart`).ReplaceAllString(string(page), "runs/"+run.ID)
	before, rest, begins := strings.Cut(current, indent+run.Title+"\n")
	_, after, ends := strings.Cut(rest, indent+"run directory ")
	if !begins || !ends {
		t.Fatal("docs/quickstart.md does not show the quickstart's output from its title to the run directory")
	}
	after = "\n" + indent + "run directory " + after
	switch {
	case before+want.String()+after == string(page):
	case *update:
		if err := os.WriteFile(readme, []byte(before+want.String()+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("docs/quickstart.md shows another output than docs/results/runs/quickstart has; rewrite it with -update:\n%s", want.String())
	}
}

// TestReadmeOfAdvice compares the outputs in docs/advise.md with the advice of the samples that
// are kept. -update writes them again.
func TestReadmeOfAdvice(t *testing.T) {
	const file, indent = "../../docs/advise.md", "    "
	for _, part := range []struct{ run, from, to string }{
		{"quickstart", "Advice: ", "\nProvenance\n"},
		{"multilevel-disk", "What to measure", "\nProvenance\n"},
	} {
		run, samples, err := rundir.Load("../../docs/results/runs/" + part.run)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := text.Print(&out, advice.Build(provenance.Source{Dir: "docs/results/runs/" + part.run, Run: run, Samples: samples}, nil), text.Options{}); err != nil {
			t.Fatal(err)
		}
		_, text, _ := strings.Cut(out.String(), part.from)
		text, _, found := strings.Cut(part.from+text, part.to)
		if !found {
			t.Fatalf("the advice of %s has no part from %q to %q:\n%s", part.run, part.from, part.to, out.String())
		}
		var want strings.Builder
		for line := range strings.Lines(text + "\n") {
			want.WriteString(strings.TrimRight(indent+line, " \n") + "\n")
		}
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		begin, end := "<!-- begin "+part.run+" -->\n\n", "\n<!-- end "+part.run+" -->"
		before, rest, has := strings.Cut(string(page), begin)
		shown, after, ends := strings.Cut(rest, end)
		switch {
		case !has || !ends:
			t.Fatalf("%s lacks %q or %q", file, begin, end)
		case shown == want.String():
		case *update:
			if err := os.WriteFile(file, []byte(before+begin+want.String()+end+after), 0o644); err != nil {
				t.Fatal(err)
			}
		default:
			t.Errorf("%s shows another output than %s has; rewrite it with -update:\n%s", file, part.run, want.String())
		}
	}
}

// TestResultsPage compares the claims of the papers in docs/results/README.md with the runs that are kept.
// -update writes them again.
func TestResultsPage(t *testing.T) {
	const file, begin, end = "../../docs/results/README.md", "<!-- begin papers -->\n", "<!-- end papers -->"
	kept := map[string]provenance.Source{}
	for _, name := range claims.Runs() {
		run, journal, err := rundir.Read("../../docs/results/runs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		kept[name] = provenance.Source{Run: run, Samples: noise.Select(journal)}
	}
	var want bytes.Buffer
	if err := render.Markdown(&want, claims.Build(kept, nil)); err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(want.String(), "\n")
	text = strings.ReplaceAll(text, "\n## ", "\n### ")
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begins := strings.Cut(string(page), begin)
	shown, after, ends := strings.Cut(rest, end)
	switch {
	case !begins || !ends:
		t.Fatalf("%s lacks %q or %q", file, begin, end)
	case shown == text:
	case *update:
		if err := os.WriteFile(file, []byte(before+begin+text+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s shows other claims than the runs have; rewrite it with -update", file)
	}
}
