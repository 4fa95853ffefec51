package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"unnest/experiments"
	"unnest/internal/measure/bench"
	"unnest/internal/measure/experiment"
	"unnest/internal/measure/result"
	"unnest/internal/measure/suite"
)

// study is an experiment and what brings it up.
type study struct {
	*experiment.Spec
	metrics []result.Metric // measured beside the workloads'
	up      func(context.Context, *experiment.Spec, bench.Options) (bench.Running, error)
}

// builtin are the studies that are no files: nothing in them has a workload.
var builtin = []func() study{
	func() study { return study{Spec: bench.BootSpec(), up: bench.UpBooter} },
	func() study { return study{Spec: bench.StartupSpec(), up: bench.UpStartup} },
}

// findBuiltin returns the study of builtin that has the name.
func findBuiltin(name string) (study, bool) {
	for _, make := range builtin {
		if s := make(); s.Name == name {
			return s, true
		}
	}
	return study{}, false
}

// names lists the studies that come with unnest.
func names() []string {
	all := experiments.List()
	for _, make := range builtin {
		all = append(all, make().Name)
	}
	slices.Sort(all)
	return all
}

// load reads a study: a path has a slash or the ending of a file, else it is
// the name of one that comes with unnest. The profile wins over the file's, unless
// it is empty.
func load(name string, profile suite.Profile) (study, error) {
	if s, ok := findBuiltin(name); ok {
		if profile != "" {
			return study{}, fmt.Errorf("study %s has no case of a suite: no profile %q can be chosen", name, profile)
		}
		return s, nil
	}
	if !strings.ContainsRune(name, '/') && filepath.Ext(name) == "" {
		file, data, err := experiments.Open(name)
		if err != nil {
			return study{}, err
		}
		return of(experiment.ParseProfile(file, data, profile))
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return study{}, fmt.Errorf("read experiment: %w", err)
	}
	return of(experiment.ParseProfile(name, data, profile))
}

// of returns the study of an experiment file. Cases of suites run where they are
// measured, workloads are loaded from outside; the suite harness compares ways to
// measure, every other one what is measured.
func of(spec *experiment.Spec, err error) (study, error) {
	if err != nil {
		return study{}, err
	}
	local := 0
	for _, c := range spec.Cases {
		if c.Local != nil {
			local++
		}
	}
	switch {
	case local == len(spec.Cases):
		return study{spec, nil, func(ctx context.Context, s *experiment.Spec, o bench.Options) (bench.Running, error) {
			return bench.UpSuites(ctx, s, o)
		}}, nil
	case local > 0:
		return study{}, fmt.Errorf("experiment %s: cases of suites and workloads stand on different machines: write two files", spec.Name)
	}
	if spec.Suite == "harness" {
		return study{spec, bench.HarnessMetrics(), bench.UpHarness}, nil
	}
	return study{spec, bench.Metrics(), func(ctx context.Context, s *experiment.Spec, o bench.Options) (bench.Running, error) {
		return bench.Up(ctx, s, o)
	}}, nil
}

// planned returns the study that the run in dir was made of, to go on with it.
func planned(dir string, run result.Run) (study, error) {
	s, ok := findBuiltin(run.Experiment)
	if !ok || run.File != "" {
		return of(experiment.FromRun(dir, run))
	}
	s.Repetitions = run.Repetitions
	again := s.NewRun(run.ID, run.Seed, run.Started)
	if !equal(again.Configurations, run.Configurations) || !equal(again.Cases, run.Cases) {
		return study{}, fmt.Errorf("go on with %s: its study %s has changed since: start it anew", dir, s.Name)
	}
	return s, nil
}

// equal reports whether two values are the same in a run's file.
func equal(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// drawSeed returns a seed that is not 0.
func drawSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:]) | 1
}
