// Package bench brings up what an experiment asks for and executes its cases:
// a lab, guests and this host in it, the host daemon, a container for each
// configuration that has one, two for each that is a pod, the workloads' servers;
// then client after client, with the CPU time that host and guests spend meanwhile.
// Cases of suites run in the machines and containers themselves.
//
// In which order, how often and how long is decided by package experiment.
package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/result"
	"unnest/internal/measure/stack"
	"unnest/internal/testbed/fleet"
	"unnest/internal/testbed/guest"
	"unnest/internal/testbed/lab"
	"unnest/internal/testbed/place"
)

// Options says how to bring an experiment up.
type Options struct {
	Lab      string // name of the lab to make
	Accel    guest.Accel
	Programs string // directory of unnest, unnest-cni and nerdctl
	Progress experiment.Progress
}

// slots is how many NICs the guest can take: one for each configuration, and
// room for those that are being given back.
const slots = 8

// nodeName is the name of the guest n, from 1.
func nodeName(n int) string { return "node" + strconv.Itoa(n) }

// Facts are what a run notes of where and with what it was made.
type Facts struct {
	Guests []result.Machine
	Tools  map[string]string // tool -> version
	Image  string            // digest of the guest image
	Notes  []string          // what else a reader has to know
}

// Running is an experiment brought up, to be driven and then taken down.
type Running interface {
	experiment.Bench
	Facts() Facts
	Down() error
}

// Bench is an experiment on servers in machines and in their containers, brought
// up: this host, and a guest of each size that is asked for, or two for pods that
// are split.
type Bench struct {
	facts   Facts
	lab     *lab.Lab
	client  place.Place
	metal   *metal
	nodes   []*fleet.Node
	systems map[string]*system    // by systemKey
	targets map[string]*target    // by configuration
	next    *experiment.Execution // what follows, if known
	ahead   *client               // of what follows, started ahead of its turn
}

// Up brings spec up. When a step fails, or ctx ends, everything is taken down
// again.
func Up(ctx context.Context, spec *experiment.Spec, o Options) (_ *Bench, err error) {
	if err := supported(spec); err != nil {
		return nil, err
	}
	phase := phases(o.Progress, 3+len(spec.Configurations))
	phase("make the guest image")
	image, err := BuildImage(ctx, o.Programs, o.Progress.Phase)
	if err != nil {
		return nil, err
	}
	b := emptyBench(image)
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Down())
		}
	}()
	phase("boot the guest")
	if err := b.boot(ctx, spec, image, o, 0); err != nil {
		return nil, err
	}
	ctx, done := whileAlive(ctx, slices.Collect(maps.Values(b.systems))...)
	defer done()
	phase("start containerd in the guest")
	if err := b.startEngines(ctx, spec); err != nil {
		return nil, err
	}
	if err := b.describe(ctx, spec); err != nil {
		return nil, err
	}
	for _, c := range spec.Configurations {
		phase("start " + c.Name)
		if err := b.startTarget(ctx, spec, c); err != nil {
			return nil, fmt.Errorf("configuration %s: %w", c.Name, err)
		}
	}
	return b, nil
}

func emptyBench(image guest.Image) *Bench {
	return &Bench{
		facts:   Facts{Image: image.Digest, Tools: map[string]string{}},
		systems: map[string]*system{}, targets: map[string]*target{},
	}
}

// phases returns a function that tells p of one of n steps after the other.
func phases(p experiment.Progress, n int) func(step string) {
	done := 0
	return func(step string) {
		done++
		p.Phase(fmt.Sprintf("[%d/%d] %s", done, n, step))
	}
}

// supported returns an error unless this bench can bring up every configuration
// of spec.
func supported(spec *experiment.Spec) error {
	for _, c := range spec.Configurations {
		_, contained := c.Stack.Engine()
		switch s := c.Stack.String(); {
		case s != "vm" && s != "vm/containerd" && s != "metal" && s != "metal/containerd":
			return fmt.Errorf("configuration %s: stack %s cannot be loaded from outside yet: use vm or metal, or a containerd container in it", c.Name, s)
		case c.Architecture() != stack.X8664:
			return fmt.Errorf("configuration %s: guests of %s cannot be loaded from outside yet: leave arch out", c.Name, c.Architecture())
		case c.Drive == stack.Local:
			return fmt.Errorf("configuration %s: drive local: the clients of workloads are in a network of their own: leave it out", c.Name)
		case contained && c.Network == "":
			return fmt.Errorf("configuration %s: say which network the container has: host, nat or brfusion", c.Name)
		}
	}
	return nil
}

// BuildImage returns the guest image with our programs in it. programs is the
// directory that `make build` fills; step is told what is done.
func BuildImage(ctx context.Context, programs string, step func(string)) (guest.Image, error) {
	builder := imageBuilder(programs, step)
	return builder.Build(ctx, guest.DefaultRecipe())
}

// imageBuilder makes images with our programs in them.
func imageBuilder(programs string, step func(string)) guest.Builder {
	return guest.Builder{
		Cache: guest.CacheDir(),
		Programs: map[string]string{
			"/usr/local/bin/nerdctl": filepath.Join(programs, "nerdctl"),
			"/usr/lib/cni/brfusion":  filepath.Join(programs, "unnest-cni"),
			"/usr/lib/cni/hostlo":    filepath.Join(programs, "unnest-cni"),
			cniTimer:                 filepath.Join(programs, "cni-timer"),
		},
		Progress: step,
	}
}

// boot makes the lab and in it the machines that the configurations stand on, at
// the same time. The host daemon keeps pool NICs plugged ahead.
func (b *Bench) boot(ctx context.Context, spec *experiment.Spec, image guest.Image, o Options, pool int) error {
	builder := imageBuilder(o.Programs, o.Progress.Phase)
	if err := reapWork(builder.Cache); err != nil {
		return err
	}
	var err error
	if b.lab, err = lab.Create(o.Lab); err != nil {
		return err
	}
	b.client = place.Local{NetNS: b.lab.ClientNS()}
	f, err := fleet.Open(b.lab)
	if err != nil {
		return err
	}
	launched, err := b.startAll(ctx, f, builder, spec, fleet.Options{Image: image, Accel: o.Accel, Slots: slots, Pool: pool})
	if err != nil {
		return err
	}
	if len(launched) == 0 {
		return nil
	}
	if err := f.StartDaemon(ctx, filepath.Join(o.Programs, "unnest")); err != nil {
		return err
	}
	for key, n := range launched {
		if b.systems[key], err = newGuest(ctx, f, n, n.Err, n); err != nil {
			return err
		}
	}
	return nil
}

// startAll starts the machines that the configurations stand on, and returns the
// guests, which need not be ready, by the keys of their systems.
func (b *Bench) startAll(ctx context.Context, f *fleet.Fleet, builder guest.Builder, spec *experiment.Spec, o fleet.Options) (map[string]*fleet.Node, error) {
	launched := map[string]*fleet.Node{}
	for _, c := range spec.Configurations {
		keys, err := machineKeys(spec, c)
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			switch {
			case b.systems[key] != nil || launched[key] != nil:
			case c.Level() == 0:
				if b.metal, err = newMetal(ctx, b.lab, builder, guest.DefaultRecipe()); err == nil {
					b.systems[key] = b.metal.system()
				}
			default:
				launched[key], err = b.launch(ctx, f, spec, c, o)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return launched, nil
}

// launch starts a guest of the size that a configuration asks for.
func (b *Bench) launch(ctx context.Context, f *fleet.Fleet, spec *experiment.Spec, c stack.Configuration, o fleet.Options) (*fleet.Node, error) {
	r, err := spec.Resources(c)
	if err != nil {
		return nil, err
	}
	o.Name, o.VCPUs, o.Memory = nodeName(len(b.nodes)+1), r.VCPUs, r.Memory
	n, err := f.Launch(ctx, o)
	if err == nil {
		b.nodes = append(b.nodes, n)
	}
	return n, err
}

// machines returns the machines of a configuration.
func (b *Bench) machines(spec *experiment.Spec, c stack.Configuration) (machines, error) {
	keys, err := machineKeys(spec, c)
	if err != nil {
		return nil, err
	}
	var all machines
	for _, key := range keys {
		all = append(all, b.systems[key])
	}
	return all, nil
}

// startEngines starts the container engine in each machine with a configuration
// that needs it.
func (b *Bench) startEngines(ctx context.Context, spec *experiment.Spec) error {
	for _, c := range spec.Configurations {
		if _, contained := c.Stack.Engine(); !contained {
			continue
		}
		all, err := b.machines(spec, c)
		if err != nil {
			return err
		}
		for _, s := range all {
			if err := s.start(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// Renew starts every configuration's servers anew, see experiment.Renewer. The
// configurations come in random order, so that none is always the first; their
// containers stay.
func (b *Bench) Renew(ctx context.Context) error {
	b.dropAhead() // it may have connected already
	ctx, done := whileAlive(ctx, slices.Collect(maps.Values(b.systems))...)
	defer done()
	names := slices.Collect(maps.Keys(b.targets))
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		if err := b.targets[name].startServers(ctx); err != nil {
			return fmt.Errorf("configuration %s: %w", name, err)
		}
	}
	return nil
}

// Facts says where and with what the experiment runs.
func (b *Bench) Facts() Facts { return b.facts }

// Down takes everything down: servers, machines, daemon, lab. A guest's disk is a
// snapshot, so it is killed, not shut down.
func (b *Bench) Down() error {
	b.dropAhead()
	for _, t := range b.targets {
		t.stopServers()
	}
	return takeDown(b.systems, b.nodes, b.metal, b.lab)
}

// takeDown ends machines and removes what they stood on. Everything is tried.
func takeDown(systems map[string]*system, nodes []*fleet.Node, m *metal, l *lab.Lab) error {
	var err error
	for _, s := range systems {
		if s != nil {
			err = errors.Join(err, s.leave())
		}
	}
	for _, n := range nodes {
		err = errors.Join(err, n.Kill())
	}
	if m != nil {
		m.end()
	}
	if l != nil {
		err = errors.Join(err, l.Close())
	}
	if m != nil {
		err = errors.Join(err, m.clean())
	}
	return err
}

// ProgramsDir is the directory of this program, where `make build` puts the
// others.
func ProgramsDir() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", fmt.Errorf("find this program: %w", err)
	}
	return filepath.Dir(path), nil
}
