// Package clientserver is the study of servers in machines and containers that clients load over a network:
// ping-pong, streams and applications.
package clientserver

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

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/machines/guestimage"
	"unnest.io/unnest/internal/measure/machines/thishost"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/study/client"
	"unnest.io/unnest/internal/measure/study/server"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/place"
)

// Study is the study of servers in machines and containers, which clients load
// over a network.
type Study struct {
	*machines.Set
	Client    place.Place                // of clients that run outside all machines
	Instances map[string]*server.Service // by configuration
	next      []experiment.Execution     // the executions that follow, as far as they are known
	early     []*client.Client           // clients that were started in advance
	restart   time.Duration              // what the last restart of the servers took
	programs  *thishost.Host             // the guests' programs in the network of the clients; nil: not needed

	// The same in the network of this process, from which clients reach machines over SSH.
	programsHere *thishost.Host
}

// New returns the study on machines of which none is up.
func New(b *machines.Set) *Study {
	return &Study{Set: b, Instances: map[string]*server.Service{}}
}

// Check returns an error unless the servers of the cases run in the configuration.
func (s *Study) Check(c stack.Configuration) error {
	kind := machines.ToolServer
	if len(guestimage.Applications(s.Spec)) > 0 {
		kind = machines.ApplicationServer
	}
	return s.CheckServer(c, kind)
}

// Needs says what has to be up before Begin.
func (s *Study) Needs() machines.Needs {
	return machines.Needs{Machines: true, Daemon: true, Slots: machines.Slots}
}

// Begin prepares the study, when the machines are up.
func (s *Study) Begin(ctx context.Context) error {
	s.Client = place.Local{NetNS: s.Lab.ClientNS()}
	if err := s.enterPrograms(ctx); err != nil {
		return err
	}
	if err := s.findClientTools(ctx); err != nil {
		return err
	}
	if s.Own() == nil {
		return nil
	}
	for _, c := range s.OfEachRelease() {
		if err := s.findServers(ctx, s.Of(c).Servers().Place); err != nil {
			return err
		}
	}
	return s.FindEngine(ctx)
}

// enterPrograms makes the guests' programs usable for clients that run outside all machines, if they
// need more than this host has.
func (s *Study) enterPrograms(ctx context.Context) (err error) {
	if len(guestimage.Packages(s.Spec)) == 0 {
		return nil
	}
	builder := s.Images.Builder
	builder.Files = maps.Clone(builder.Files)
	builder.Files[workload.Generator] = filepath.Join(s.Options.Binaries, filepath.Base(workload.Generator))
	has := func(f func(stack.Configuration) bool) bool { return slices.ContainsFunc(s.Spec.Configurations, f) }
	if has(func(c stack.Configuration) bool { return c.Drive != stack.Pod && c.Host == "" }) {
		if s.programs, err = s.Enter(ctx, s.Lab.ClientNS(), "-clients", builder); err != nil {
			return err
		}
	}
	if has(func(c stack.Configuration) bool { return c.Host != "" }) {
		s.programsHere, err = s.Enter(ctx, fmt.Sprintf("/proc/%d/ns/net", os.Getpid()), "-clients-here", builder)
	}
	return err
}

// Start starts the container of c, if it has one, and one server for each kind that
// the cases need, in the container or in the machine.
func (s *Study) Start(ctx context.Context, c stack.Configuration) (err error) {
	all := s.Of(c)
	var one *server.Service
	if c.Drive == stack.Pod {
		one, err = s.newPod(ctx, c, all)
	} else {
		one, err = s.newService(ctx, c, all)
	}
	if err != nil {
		return all.Explain(err)
	}
	s.Instances[c.Name] = one
	if s.Own() == nil {
		_ = s.findServers(ctx, one.Place) // without a server, its cases fail and say why
	}
	return ifFatal(ctx, one.StartServers(ctx))
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
func (s *Study) Renew(ctx context.Context, first experiment.Execution) error {
	s.dropEarly() // they may have connected already
	if first.Case.Params.Protocol == workload.UDP {
		s.startEarly(ctx, []experiment.Execution{first}, time.Now().Add(s.restart))
	}
	return s.RestartServers(ctx)
}

// RestartServers takes the configurations in random order, so that none is always first. The
// containers stay.
func (s *Study) RestartServers(ctx context.Context) error {
	begin := time.Now()
	ctx, done := s.WhileAlive(ctx)
	defer done()
	names := slices.Collect(maps.Keys(s.Instances))
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		if err := ifFatal(ctx, s.Instances[name].StartServers(ctx)); err != nil {
			return fmt.Errorf("configuration %s: %w", name, err)
		}
	}
	s.restart = time.Since(begin)
	return nil
}

// Down ends clients and servers, and takes the machines down.
func (s *Study) Down() (err error) {
	s.dropEarly()
	for _, one := range s.Instances {
		err = errors.Join(err, one.Leave())
	}
	return errors.Join(err, s.Set.Down())
}

// findClientTools records the versions of the clients' tools, where the clients run:
// on this host, unless all run in pods.
func (s *Study) findClientTools(ctx context.Context) error {
	var p place.Place = place.Local{}
	if !slices.ContainsFunc(s.Spec.Configurations, func(c stack.Configuration) bool { return c.Drive != stack.Pod }) {
		p = s.Of(s.Spec.Configurations[0])[0].Place
	}
	for _, c := range s.Spec.Cases {
		w := c.Workload()
		if client.IsGenerator(w) {
			continue
		}
		if err := s.FindVersion(ctx, p, w); err != nil {
			return fmt.Errorf("%w: install it by `apt-get install %s`", err, w.Name())
		}
	}
	return nil
}

// findServers records the versions of the applications' servers and of their packages in p.
func (s *Study) findServers(ctx context.Context, p place.Place) error {
	for _, c := range s.Spec.Cases {
		w := c.Workload()
		if len(w.Programs()) == 0 {
			continue
		}
		if err := s.FindVersion(ctx, p, w); err != nil {
			return err
		}
	}
	return s.FindPackages(ctx, p)
}
