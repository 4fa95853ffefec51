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
	"time"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/stack"
	"unnest/internal/measure/workload"
	"unnest/internal/testbed/place"
)

// services is the study of servers in machines and containers, which clients load
// over a network.
type services struct {
	*Bench
	client    place.Place            // of clients that run outside all machines
	instances map[string]*service    // by configuration
	next      []experiment.Execution // the executions that follow, as far as they are known
	early     []*client              // clients that were started in advance
	restart   time.Duration          // what the last restart of the servers took
	programs  *host                  // the guests' programs in the network of the clients; nil: not needed

	// The same in the network of this process, from which clients reach machines over SSH.
	programsHere *host
}

func newServices(b *Bench) *services {
	return &services{Bench: b, instances: map[string]*service{}}
}

// reachable are the stacks that clients reach over a network, besides domains of Xen.
var reachable = []string{"metal", "metal/containerd", "vm", "vm/containerd", "vm/vm", "vm/vm/containerd", "ssh", "ssh/containerd", "ssh/docker"}

func (s *services) check(c stack.Configuration) error {
	if err := s.checkXenHosts(c); err != nil {
		return err
	}
	_, contained := c.Stack.Engine()
	switch stacked := c.Stack.String(); {
	case c.Stack.Xen():
	case !slices.Contains(reachable, stacked):
		return fmt.Errorf("stack %s: clients cannot reach it yet: use metal, vm, vm/vm or ssh, or a containerd container in it", stacked)
	case stacked == "ssh" && len(applications(s.spec)) > 0:
		return errors.New("stack ssh: the servers of applications come with our container image: use ssh/containerd or ssh/docker")
	case c.Level() > 1 && (c.Drive == stack.Pod || c.Network != "" && c.Network != stack.HostNetwork && c.Network != stack.NAT):
		return fmt.Errorf("stack %s: the host gives a guest in a guest no NICs and no segments: use network host or nat, and no drive pod", stacked)
	case c.Architecture() != stack.X8664 && stacked != "vm":
		return fmt.Errorf("arch %s: its guests run no containers and no guests: use stack vm", c.Architecture())
	case c.Drive == stack.Local:
		return errors.New("drive local: the clients of workloads run in a network of their own: leave it out")
	case contained && c.Network == "" && c.Stack.Remote():
		return errors.New("key network is missing: want host or nat")
	case contained && c.Network == "":
		return errors.New("key network is missing: want host, nat or brfusion")
	}
	return nil
}

func (s *services) needs() needs { return needs{machines: true, daemon: true, slots: slots} }

func (s *services) begin(ctx context.Context) error {
	s.client = place.Local{NetNS: s.lab.ClientNS()}
	if err := s.enterPrograms(ctx); err != nil {
		return err
	}
	if err := s.findClientTools(ctx); err != nil {
		return err
	}
	if s.ownMachines() == nil {
		return nil
	}
	if err := s.findServers(ctx, s.ownMachines().servers().place); err != nil {
		return err
	}
	return s.findTools(ctx)
}

// enterPrograms makes the guests' programs usable for clients that run outside all machines, if they
// need more than this host has.
func (s *services) enterPrograms(ctx context.Context) (err error) {
	if len(packages(s.spec)) == 0 {
		return nil
	}
	builder := s.images.builder
	builder.Files = maps.Clone(builder.Files)
	builder.Files[workload.Generator] = filepath.Join(s.options.Binaries, filepath.Base(workload.Generator))
	enter := func(netns, name string) (*host, error) {
		return newHostIn(ctx, s.lab, netns, name, builder, s.images.recipe)
	}
	has := func(f func(stack.Configuration) bool) bool { return slices.ContainsFunc(s.spec.Configurations, f) }
	if has(func(c stack.Configuration) bool { return c.Drive != stack.Pod && c.Host == "" }) {
		if s.programs, err = enter(s.lab.ClientNS(), "-clients"); err != nil {
			return err
		}
	}
	if has(func(c stack.Configuration) bool { return c.Host != "" }) {
		s.programsHere, err = enter(fmt.Sprintf("/proc/%d/ns/net", os.Getpid()), "-clients-here")
	}
	return err
}

// start starts the container of c, if it has one, and one server for each kind that
// the cases need, in the container or in the machine.
func (s *services) start(ctx context.Context, c stack.Configuration) (err error) {
	all := s.machines(c)
	var one *service
	if c.Drive == stack.Pod {
		one, err = s.newPod(ctx, c, all)
	} else {
		one, err = s.newService(ctx, c, all)
	}
	if err != nil {
		return all.explain(err)
	}
	s.instances[c.Name] = one
	if s.ownMachines() == nil {
		_ = s.findServers(ctx, one.place) // without a server, its cases fail and say why
	}
	return ifFatal(ctx, one.startServers(ctx))
}

// ifFatal returns the error of starting servers if nothing else can work either. The cases
// of a server that does not start fail when they are executed, with the reason, and the others
// go on.
func ifFatal(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, experiment.ErrFatal) {
		return err
	}
	return nil
}

// Renew restarts the servers of every configuration, see experiment.Renewer. A client of the first
// execution that uses UDP idles meanwhile. One that uses TCP connects when it starts, so it would meet the
// old server.
func (s *services) Renew(ctx context.Context, first experiment.Execution) error {
	s.dropEarly() // they may have connected already
	if first.Case.Params.Protocol == workload.UDP {
		s.startEarly(ctx, []experiment.Execution{first}, time.Now().Add(s.restart))
	}
	return s.restartServers(ctx)
}

// restartServers takes the configurations in random order, so that none is always first. The
// containers stay.
func (s *services) restartServers(ctx context.Context) error {
	begin := time.Now()
	ctx, done := whileAlive(ctx, slices.Collect(maps.Values(s.running))...)
	defer done()
	names := slices.Collect(maps.Keys(s.instances))
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		if err := ifFatal(ctx, s.instances[name].startServers(ctx)); err != nil {
			return fmt.Errorf("configuration %s: %w", name, err)
		}
	}
	s.restart = time.Since(begin)
	return nil
}

// Down ends clients and servers, and takes the machines down.
func (s *services) Down() (err error) {
	s.dropEarly()
	for _, one := range s.instances {
		err = errors.Join(err, one.leave())
	}
	var entered []*host
	for _, h := range []*host{s.programs, s.programsHere} {
		if h != nil {
			h.end()
			entered = append(entered, h)
		}
	}
	err = errors.Join(err, s.Bench.Down())
	for _, h := range entered { // the lab has ended every process that writes
		err = errors.Join(err, h.clean())
	}
	return err
}
