package suite

import (
	"cmp"
	"embed"
	"fmt"
	"path"
	"regexp"
	"slices"
	"time"

	"github.com/goccy/go-yaml"

	"unnest.io/unnest/internal/measure/result"
)

// tables have the cases: a file for each suite, and processor.yaml for cpu and multicore.
//
//go:embed cases/*.yaml
var tables embed.FS

// entry is a case as its file has it.
type entry struct {
	Name   string
	Suites []string // of a case of processor.yaml, whose names follow those of the suites
	Title  string
	Paper  string
	// Package has Debian's packages, and is the only one of Tools if there are none.
	Package string
	Tools   []string
	Files   []File
	Metrics []metric // nil: the seconds of readElapsed

	// Prepare, Run and Timed are templates, see script. Timed is a Run that is timed as a whole.
	Prepare string
	Run     string
	Timed   string
	Server  *struct {
		Start    string
		Ready    string
		Broken   []string
		Versions string
	}
	Read string           // one of readers; empty: the patterns of the metrics
	Wall [2]time.Duration // quick, paper
}

// metric is a metric, and how its value is found in the output.
type metric struct {
	Name, Unit string
	Order      result.Order // empty: HIB
	Interval   float64
	Pattern    string  // see field; it matches lines
	Stressor   string  // the value is the rate of this stressor of stress-ng
	Scale      float64 // 0: 1
}

// suites are the suites in the order of All, and the tables that have their cases.
var suites = []struct{ name, table string }{
	{"cpu", "processor"}, {"multicore", "processor"}, {"memory", "memory"}, {"java", "java"}, {"disk", "disk"}, {"application", "application"}, {"sysbench", "sysbench"},
}

// casesOf returns the cases of a suite that a table has. It panics on a table that it cannot read, because tables are part of
// the program.
func casesOf(suite, table string) (cases []Case) {
	name := path.Join("cases", table+".yaml")
	data, err := tables.ReadFile(name)
	if err != nil {
		panic(err)
	}
	var entries []entry
	if err := yaml.UnmarshalWithOptions(data, &entries, yaml.Strict()); err != nil {
		panic(fmt.Sprintf("%s: %v", name, err))
	}
	for _, e := range entries {
		if e.Suites == nil {
			cases = append(cases, e.of(suite, e.Name))
		} else if slices.Contains(e.Suites, suite) {
			cases = append(cases, e.of(suite, suite+"-"+e.Name))
		}
	}
	return cases
}

func (e entry) of(suite, name string) Case {
	threads := func(r Resources) int { return r.VCPUs }
	if suite == "cpu" {
		threads = func(Resources) int { return 1 }
	}
	c := Case{Suite: suite, Name: name, Title: e.Title, Paper: e.Paper, Package: e.Package, Tools: e.Tools, Files: e.Files,
		Run: script(threads, e.Run), Wall: func(p Profile) time.Duration { return pick(p, e.Wall[0], e.Wall[1]) }}
	if e.Timed != "" {
		c.Run = script(threads, timed(e.Timed))
	}
	if e.Prepare != "" {
		c.Prepare = script(threads, e.Prepare)
	}
	if e.Tools == nil {
		c.Tools = []string{e.Package}
	}
	if s := e.Server; s != nil {
		c.Server = &Server{Start: script(threads, s.Start), Ready: s.Ready, Broken: s.Broken, Versions: s.Versions}
		c.Intervals = tradeIntervals
	}
	c.Metrics, c.Parse = e.metrics()
	return c
}

// metrics returns the metrics of a case and how they are read.
func (e entry) metrics() (metrics []result.Metric, read reader) {
	var fields []field
	for _, m := range e.Metrics {
		order, scale := cmp.Or(m.Order, result.HIB), cmp.Or(m.Scale, 1)
		if m.Stressor != "" {
			m.Pattern = fmt.Sprintf(stressorLine, m.Stressor)
		}
		metrics = append(metrics, result.Metric{Name: m.Name, Unit: m.Unit, Order: order, Interval: m.Interval})
		fields = append(fields, field{m.Name, regexp.MustCompile("(?m)" + m.Pattern), scale})
	}
	switch {
	case metrics == nil && e.Read == "":
		return []result.Metric{seconds}, readElapsed
	case metrics == nil:
		return []result.Metric{seconds}, readers[e.Read]
	case e.Read == "":
		return metrics, numbers(fields...)
	}
	return metrics, readers[e.Read]
}
