// Package bench brings up what an experiment asks for and executes its cases:
// a lab, guests, the host daemon, a container for each configuration that has
// one, the workloads' servers; then client after client, with the CPU time that
// host and guest spend meanwhile.
//
// In which order, how often and how long is decided by package experiment.
package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"unnest/internal/experiment"
	"unnest/internal/fleet"
	"unnest/internal/guest"
	"unnest/internal/lab"
	"unnest/internal/place"
	"unnest/internal/result"
	"unnest/internal/stack"
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

// node is the name of the guest under test.
const node = "node1"

// Facts are what a run notes of where and with what it was made.
type Facts struct {
	Guests []result.Machine
	Tools  map[string]string // tool -> version
	Image  string            // digest of the guest image
}

// Running is an experiment brought up, to be driven and then taken down.
type Running interface {
	experiment.Bench
	Facts() Facts
	Down() error
}

// Bench is an experiment on containers in a guest, brought up.
type Bench struct {
	facts   Facts
	lab     *lab.Lab
	node    *fleet.Node
	ssh     *place.SSH
	client  place.Place
	bootID  string
	targets map[string]*target    // by configuration
	next    *experiment.Execution // what follows, if known
	ahead   *client               // of what follows, started ahead of its turn
	meter   *meter                // of the guest's CPU time, nil: to be started
	stop    context.CancelFunc    // of the servers
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
	b := &Bench{facts: Facts{Image: image.Digest, Tools: map[string]string{}}, targets: map[string]*target{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Down())
		}
	}()
	phase("boot the guest")
	if err := b.boot(ctx, spec, image, o, 0); err != nil {
		return nil, err
	}
	ctx, done := b.whileAlive(ctx)
	defer done()
	phase("start containerd in the guest")
	if err := b.startEngine(ctx, spec); err != nil {
		return nil, err
	}
	if err := b.describe(ctx, spec); err != nil {
		return nil, err
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	b.stop = stop
	for _, c := range spec.Configurations {
		phase("start " + c.Name)
		if err := b.startTarget(ctx, serving, spec, c); err != nil {
			return nil, fmt.Errorf("configuration %s: %w", c.Name, err)
		}
	}
	return b, nil
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
		switch s := c.Stack.String(); {
		case s != "vm" && s != "vm/containerd":
			return fmt.Errorf("configuration %s: stack %s cannot be run yet: use vm or vm/containerd", c.Name, s)
		case c.Storage != "":
			return fmt.Errorf("configuration %s: storage %s cannot be chosen yet: leave it out", c.Name, c.Storage)
		case s == "vm/containerd" && c.Network == "":
			return fmt.Errorf("configuration %s: say which network the container has: host, nat or brfusion", c.Name)
		}
	}
	return nil
}

// BuildImage returns the guest image with our programs in it. programs is the
// directory that `make build` fills; step is told what is done.
func BuildImage(ctx context.Context, programs string, step func(string)) (guest.Image, error) {
	builder := guest.Builder{
		Cache: guest.CacheDir(),
		Programs: map[string]string{
			"/usr/local/bin/nerdctl": filepath.Join(programs, "nerdctl"),
			"/usr/lib/cni/brfusion":  filepath.Join(programs, "unnest-cni"),
			cniTimer:                 filepath.Join(programs, "cni-timer"),
		},
		Progress: step,
	}
	return builder.Build(ctx, guest.DefaultRecipe())
}

// boot makes the lab and boots the guest in it. The host daemon keeps pool NICs
// plugged ahead.
func (b *Bench) boot(ctx context.Context, spec *experiment.Spec, image guest.Image, o Options, pool int) error {
	var err error
	if b.lab, err = lab.Create(o.Lab); err != nil {
		return err
	}
	b.client = place.Local{NetNS: b.lab.ClientNS()}
	f, err := fleet.Open(b.lab)
	if err != nil {
		return err
	}
	if b.node, err = f.Launch(ctx, fleet.Options{
		Name: node, Image: image, Accel: o.Accel, VCPUs: spec.Guest.VCPUs, Memory: spec.Guest.Memory, Slots: slots, Pool: pool,
	}); err != nil {
		return err
	}
	if err := f.StartDaemon(ctx, filepath.Join(o.Programs, "unnest")); err != nil {
		return err
	}
	b.ssh, _, err = f.Login(ctx, b.node)
	return err
}

// startEngine starts the container engine when a configuration needs it.
func (b *Bench) startEngine(ctx context.Context, spec *experiment.Spec) error {
	needed := slices.ContainsFunc(spec.Configurations, func(c stack.Configuration) bool { return c.Network != "" })
	if !needed {
		return nil
	}
	if err := place.Run(ctx, b.ssh, "/etc/unnest/engine"); err != nil {
		return b.explain(fmt.Errorf("start the container engine: %w", err))
	}
	return nil
}

// Facts says where and with what the experiment runs.
func (b *Bench) Facts() Facts { return b.facts }

// whileAlive returns a context that ends with ctx, or with the guest, whose
// death is then its cause.
func (b *Bench) whileAlive(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-b.node.Done():
			cancel(b.node.Err())
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// explain adds that the guest has died, or no longer answers, to an error that
// follows from it.
func (b *Bench) explain(err error) error {
	if died := b.node.Err(); died != nil {
		return fmt.Errorf("%w: %w", experiment.ErrFatal, died)
	}
	if b.ssh != nil && b.ssh.Lost() {
		return fmt.Errorf("%w: guest %s no longer answers: %w", experiment.ErrFatal, node, err)
	}
	return err
}

// Down takes everything down: servers, guest, daemon, lab. The guest's disk is
// a snapshot, so it is killed, not shut down.
func (b *Bench) Down() error {
	if b.ahead != nil {
		b.ahead.kill()
	}
	if b.meter != nil {
		b.meter.stop()
	}
	if b.stop != nil {
		b.stop()
	}
	var err error
	if b.node != nil {
		err = b.node.Kill()
	}
	if b.lab != nil {
		err = errors.Join(err, b.lab.Close())
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
