// Package bench brings an experiment up and executes its cases.
//
// Up is the one way to bring up every study. The cases decide which one it is. It says what it needs, the
// machines come up (package machines), and the study starts what it measures in each configuration. None
// boots or removes a machine that is shared.
//
// Package experiment decides which case runs when, how often and for how long.
package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/machines/thishost"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/testbed/image"
)

// Running is an experiment that is up.
type Running interface {
	experiment.Bench
	Facts() machines.Facts
	// Down removes everything that Up made. Every step is tried.
	Down() error
}

// Up brings spec up. When a step fails, or ctx ends, it takes everything down again.
func Up(ctx context.Context, spec *experiment.Spec, o machines.Options) (_ Running, err error) {
	if err := Check(spec); err != nil {
		return nil, err
	}
	s, err := newStudy(spec, o)
	if err != nil {
		return nil, err
	}
	if _, err := thishost.CleanWork(image.CacheDir(), false); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Down())
		}
	}()
	if err := bringUp(ctx, s); err != nil {
		return nil, err
	}
	if spec.Fresh {
		first := s.Facts().Guests
		if slices.ContainsFunc(first, func(m result.Machine) bool { return m.Start == result.Booted }) { // no snapshot could be restored
			o.Restore = false
		}
		again := func() (study, error) { return newStudy(spec, o) }
		return &fresh{study: s, up: true, make: again, bringUp: bringUp, first: first}, nil
	}
	return s, nil
}

// bringUp takes the steps that all studies share, in their order.
func bringUp(ctx context.Context, s study) (err error) {
	b := s.Machines()
	phases := &phases{Progress: b.Options.Progress, all: 3 + len(b.Spec.Configurations)}
	defer phases.end()
	b.Options.Progress = phases
	phases.next("make the guest image")
	if err := b.Open(ctx); err != nil {
		return err
	}
	if s.Needs().Machines {
		phases.next("boot the guest")
		if err := b.Boot(ctx, s.Needs()); err != nil {
			return err
		}
	}
	alive, done := b.WhileAlive(ctx)
	defer done()
	if s.Needs().Machines {
		phases.next("start the container engine in the guest")
		if err := b.StartEngines(alive); err != nil {
			return err
		}
	}
	if err := s.Begin(alive); err != nil {
		return err
	}
	for _, c := range b.Spec.Configurations {
		phases.next("start " + c.Name)
		if err := startLiving(ctx, s, c); err != nil {
			return fmt.Errorf("configuration %s: %w", c.Name, err)
		}
	}
	return nil
}

// phases reports numbered phases. The parts of a phase have its number.
type phases struct {
	experiment.Progress
	all, done int
}

func (p *phases) next(name string) {
	p.done++
	p.Phase(name)
}

// Phase reports a part of the present phase, or after the end a phase without a number.
func (p *phases) Phase(name string) {
	if p.done > 0 {
		name = fmt.Sprintf("[%d/%d] %s", p.done, p.all, name)
	}
	p.Progress.Phase(name)
}

func (p *phases) end() { p.done = 0 }

// startLiving starts a configuration, and stops as soon as a machine is gone. If that machine is a domain
// of Xen and the study is a Restarter, it creates the domain again and tries once more, up to creations times.
func startLiving(ctx context.Context, s study, c stack.Configuration) error {
	b := s.Machines()
	for n := 1; ; n++ {
		alive, done := b.WhileAlive(ctx)
		err := s.Start(alive, c)
		done()
		r, ok := s.(experiment.Restarter)
		if err == nil || !ok || !b.LostDomain() || n == machines.Creations {
			return err
		}
		b.Options.Progress.Phase(err.Error())
		if err := r.Restart(ctx); err != nil {
			return err
		}
	}
}
