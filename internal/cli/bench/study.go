package bench

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"unnest/experiments"
	"unnest/internal/cli/usage"
	"unnest/internal/measure/bench"
	"unnest/internal/measure/experiment"
	"unnest/internal/measure/result"
	"unnest/internal/measure/suite"
)

// load reads an experiment: a file if name has a slash or a file extension, else a
// built-in one. The profile overrides that of the file unless it is empty.
func load(name string, profile suite.Profile) (*experiment.Spec, error) {
	file, data, err := open(name)
	if err != nil {
		return nil, err
	}
	spec, err := experiment.ParseProfile(file, data, profile)
	return checked(spec, err)
}

func open(name string) (file string, data []byte, err error) {
	if !strings.ContainsRune(name, '/') && filepath.Ext(name) == "" {
		if known := experiments.List(); !slices.Contains(known, name) {
			return "", nil, usage.Errorf("no experiment %q%s there are %s; for a file give a path such as ./%s.yaml",
				name, cmp.Or(usage.Suggest(name, "", known), ":"), strings.Join(known, ", "), name)
		}
		return experiments.Open(name)
	}
	if data, err = os.ReadFile(name); err != nil {
		return "", nil, fmt.Errorf("read experiment: %w", err)
	}
	return name, data, nil
}

// checked refuses an experiment that cannot be brought up.
func checked(spec *experiment.Spec, err error) (*experiment.Spec, error) {
	if err == nil {
		err = bench.Check(spec)
	}
	if err != nil {
		return nil, err
	}
	return spec, nil
}

// planned returns the experiment of the run in dir, to resume it.
func planned(dir string, run result.Run) (*experiment.Spec, error) {
	if run.File != "" {
		return checked(experiment.FromRun(dir, run))
	}
	// Earlier versions had no files of the studies boot and startup.
	spec, err := load(run.Experiment, "")
	if err != nil {
		return nil, fmt.Errorf("resume %s: %w", dir, err)
	}
	spec.Text, spec.Repetitions = "", run.Repetitions
	again := spec.NewRun(run.ID, run.Seed, run.Started)
	if !equal(again.Configurations, run.Configurations) || !equal(again.Cases, run.Cases) {
		return nil, fmt.Errorf("resume %s: study %s has changed since: start a new run", dir, run.Experiment)
	}
	return spec, nil
}

// equal reports whether two values are equal in JSON.
func equal(a, b any) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// drawSeed returns a random seed other than 0.
func drawSeed() uint64 { return rand.Uint64() | 1 }
