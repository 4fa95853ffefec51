package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"unnest.io/unnest/internal/measure/cputime"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/machines/guestimage"
	"unnest.io/unnest/internal/measure/noise"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/study/boot"
	"unnest.io/unnest/internal/measure/study/clientserver"
	"unnest.io/unnest/internal/measure/study/domains"
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
			return append(cputime.Metrics(), cputime.ProcessMetrics()...)
		}
		return cputime.Metrics()
	case *harness.Study:
		return append(cputime.Metrics(), harness.Wall)
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
		case spec.Suite == "generators":
			return nil, fmt.Errorf("experiment %s: no study compares load generators any more: measure with an earlier version, or name another suite", spec.Name)
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

// fresh brings a study up anew for each block. What machines draw once when they start, such as the
// placement of their memory, then differs between blocks, so the interval of a ratio contains it.
type fresh struct {
	study
	up   bool // study is up
	used bool // by a block, or by the warm-up
	make func() (study, error)

	bringUp func(context.Context, study) error
	first   []result.Machine // the guests of the first block
}

// Renew replaces the machines, and executes each group of cases once in each configuration to warm them up.
func (f *fresh) Renew(ctx context.Context, _ experiment.Execution) error {
	if f.up && !f.used {
		f.used = true
		return nil
	}
	if err := f.Down(); err != nil {
		return err
	}
	s, err := f.make()
	if err != nil {
		return err
	}
	s.Machines().Options.Progress = silent{}
	f.study, f.up, f.used = s, true, true
	if err = f.bringUp(ctx, s); err == nil {
		err = sameStart(f.first, s.Facts().Guests)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("start the machines of a block: %w", err), f.Down())
	}
	for _, x := range s.Machines().Spec.Warmups() {
		limited, done := context.WithTimeout(ctx, x.Case.Timeout)
		_, err := s.Execute(limited, x) // one that fails does so in the block, too
		done()
		if errors.Is(err, experiment.ErrFatal) || ctx.Err() != nil {
			return errors.Join(err, f.Down())
		}
	}
	return nil
}

// sameStart returns an error if a guest began in another way than that of the same name in the first block.
func sameStart(first, now []result.Machine) error {
	for _, g := range now {
		i := slices.IndexFunc(first, func(m result.Machine) bool { return m.Name == g.Name })
		if i >= 0 && first[i].Start != g.Start {
			return fmt.Errorf("guest %s is %s, and was %s in the first block: their values cannot be compared", g.Name, g.Start, first[i].Start)
		}
	}
	return nil
}

// Down removes what is up.
func (f *fresh) Down() error {
	if !f.up {
		return nil
	}
	f.up = false
	return f.study.Down()
}

// Next announces executions, see experiment.Lookahead.
func (f *fresh) Next(following []experiment.Execution) {
	if l, ok := f.study.(experiment.Lookahead); ok && f.up {
		l.Next(following)
	}
}

// Observe begins to observe the machine, see experiment.Observer.
func (f *fresh) Observe(x experiment.Execution) (func() (noise.Reading, error), error) {
	return f.Machines().Observe(x)
}

// checkFresh returns an error if the machines of a study cannot be replaced for each block.
func checkFresh(spec *experiment.Spec, s study) error {
	if _, ok := s.(*clientserver.Study); !ok {
		return fmt.Errorf("experiment %s: fresh: want cases that clients load over a network", spec.Name)
	}
	for _, c := range spec.Configurations {
		if c.Host != "" {
			return fmt.Errorf("experiment %s: fresh: configuration %s is on a host of yours, which no run starts", spec.Name, c.Name)
		}
	}
	return nil
}

// silent says nothing.
type silent struct{}

func (silent) Phase(string)            {}
func (silent) Report(experiment.Event) {}
