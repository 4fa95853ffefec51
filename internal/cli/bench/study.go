package bench

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
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

// load reads an experiment: a path has a slash or the ending of a file, else it is
// the name of one that comes with unnest. The profile wins over the file's, unless
// it is empty.
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
			did := usage.Suggest(name, "", known)
			if did == "" {
				did = ":"
			}
			return "", nil, usage.Errorf("no experiment %q%s there are %s; for a file give a path such as ./%s.yaml", name, did, strings.Join(known, ", "), name)
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

// planned returns the experiment that the run in dir was made of, to resume it.
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
