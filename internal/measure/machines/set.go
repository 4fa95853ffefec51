// Package machines brings up the machines that a study needs, and takes them down: this host, guests, guests
// in guests, domains of Xen, and hosts that the user has named.
//
// Set makes a lab and the guest images, boots guests, logs in to hosts and starts container engines.
// Configurations share machines. One table says which server runs on which kind of machine (CheckServer).
// What is measured on the machines does not belong here: the studies start it.
package machines

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines/guestimage"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/machines/sshhost"
	"unnest.io/unnest/internal/measure/machines/thishost"
	"unnest.io/unnest/internal/measure/noise"
	"unnest.io/unnest/internal/measure/noise/procfs"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/lab"
	"unnest.io/unnest/internal/testbed/place"
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

// Set holds the machines of an experiment that is up: this host, guests, and
// hosts that the user has named.
type Set struct {
	Spec    *experiment.Spec
	Options Options
	facts   Facts
	Lab     *lab.Lab
	Fleet   *fleet.Fleet
	Images  guestimage.Images
	Host    *thishost.Host   // in the network of the lab; nil: not entered
	entered []*thishost.Host // all, to be left
	nodes   []*fleet.Node
	booting map[string]*fleet.Node      // guests that were launched, by machineKey; not logged in to yet
	running map[string]*machine.Machine // by machineKey
	xens    map[string]*XenHost         // by xenKey and address
	booted  int                         // guests so far
	mu      sync.Mutex                  // of nodes, running, facts and frozen, while machines come up side by side
	frozen  *guest.Snapshots            // nil: not asked for
	nests   bool                        // a configuration is of level 2: guests of level 1 have the same processor
}

// New returns the machines of spec, of which none is up.
func New(spec *experiment.Spec, o Options) *Set {
	return &Set{
		Spec: spec, Options: o, facts: Facts{Tools: map[string]string{}}, Images: guestimage.New(spec, o.Binaries),
		booting: map[string]*fleet.Node{}, running: map[string]*machine.Machine{}, xens: map[string]*XenHost{},
		nests: slices.ContainsFunc(spec.Configurations, func(c stack.Configuration) bool { return c.Level() > 1 }),
	}
}

// Machines returns the machines of a study that embeds them.
func (b *Set) Machines() *Set { return b }

// Open makes the lab, and the images that the configurations need.
func (b *Set) Open(ctx context.Context) (err error) {
	if b.Lab, err = lab.Create(b.Options.Lab); err != nil {
		return err
	}
	if b.Fleet, err = fleet.Open(b.Lab); err != nil {
		return err
	}
	b.Fleet.Progress = b.Options.Progress.Phase
	err = b.Images.Build(ctx, b.Options.Progress.Phase, b.Note)
	b.facts.Image = b.Images.Digest
	return err
}

// WhileAlive returns a context that ends with ctx, or with one of the machines that are up.
func (b *Set) WhileAlive(ctx context.Context) (context.Context, context.CancelFunc) {
	return machine.WhileAlive(ctx, slices.Collect(maps.Values(b.running))...)
}

// Enter enters the root directory of the guests in a network namespace of this host, with the files of a
// builder. The name distinguishes the hosts of a run. Down leaves it.
func (b *Set) Enter(ctx context.Context, netns, name string, builder image.Builder) (*thishost.Host, error) {
	h, err := thishost.New(ctx, b.Lab, netns, name, builder, b.Images.Recipe)
	if err == nil {
		b.entered = append(b.entered, h)
	}
	return h, err
}

// EnterHost enters this host's user space, once.
func (b *Set) EnterHost(ctx context.Context) (err error) {
	if b.Host == nil {
		b.Host, err = b.Enter(ctx, b.Lab.HostNS(), "", b.Images.Builder)
	}
	return err
}

// Facts returns where and with what the experiment runs.
func (b *Set) Facts() Facts { return b.facts }

// Down ends the machines and removes the lab. The disk of a guest is a snapshot, so
// the guest is killed, not shut down.
func (b *Set) Down() error {
	var err error
	for _, m := range b.running {
		err = errors.Join(err, m.Leave())
	}
	for _, n := range b.nodes {
		err = errors.Join(err, n.Kill())
	}
	for _, h := range b.entered {
		h.End()
	}
	if b.Lab != nil {
		err = errors.Join(err, b.Lab.Close())
	}
	for _, h := range b.entered { // the lab has ended every process that writes
		err = errors.Join(err, h.Clean())
	}
	return err
}

// FoundTool records the version of a tool, next to other versions of the tool that the run has found: machines
// with different releases of Debian have different versions.
func (b *Set) FoundTool(name, version string) {
	found := b.facts.Tools[name]
	if found == "" {
		b.facts.Tools[name] = version
	} else if !slices.Contains(strings.Split(found, ", "), version) {
		b.facts.Tools[name] = found + ", " + version
	}
}

// Note adds a note to the facts. Configurations that share a machine have it once.
func (b *Set) Note(text string) {
	if !slices.Contains(b.facts.Notes, text) {
		b.facts.Notes = append(b.facts.Notes, text)
	}
}

// Holds adds a condition to the facts, once.
func (b *Set) Holds(text string) {
	if !slices.Contains(b.facts.Conditions, text) {
		b.facts.Conditions = append(b.facts.Conditions, text)
	}
}

// ClientNetwork returns this host in the network from which clients load a configuration: the network of this
// process if the user has named its host, else that of the lab's clients.
func (b *Set) ClientNetwork(c stack.Configuration) place.Local {
	if c.Host != "" {
		return place.Local{}
	}
	return place.Local{NetNS: b.Lab.ClientNS()}
}

// Needs are the demands of a study on its guests.
type Needs struct {
	Machines bool // those of the configurations are up before the first execution
	Daemon   bool // the host daemon runs, for containers with NICs of their own
	Pool     int  // NICs that the host daemon keeps plugged in advance
	Slots    int  // NICs that can be plugged into a guest
}

// Slots is enough for one NIC in each configuration and for those that are being
// unplugged.
const Slots = 8

// Observe observes this machine, see experiment.Observer. This process and its
// descendants are the experiment. What runs on a host of the user is not seen; its
// hypervisor may even be a process of this machine.
func (b *Set) Observe(e experiment.Execution) (func() (noise.Reading, error), error) {
	if e.Configuration.Stack.Remote() || e.Configuration.Host != "" {
		return func() (noise.Reading, error) { return noise.Reading{}, nil }, nil
	}
	before, err := procfs.Read()
	if err != nil {
		return nil, err
	}
	return func() (noise.Reading, error) {
		after, err := procfs.Read()
		if err != nil {
			return noise.Reading{}, err
		}
		return after.Since(before, os.Getpid())
	}, nil
}

// remote logs in to the host of a configuration. Its containers have the programs of our
// guests.
func (b *Set) remote(ctx context.Context, c stack.Configuration) (*machine.Machine, error) {
	run := b.Lab.Name
	layer, _ := c.Stack.Engine()
	if layer == stack.Docker {
		run += ".docker" // the run may use the host with another engine, too
	}
	r, m, err := sshhost.New(ctx, c, run)
	if err != nil {
		return nil, err
	}
	b.Note(fmt.Sprintf("Unnest does not see what else runs on %s: noise there only widens the intervals.", c.Host))
	r.Step, m.StartContainer = b.Images.Builder.Progress, r.Container
	m.StartEngine = func(ctx context.Context) error {
		note, err := r.StartEngine(ctx, sshhost.Engines(layer), m.Facts.Arch, b.Images.Archive)
		if err == nil {
			b.Note(note)
		}
		return err
	}
	return m, nil
}
