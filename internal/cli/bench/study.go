package bench

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"unnest/experiments"
	"unnest/internal/bench"
	"unnest/internal/experiment"
	"unnest/internal/result"
)

// study is an experiment and what brings it up.
type study struct {
	*experiment.Spec
	metrics []result.Metric // measured beside the workloads'
	up      func(context.Context, *experiment.Spec, bench.Options) (bench.Running, error)
}

// bootName is the one study that is no file: nothing in it has a workload.
const bootName = "boot"

// names lists the studies that come with unnest.
func names() []string {
	all := append(experiments.List(), bootName)
	slices.Sort(all)
	return all
}

// load reads a study: a path has a slash or the ending of a file, else it is
// the name of one that comes with unnest.
func load(name string) (study, error) {
	if name == bootName {
		return study{Spec: bench.BootSpec(), up: bench.UpBooter}, nil
	}
	if !strings.ContainsRune(name, '/') && filepath.Ext(name) == "" {
		file, data, err := experiments.Open(name)
		if err != nil {
			return study{}, err
		}
		return of(experiment.Parse(file, data))
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return study{}, fmt.Errorf("read experiment: %w", err)
	}
	return of(experiment.Parse(name, data))
}

// of returns the study of an experiment file. The suite harness compares ways
// to measure, every other one what is measured.
func of(spec *experiment.Spec, err error) (study, error) {
	if err != nil {
		return study{}, err
	}
	if spec.Suite == "harness" {
		return study{spec, bench.HarnessMetrics(), bench.UpHarness}, nil
	}
	return study{spec, bench.Metrics(), func(ctx context.Context, s *experiment.Spec, o bench.Options) (bench.Running, error) {
		return bench.Up(ctx, s, o)
	}}, nil
}

// drawSeed returns a seed that is not 0.
func drawSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:]) | 1
}
