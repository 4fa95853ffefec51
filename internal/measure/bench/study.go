package bench

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"unnest/internal/measure/cputime"
	"unnest/internal/measure/experiment"
	"unnest/internal/measure/result"
	"unnest/internal/measure/stack"
	"unnest/internal/testbed/fleet"
)

// study is one kind of experiment. Its machines belong to the Bench in it.
type study interface {
	Running
	bench() *Bench
	// check returns an error unless the study can measure the configuration.
	check(c stack.Configuration) error
	// needs says what Up prepares before begin.
	needs() needs
	// begin follows when the machines of all configurations are up.
	begin(ctx context.Context) error
	// start starts what is measured in a configuration.
	start(ctx context.Context, c stack.Configuration) error
}

// needs are the demands of a study on its guests.
type needs struct {
	machines bool // those of the configurations are up before the first execution
	daemon   bool // the host daemon runs, for containers with NICs of their own
	pool     int  // NICs that the host daemon keeps plugged in advance
	slots    int  // NICs that can be plugged into a guest
}

// slots is enough for one NIC in each configuration and for those that are being
// unplugged.
const slots = 8

// Metrics lists what the study of spec measures in addition to its workloads.
func Metrics(spec *experiment.Spec) []result.Metric {
	switch s, _ := newStudy(spec, Options{}); s.(type) {
	case *services:
		if len(applications(spec)) > 0 {
			return append(cpuMetrics(), cputime.ProcessMetrics()...)
		}
		return cpuMetrics()
	case *harness:
		return append(cpuMetrics(), wall)
	}
	return nil
}

// Check returns an error unless Up can bring spec up.
func Check(spec *experiment.Spec) error {
	s, err := newStudy(spec, Options{})
	if err != nil {
		return err
	}
	for _, c := range spec.Configurations {
		if err := s.check(c); err != nil {
			return fmt.Errorf("configuration %s: %w", c.Name, err)
		}
	}
	return nil
}

// newStudy returns the study that the cases of spec belong to.
func newStudy(spec *experiment.Spec, o Options) (study, error) {
	b := &Bench{
		spec: spec, options: o, facts: Facts{Tools: map[string]string{}},
		booting: map[string]*fleet.Node{}, running: map[string]*machine{}, xens: map[string]*xenHost{},
		nests: slices.ContainsFunc(spec.Configurations, func(c stack.Configuration) bool { return c.Level() > 1 }),
	}
	b.images = newImages(b)
	kinds := map[string]study{}
	for _, c := range spec.Cases {
		switch {
		case spec.OfCluster():
			return nil, fmt.Errorf("experiment %s: its configurations are pods of a cluster: run it by `unnest bench cluster`", spec.Name)
		case c.Local != nil && c.Local.Server != nil:
			kinds["suites with servers"] = newServed(b)
		case c.Local != nil:
			kinds["suites"] = &scripts{Bench: b, workspaces: map[string]*workspace{}}
		case c.Probe == experiment.Boot || c.Probe == experiment.Ready || c.Probe == experiment.ReadyFour:
			kinds["probes boot and ready"] = &boots{Bench: b}
		case c.Probe != "":
			kinds["probes start and add"] = &starts{Bench: b}
		case spec.OfDomains():
			kinds["domains"] = newDomainStudy(b)
		case spec.Suite == generatorsSuite:
			kinds["workloads"] = &generators{newServices(b)}
		case spec.Suite == harnessSuite:
			kinds["workloads"] = &harness{newServices(b)}
		default:
			kinds["workloads"] = newServices(b)
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
