package bench

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/stack"
	"unnest/internal/measure/suite"
	"unnest/internal/measure/workload"
	"unnest/internal/testbed/place"
)

// served is the study of cases of suites that load a server. Each execution starts the server
// with a clean state, loads it, and ends it, so that one server runs at a time. The load runs
// where the server does, or on this host (drive remote): in the lab's network of clients, or in that
// of this process if the server is on a host that is reached over SSH.
type served struct {
	*scripts
	clients map[place.Local]*workspace // of the load on this host, by network
}

func newServed(b *Bench) *served {
	s := &served{
		scripts: &scripts{Bench: b, workspaces: map[string]*workspace{}, published: map[string][]workload.Port{}},
		clients: map[place.Local]*workspace{},
	}
	for _, c := range b.spec.Configurations {
		if c.Drive == stack.Remote {
			s.published[c.Name] = []workload.Port{{Protocol: workload.TCP, Number: s.port(c)}}
		}
	}
	return s
}

// port is that of the server of a configuration. Containers publish theirs all the time, so
// each configuration has its own.
func (s *served) port(c stack.Configuration) int {
	return firstPort + slices.IndexFunc(s.spec.Configurations, func(other stack.Configuration) bool { return other.Name == c.Name })
}

func (s *served) check(c stack.Configuration) error {
	if err := s.checkXenHosts(c); err != nil {
		return err
	}
	_, contained := c.Stack.Engine()
	remote := c.Drive == stack.Remote
	switch {
	case c.Stack.Remote() && !contained:
		return fmt.Errorf("stack %s: the server comes with our container image: use ssh/containerd or ssh/docker", c.Stack)
	case c.Architecture() != stack.X8664 && (contained || c.Level() != 1):
		return fmt.Errorf("arch %s: its guests run no containers and no guests: use stack vm", c.Architecture())
	case c.Drive == stack.Pod:
		return errors.New("drive pod: the load runs in the configuration itself or on this host: want local or remote")
	case remote && c.Level() > 1:
		return fmt.Errorf("stack %s: the load cannot reach it from outside: use drive local", c.Stack)
	case c.Network != "" && c.Network != stack.HostNetwork && c.Network != stack.NAT:
		return fmt.Errorf("network %s: want host or nat", c.Network)
	case remote && contained && c.Network == "":
		return errors.New("key network is missing: want host or nat")
	case c.Level() > 2:
		return fmt.Errorf("stack %s: guests can nest two levels deep, not %d", c.Stack, c.Level())
	}
	return nil
}

// begin prepares the load on this host, if configurations have it there. It has the user space
// of the guests.
func (s *served) begin(ctx context.Context) (err error) {
	for _, c := range s.spec.Configurations {
		in := s.clientNetwork(c)
		if c.Drive != stack.Remote || s.clients[in] != nil {
			continue
		}
		if s.clients[in], err = s.newClient(ctx, in); err != nil {
			return err
		}
	}
	return nil
}

// newClient prepares the load on this host in a network.
func (s *served) newClient(ctx context.Context, in place.Local) (_ *workspace, err error) {
	if s.host == nil {
		if s.host, err = newHost(ctx, s.lab, s.images.builder, s.images.recipe); err != nil {
			return nil, err
		}
	}
	inside, m := s.host.inside, s.host.machine()
	inside.Place, inside.Name = in, in.String()
	w := &workspace{machine: m, place: inside, dir: path.Join(m.work, fmt.Sprintf("client%d", len(s.clients))), unsupported: map[string]error{}}
	return w, w.prepareAll(ctx, s.spec.Cases, suite.Resources{})
}

// start prepares the cases in a configuration, and records the versions of their programs.
func (s *served) start(ctx context.Context, c stack.Configuration) error {
	if err := s.scripts.start(ctx, c); err != nil {
		return err
	}
	w := s.workspaces[c.Name]
	for _, k := range s.spec.Cases {
		if w.unsupported[k.Name] != nil {
			continue
		}
		lines, err := w.run(ctx, k, "cat "+k.Local.Server.Versions)
		if err != nil {
			return w.machine.explain(err)
		}
		for line := range strings.Lines(string(lines)) {
			if name, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				s.facts.Tools[name] = version
			}
		}
	}
	return nil
}

// Execute runs a case once in a configuration, see experiment.Bench.
func (s *served) Execute(ctx context.Context, e experiment.Execution) (experiment.Outcome, error) {
	w := s.workspaces[e.Configuration.Name]
	from, address := w, loopback
	if e.Configuration.Drive == stack.Remote {
		from, address = s.clients[s.clientNetwork(e.Configuration)], w.machine.address
	}
	for _, one := range []*workspace{w, from} {
		if err := one.unsupported[e.Case.Name]; err != nil {
			return experiment.Outcome{}, err
		}
	}
	ctx, done := whileAlive(ctx, w.machine)
	defer done()
	outcome, err := s.load(ctx, e, w, from, address)
	return outcome, w.machine.explain(err)
}

// load starts the server in w, loads it from another workspace, and ends it.
func (s *served) load(ctx context.Context, e experiment.Execution, w, from *workspace, address string) (o experiment.Outcome, err error) {
	local, profile := e.Case.Local, e.Case.Profile
	size, err := s.spec.Resources(e.Configuration)
	if err != nil {
		return o, err
	}
	if err := place.Run(ctx, w.machine.place, "sync"); err != nil {
		return o, err
	}
	variables := fmt.Sprintf("export ADDRESS=%s PORT=%d LISTEN=%s\n", address, s.port(e.Configuration), s.listen(ctx, e.Configuration, w))
	begin := time.Now()
	one, err := w.serve(ctx, e.Case, variables+local.Server.Start(profile, size))
	if err != nil {
		return o, fmt.Errorf("start the server: %w", err)
	}
	defer one.end()
	took := time.Since(begin)
	out, err := from.run(ctx, e.Case, variables+local.Run(profile, size))
	if err != nil {
		return o, one.blame(withOutput(err, out))
	}
	values, err := local.Parse(out)
	if err != nil {
		return o, one.blame(err)
	}
	values = append(values, workload.Value{Metric: suite.ServerStart.Name, Value: took.Seconds()})
	return experiment.Outcome{Values: values, Boot: w.machine.boot, Intervals: local.Intervals(out)}, nil
}

// listen returns the address that the server listens on; empty: all. On a host of the user nobody but the load
// needs to reach it.
func (s *served) listen(ctx context.Context, c stack.Configuration, w *workspace) string {
	switch {
	case !c.Stack.Remote() || c.Network != stack.HostNetwork:
		return ""
	case c.Drive == stack.Remote:
		return listenAddress(ctx, w.machine.place)
	}
	return loopback
}

// instance is a server of a case that runs.
type instance struct {
	log   serverLog
	stop  func()
	ended chan struct{} // closed when it has ended, with err
	err   error
}

// serve starts the server of a case, and waits until it is ready.
func (w *workspace) serve(ctx context.Context, k experiment.Case, script string) (_ *instance, err error) {
	server := k.Local.Server
	one := &instance{ended: make(chan struct{})}
	ctx, one.stop = place.UntilDone(ctx) // a busy emulated guest takes seconds to end a server
	said := one.log.await(append([]string{server.Ready}, server.Broken...)...)
	process, err := w.place.Start(ctx, place.Command{Args: w.command(k, script), Stdout: &one.log, Stderr: &one.log})
	if err != nil {
		one.stop()
		return nil, err
	}
	go func() {
		defer close(one.ended)
		one.err = process.Wait()
	}()
	defer func() {
		if err != nil {
			one.end()
		}
	}()
	select {
	case text := <-said:
		if !strings.HasSuffix(text, server.Ready) {
			return nil, one.blame(errors.New("it has started with errors"))
		}
		return one, nil
	case <-one.ended:
		return nil, one.blame(fmt.Errorf("it ended at once: %w", one.err))
	case <-ctx.Done():
		return nil, one.blame(fmt.Errorf("it is not ready: %w", context.Cause(ctx)))
	}
}

// end ends the server and waits for its end.
func (i *instance) end() {
	i.stop()
	<-i.ended
}

// blame adds to an error what the server complained about first.
func (i *instance) blame(err error) error {
	complaint := i.log.complained()
	switch {
	case err == nil || complaint == "":
		return err
	case strings.HasPrefix(complaint, refusal):
		return errors.New(strings.TrimPrefix(complaint, refusal))
	}
	return fmt.Errorf("%w; the server's log has %q", err, complaint)
}
