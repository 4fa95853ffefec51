// Package benchtest has what the tests of studies and of their machines share.
package benchtest

import (
	_ "embed"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/experiments"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/workload"
)

// KafkaCases is an experiment whose servers and clients need more than our programs.
//
//go:embed kafka.yaml
var KafkaCases string

// Mixes is an experiment with domains side by side.
//
//go:embed mixes.yaml
var Mixes string

// Parse parses an experiment file.
func Parse(t *testing.T, text string) *experiment.Spec {
	t.Helper()
	spec, err := experiment.Parse("x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// Open returns a study that comes with unnest.
func Open(t *testing.T, name string) *experiment.Spec {
	t.Helper()
	file, text, err := experiments.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := experiment.Parse(file, text)
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

// Case returns a case of a workload, of a second and with 1280 bytes.
func Case(name, tool string, protocol workload.Protocol) experiment.Case {
	c := experiment.Case{
		Case:   result.Case{Suite: "network", Name: name, Tool: tool},
		Params: workload.Params{Protocol: protocol, Size: 1280, Duration: time.Second},
	}
	c.Wall = c.Workload().Wall(c.Params)
	return c
}

// Execution returns an execution of a case in the configuration of a name.
func Execution(configuration string, c experiment.Case, block int) experiment.Execution {
	return experiment.Execution{Configuration: stack.Configuration{Name: configuration}, Case: c, Block: block, Repetition: block}
}

// Phases is a Progress that records the names of the phases.
type Phases []string

// Phase records the name.
func (p *Phases) Phase(name string) { *p = append(*p, name) }

// Report does nothing.
func (p *Phases) Report(experiment.Event) {}

// Process is a process of a place whose end is that of a function.
type Process func() error

// Wait waits for the end of the function.
func (p Process) Wait() error { return p() }

// ContainsAll reports whether text has all words.
func ContainsAll(text string, words ...string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) })
}

// Write writes a file, in a directory that it makes.
func Write(t *testing.T, path, content string) {
	t.Helper()
	err := os.MkdirAll(filepath.Dir(path), 0o700)
	if err == nil {
		err = os.WriteFile(path, []byte(content), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// MetricNames checks the metrics of a case and returns their names.
func MetricNames(t *testing.T, c result.Case) []string {
	t.Helper()
	var names []string
	for _, m := range c.Metrics {
		if err := m.Order.Validate(); err != nil || m.Unit == "" || slices.Contains(names, m.Name) {
			t.Errorf("%s: metric %+v has no order or unit, or is there twice (%v)", c.Name, m, err)
		}
		names = append(names, m.Name)
	}
	if !slices.Contains(names, c.Primary) {
		t.Errorf("%s: primary %s is not among %v", c.Name, c.Primary, names)
	}
	return names
}

// CheckStudy checks a study that comes with unnest and returns the names of its
// configurations.
func CheckStudy(t *testing.T, s *experiment.Spec) (names []string) {
	t.Helper()
	if len(s.Warnings()) > 0 {
		t.Errorf("its results are weak: %v", s.Warnings())
	}
	for _, c := range s.Configurations {
		names = append(names, c.Name)
	}
	for _, b := range s.Baselines {
		if !slices.Contains(names, b) {
			t.Errorf("baseline %s is not a configuration", b)
		}
	}
	return names
}

// XenSpec parses an experiment of configurations and cases with guests of 4 vCPUs and 512 MiB.
func XenSpec(t *testing.T, configurations, cases string) *experiment.Spec {
	t.Helper()
	suite := "suite: x\n"
	if strings.Contains(cases, "suite: sysbench") {
		suite = ""
	}
	spec, err := experiment.Parse("x.yaml", []byte("name: x\n"+suite+"guest: {vcpus: 4, memory: 512MiB}\nconfigurations:\n"+
		configurations+"cases:\n"+cases+"repetitions: 1\n"))
	if err != nil {
		t.Fatal(err)
	}
	return spec
}
