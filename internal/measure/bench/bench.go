// Package bench brings the machines of an experiment up and executes its cases.
//
// Up is the one way to bring up every study: it makes a lab and the guest images,
// boots guests and logs in to hosts, starts container engines, and then lets the
// study start what it measures in each configuration. The cases decide which study
// it is: servers that clients load over a network (services), scripts of suites
// that run in the configuration itself (scripts) or load a server there (served), the
// start of containers (starts) or the boot of guests (boots). A study says what it needs and what it measures;
// none boots or removes a machine that is shared.
//
// Package experiment decides which case runs when, how often and for how long.
package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/result"
	"unnest/internal/testbed/fleet"
	"unnest/internal/testbed/guest"
	"unnest/internal/testbed/lab"
)

// Options says how to bring an experiment up.
type Options struct {
	Lab      string // name of the lab to make
	Accel    guest.Accel
	Binaries string // directory of unnest, unnest-cni, cni-timer and nerdctl
	Progress experiment.Progress
	Restore  bool // restore guests from a snapshot where possible; else they boot
}

// Facts are what a run records about where and with what it was made.
type Facts struct {
	Guests []result.Machine
	Tools  map[string]string // tool -> version
	Image  string            // digest of the guest image
	Notes  []string          // what casts doubt on the figures
	// Conditions are what held for all executions.
	Conditions []string
}

// Running is an experiment that is up.
type Running interface {
	experiment.Bench
	Facts() Facts
	// Down removes everything that Up made. Every step is tried.
	Down() error
}

// Bench holds the machines of an experiment that is up: this host, guests, and
// hosts that the user has named.
type Bench struct {
	spec    *experiment.Spec
	options Options
	facts   Facts
	lab     *lab.Lab
	fleet   *fleet.Fleet
	images  images
	host    *host
	nodes   []*fleet.Node
	booting map[string]*fleet.Node // guests that were launched, by machineKey; not logged in to yet
	running map[string]*machine    // by machineKey
	xens    map[string]*xenHost    // by xenKey and address
	booted  int                    // guests so far
	nests   bool                   // a configuration is of level 2: guests of level 1 have the same processor
}

// Up brings spec up. When a step fails, or ctx ends, it takes everything down again.
func Up(ctx context.Context, spec *experiment.Spec, o Options) (_ Running, err error) {
	if err := Check(spec); err != nil {
		return nil, err
	}
	s, err := newStudy(spec, o)
	if err != nil {
		return nil, err
	}
	if _, err := CleanWork(guest.CacheDir(), false); err != nil {
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
	return s, nil
}

// bringUp takes the steps that all studies share, in their order.
func bringUp(ctx context.Context, s study) (err error) {
	b := s.bench()
	phases := &phases{Progress: b.options.Progress, all: 3 + len(b.spec.Configurations)}
	defer phases.end()
	b.options.Progress = phases
	phases.next("make the guest image")
	if b.lab, err = lab.Create(b.options.Lab); err != nil {
		return err
	}
	if b.fleet, err = fleet.Open(b.lab); err != nil {
		return err
	}
	if err := b.images.build(ctx); err != nil {
		return err
	}
	if s.needs().machines {
		phases.next("boot the guest")
		if err := b.bootMachines(ctx, s.needs()); err != nil {
			return err
		}
	}
	alive, done := whileAlive(ctx, slices.Collect(maps.Values(b.running))...)
	defer done()
	if s.needs().machines {
		phases.next("start containerd in the guest")
		if err := b.startEngines(alive); err != nil {
			return err
		}
	}
	if err := s.begin(alive); err != nil {
		return err
	}
	for _, c := range b.spec.Configurations {
		phases.next("start " + c.Name)
		if err := b.startLiving(ctx, s, c); err != nil {
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

func (b *Bench) bench() *Bench { return b }

// Facts returns where and with what the experiment runs.
func (b *Bench) Facts() Facts { return b.facts }

// Down ends the machines and removes the lab. The disk of a guest is a snapshot, so
// the guest is killed, not shut down.
func (b *Bench) Down() error {
	var err error
	for _, m := range b.running {
		err = errors.Join(err, m.leave())
	}
	for _, n := range b.nodes {
		err = errors.Join(err, n.Kill())
	}
	if b.host != nil {
		b.host.end()
	}
	if b.lab != nil {
		err = errors.Join(err, b.lab.Close())
	}
	if b.host != nil { // the lab has ended every process that writes
		err = errors.Join(err, b.host.clean())
	}
	return err
}

// BinariesDir is the directory of this executable, where `make build` puts the
// other binaries.
func BinariesDir() (string, error) {
	path, err := os.Executable()
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return "", fmt.Errorf("find this executable: %w", err)
	}
	return filepath.Dir(path), nil
}
