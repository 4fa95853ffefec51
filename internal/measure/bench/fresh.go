package bench

import (
	"context"
	"errors"
	"fmt"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/noise"
	"unnest.io/unnest/internal/measure/study/clientserver"
)

// fresh brings a study up anew for each block. What machines draw once when they start, such as the
// placement of their memory, then differs between blocks, so the interval of a ratio contains it.
type fresh struct {
	study
	up   bool // study is up
	used bool // by a block, or by the warm-up
	make func() (study, error)
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
	if err := bringUp(ctx, s); err != nil {
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
