package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"unnest.io/unnest/internal/measure/cputime"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/machines/guestimage"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/study/boot"
	"unnest.io/unnest/internal/measure/study/clientserver"
	"unnest.io/unnest/internal/measure/study/domains"
	"unnest.io/unnest/internal/measure/study/generators"
	"unnest.io/unnest/internal/measure/study/harness"
	"unnest.io/unnest/internal/measure/study/scripts"
	"unnest.io/unnest/internal/measure/study/served"
	"unnest.io/unnest/internal/measure/study/startup"
)

// study is one kind of experiment. It embeds its machines.
type study interface {
	Running
	Machines() *machines.Set
	// Check returns an error unless the study can measure the configuration.
	Check(c stack.Configuration) error
	// Needs says what Up prepares before begin.
	Needs() machines.Needs
	// Begin follows when the machines of all configurations are up.
	Begin(ctx context.Context) error
	// Start starts what is measured in a configuration.
	Start(ctx context.Context, c stack.Configuration) error
}

// Metrics lists what the study of spec measures in addition to its workloads.
func Metrics(spec *experiment.Spec) []result.Metric {
	switch s, _ := newStudy(spec, machines.Options{}); s.(type) {
	case *clientserver.Study:
		if len(guestimage.Applications(spec)) > 0 {
			return append(clientserver.Metrics(), cputime.ProcessMetrics()...)
		}
		return clientserver.Metrics()
	case *harness.Study:
		return append(clientserver.Metrics(), harness.Wall)
	}
	return nil
}

// Check returns an error unless Up can bring spec up.
func Check(spec *experiment.Spec) error {
	s, err := newStudy(spec, machines.Options{})
	if err != nil {
		return err
	}
	if spec.Fresh {
		if err := checkFresh(spec, s); err != nil {
			return err
		}
	}
	for _, c := range spec.Configurations {
		if err := s.Check(c); err != nil {
			return fmt.Errorf("configuration %s: %w", c.Name, err)
		}
	}
	return nil
}

// newStudy returns the study that the cases of spec belong to.
func newStudy(spec *experiment.Spec, o machines.Options) (study, error) {
	b := machines.New(spec, o)
	kinds := map[string]study{}
	for _, c := range spec.Cases {
		switch {
		case spec.OfCluster():
			return nil, fmt.Errorf("experiment %s: its configurations are pods of a cluster: run it by `unnest bench cluster`", spec.Name)
		case c.Local != nil && c.Local.Server != nil:
			kinds["suites with servers"] = served.New(b)
		case c.Local != nil:
			kinds["suites"] = scripts.New(b)
		case c.Probe == experiment.Boot || c.Probe == experiment.Ready || c.Probe == experiment.ReadyFour:
			kinds["probes boot and ready"] = &boot.Study{Set: b}
		case c.Probe != "":
			kinds["probes start and add"] = &startup.Study{Set: b}
		case spec.OfDomains():
			kinds["domains"] = domains.New(b)
		case spec.Suite == generators.Suite:
			kinds["workloads"] = generators.New(b)
		case spec.Suite == harness.Suite:
			kinds["workloads"] = harness.New(b)
		default:
			kinds["workloads"] = clientserver.New(b)
		}
	}
	if len(kinds) > 1 {
		return nil, fmt.Errorf("experiment %s: cases of %v need different machines: write one file for each",
			spec.Name, slices.Sorted(maps.Keys(kinds)))
	}
	for _, s := range kinds {
		return s, nil
	}
	return nil, fmt.Errorf("experiment %s has no case", spec.Name)
}
