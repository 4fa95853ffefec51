package report_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/collocation"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/advice"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/papers"
	"unnest.io/unnest/internal/report/provenance"
	"unnest.io/unnest/internal/report/render"
	"unnest.io/unnest/internal/report/render/html"
	"unnest.io/unnest/internal/report/runs"
)

// A run that has only a part of the full load does not say that it has the full load.
func TestDomainChartOfPartLoad(t *testing.T) {
	run, samples := domainRun(6)
	run.Cases = slices.DeleteFunc(run.Cases, func(c result.Case) bool { return c.Intensity == 100 })
	samples = slices.DeleteFunc(samples, func(s result.Sample) bool { return strings.HasPrefix(s.Case, "web@100") })
	titles := map[string]string{}
	for _, c := range runs.Build(run, samples, runs.Options{}).Groups[0].Charts {
		titles[c.ID] = c.Title
	}
	if got := titles["domains-fig-1c"]; got != "A domain alone: server throughput at 50 % of its full load (Fig. 1c)" {
		t.Errorf("got %q", got)
	}
}

// domainRun is a synthetic run: HVM and PVM alone, HVM next to an idle neighbour, and pairs that
// answer 80 % of what they answer alone.
func domainRun(blocks int) (result.Run, []result.Sample) {
	run := syntheticRun(blocks)
	run.Configurations, run.Baselines, run.Cases = nil, []string{"HVM"}, nil
	mixes := []struct {
		name, domains string
		each          float64
	}{{"HVM", "hvm1", 1}, {"PVM", "pvm1", 1}, {"HVM-idle", "hvm1 hvm2!", 0.9}, {"HVM-HVM", "hvm1 hvm2", 0.7}, {"HVM-PVM", "hvm1 pvm1", 0.8}, {"PVM-1k", "pvm1 pvm2", 0.8}}
	for _, intensity := range []int{50, 100} {
		for _, size := range []int{1024, 102400} {
			run.Cases = append(run.Cases, result.Case{Suite: "collocation", Name: fmt.Sprintf("web@%d/%d", intensity, size), Group: fmt.Sprintf("web@%d", intensity),
				Size: size, Intensity: intensity, Title: fmt.Sprintf("Apache at %d %% of full load, %d B", intensity, size), Tool: "apache",
				Primary: collocation.Aggregate, Metrics: collocation.Metrics()})
		}
	}
	var samples []result.Sample
	for _, m := range mixes {
		conf := result.Configuration{Name: m.name, Stack: "vm", Options: map[string]string{"domains": strings.Join(strings.Fields(m.domains), "+")}}
		if m.name == "PVM-1k" {
			conf.Options["domains"] = "pvm1(1KiB)+pvm2"
		}
		run.Configurations = append(run.Configurations, conf)
		for _, c := range run.Cases {
			for block := range blocks {
				add := func(metric, unit string, v float64, tags map[string]string) {
					samples = append(samples, result.Sample{Run: run.ID, Suite: "collocation", Configuration: m.name, Case: c.Name, Metric: metric, Unit: unit,
						Order: result.HIB, Value: v, Block: block, Repetition: block, Boot: "boot", Tags: tags})
				}
				sum := 0.0
				for _, d := range strings.Fields(m.domains) {
					name, idle := strings.CutSuffix(d, "!")
					tags := map[string]string{collocation.DomainTag: name, collocation.ActiveTag: fmt.Sprint(!idle), collocation.SizeTag: fmt.Sprint(c.Size)}
					if m.name == "PVM-1k" && name == "pvm1" {
						tags[collocation.SizeTag] = "1024"
					}
					v := m.each * float64(c.Intensity) * (1 + float64((block+len(m.name))%3)/100)
					add(collocation.Utilisation, "%", v/2, tags)
					if !idle {
						add(collocation.Server, "responses/s", v, tags)
						sum += v
					}
				}
				add(collocation.Aggregate, "responses/s", sum, map[string]string{collocation.LimitTag: "it is late"})
				add(collocation.Conntrack, "packets", 1, nil)
			}
		}
	}
	return run, samples
}

func TestDomainReport(t *testing.T) {
	run, samples := domainRun(6)
	doc := runs.Build(run, samples, runs.Options{Papers: papers.All()})
	tables := map[string]string{}
	for _, table := range doc.Groups[0].Tables {
		tables[table.ID] = rowsText(table)
	}
	for id, wants := range map[string][]string{
		"domains-idle":  {"1024 B at 100 %|HVM-idle|HVM|0.90"},
		"domains-pairs": {"1024 B at 50 %|HVM-HVM|0.70", "102400 B at 100 %|HVM-PVM|0.80", "0.0 %"},
		"domains-same":  {"1024 B at 50 %|HVM-PVM|HVM-HVM|1.14"},
		"domains-peaks": {"HVM-PVM|1024 B|100 %|100"},
		"domains-paper": {"4b|1 KB|HVM-HVM|alone|+13 %", "6a|1 KB|HVM-PVM|HVM-HVM|+25 %", "17587 responses/s"},
		"domains-each":  {"web@50/1024|HVM-idle|hvm2|"},
	} {
		for _, want := range wants {
			if !strings.Contains(tables[id], want) {
				t.Errorf("%s: no %q in\n%s", id, want, tables[id])
			}
		}
	}
	var charts []string
	for _, c := range doc.Groups[0].Charts {
		charts = append(charts, c.ID)
	}
	for _, id := range []string{"1a", "1c", "3a", "4-1024", "5", "6-102400"} {
		if !strings.Contains(strings.Join(charts, " "), "domains-fig-"+id) {
			t.Errorf("no figure %s in %q", id, charts)
		}
	}
	if !strings.Contains(doc.Answer, "PVM-1k") && !strings.Contains(doc.Answer, "HVM-PVM") || !strings.Contains(doc.Answer, "HVM-HVM") {
		t.Errorf("answer %q", doc.Answer)
	}
	said := strings.Join(doc.Headlines, "\n")
	for _, want := range []string{"102400 B at 100 %, over what the domains answer alone (95 % intervals): HVM-PVM 0.80×", " and HVM-HVM 0.70×", "Idle neighbours: 4 comparisons with the same domain alone, 4 differences found (95 % intervals): HVM-idle with 1024 B at 50 % 0.90×"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in\n%s", want, said)
		}
	}
	if len(doc.Headlines) != 3 || strings.Contains(said, "at 50 %, over") || strings.Contains(said, "HVM is") {
		t.Errorf("headlines besides those of both documents and of idle neighbours:\n%s", said)
	}
	if f := doc.Figures; len(f) != 2 || f[0].Label != "HVM-PVM / alone" || f[0].Value != "0.80×" || f[0].Open || f[1].Value != "0.70×" {
		t.Errorf("figures %+v", f)
	}
	for _, d := range []document.Document{doc, advice.Build(provenance.Source{Dir: "runs/r1", Run: run, Samples: samples}, nil)} {
		warnings := strings.Join(d.Warnings, "\n")
		for _, want := range []string{"load generator was at its limit", "dropped 144 packets"} {
			if !strings.Contains(warnings, want) {
				t.Errorf("%s: no %q in %s", d.Title, want, warnings)
			}
		}
	}
	for _, e := range dataOf(doc).Estimates {
		if e.Metric == collocation.Server || e.Metric == collocation.Utilisation {
			t.Fatalf("an estimate mixes domains: %+v", e)
		}
	}
}

// The paper compares peaks: each side stands at the intensity where it answers most. A run of one intensity has that.
func TestPaperComparesPeaks(t *testing.T) {
	run, samples := domainRun(6)
	for i, s := range samples {
		if s.Configuration == "HVM-HVM" && strings.HasPrefix(s.Case, "web@100") {
			samples[i].Value /= 4
		}
	}
	paper := func(run result.Run, samples []result.Sample) string {
		tables := runs.Build(run, samples, runs.Options{Papers: papers.All()}).Groups[0].Tables
		return rowsText(tables[slices.IndexFunc(tables, func(t document.Table) bool { return t.ID == "domains-paper" })])
	}
	got := paper(run, samples)
	run.Cases = run.Cases[2:]
	single := paper(run, slices.DeleteFunc(samples, func(s result.Sample) bool { return strings.HasPrefix(s.Case, "web@50") }))
	for text, want := range map[string]string{got: "HVM-PVM|HVM-HVM|+25 %|2.29 times", single: "HVM-PVM|HVM-HVM|+25 %|4.57 times"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// The answer of a run with one pair is what that pair keeps with each document.
func TestAnswerOfOnePair(t *testing.T) {
	run, samples := domainRun(6)
	run.Configurations = slices.DeleteFunc(run.Configurations, func(c result.Configuration) bool { return c.Name == "HVM-PVM" || c.Name == "PVM-1k" })
	samples = slices.DeleteFunc(samples, func(s result.Sample) bool { return s.Configuration == "HVM-PVM" || s.Configuration == "PVM-1k" })
	doc := runs.Build(run, samples, runs.Options{})
	for _, want := range []string{"HVM-HVM, over what the domains answer alone (95 % intervals): 0.70×", "with 1024 B at 100 % and 0.70×", "with 102400 B at 100 %."} {
		if !strings.Contains(doc.Answer, want) {
			t.Errorf("no %q in %q", want, doc.Answer)
		}
	}
	if len(doc.Headlines) != 1 {
		t.Errorf("headlines besides that of idle neighbours: %q", doc.Headlines)
	}
}

// A sum does not hide that one of its domains gets almost nothing.
func TestStarvingPair(t *testing.T) {
	run, samples := domainRun(6)
	for i, s := range samples {
		if s.Configuration == "HVM-PVM" && s.Metric == collocation.Server && strings.HasPrefix(s.Tags[collocation.DomainTag], "hvm") {
			samples[i].Value /= 10
		}
	}
	doc := runs.Build(run, samples, runs.Options{})
	if !strings.Contains(doc.Answer, "but hvm1 only 8 % of what it answers alone.") {
		t.Errorf("answer %q", doc.Answer)
	}
	if said := strings.Join(doc.Headlines, "\n"); !strings.Contains(said, "(hvm1 only 8 %)") || strings.Contains(said, "pvm1 only") {
		t.Errorf("headlines %q", said)
	}
	if f := doc.Figures; !strings.HasSuffix(f[0].Detail, "; hvm1 only 8 %") || strings.Contains(f[1].Detail, "only") {
		t.Errorf("figures %+v", f)
	}
}

// A run without domains has no such section, and each domain has a line of its own in Go's format.
func TestDomainLines(t *testing.T) {
	run, samples := nginxRun()
	if doc := runs.Build(run, samples, runs.Options{}); doc.Groups[0].ID == "domains" {
		t.Error("a run without domains has a section on them")
	}
	run, samples = domainRun(1)
	var b bytes.Buffer
	if err := render.GoBench(&b, runs.Build(run, samples, runs.Options{})); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"/size=1024/domain=hvm2/config=HVM-HVM\t1", "/size=1024/config=HVM-HVM\t1"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %s in\n%s", want, b.String())
		}
	}
	for _, format := range []func() error{
		func() error { return html.Print(&b, runs.Build(run, samples, runs.Options{})) },
		func() error { return render.Markdown(&b, runs.Build(run, samples, runs.Options{})) },
		func() error { return render.CSV(&b, runs.Build(run, samples, runs.Options{})) },
	} {
		if err := format(); err != nil {
			t.Error(err)
		}
	}
}
