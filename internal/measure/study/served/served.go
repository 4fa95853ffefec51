// Package served is the study of the cases of suites that load a server of their own.
package served

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/machines/output"
	"unnest.io/unnest/internal/measure/machines/sshhost"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/study/scripts"
	"unnest.io/unnest/internal/measure/study/server"
	"unnest.io/unnest/internal/measure/suite"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/place"
)

// Study is the study of cases of suites that load a server. Each execution starts the server
// with a clean state, loads it, and ends it, so that one server runs at a time. The load runs
// where the server does, or on this host (drive remote): in the lab's network of clients, or in that
// of this process if the server is on a host that is reached over SSH.
type Study struct {
	*scripts.Study
	clients map[place.Local]*scripts.Workspace // of the load on this host, by network
}

// New returns the study on machines of which none is up.
func New(b *machines.Set) *Study {
	s := &Study{
		Study:   scripts.New(b),
		clients: map[place.Local]*scripts.Workspace{},
	}
	for _, c := range b.Spec.Configurations {
		if c.Drive == stack.Remote {
			s.Published[c.Name] = []workload.Port{{Protocol: workload.TCP, Number: s.port(c)}}
		}
	}
	return s
}

// port is that of the server of a configuration. Containers publish theirs all the time, so
// each configuration has its own.
func (s *Study) port(c stack.Configuration) int {
	return server.FirstPort + slices.IndexFunc(s.Spec.Configurations, func(other stack.Configuration) bool { return other.Name == c.Name })
}

// Check returns an error unless the server runs in the configuration.
func (s *Study) Check(c stack.Configuration) error { return s.CheckServer(c, machines.SuiteServer) }

// Begin prepares the load on this host, if configurations have it there. It has the user space
// of the guests.
func (s *Study) Begin(ctx context.Context) (err error) {
	for _, c := range s.Spec.Configurations {
		in := s.ClientNetwork(c)
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
func (s *Study) newClient(ctx context.Context, in place.Local) (_ *scripts.Workspace, err error) {
	if err := s.EnterHost(ctx); err != nil {
		return nil, err
	}
	inside, m := s.Host.Inside, s.Host.Machine()
	inside.Place, inside.Name = in, in.String()
	w := &scripts.Workspace{Machine: m, Place: inside, Dir: path.Join(m.Work, fmt.Sprintf("client%d", len(s.clients))), Unsupported: map[string]error{}}
	return w, w.PrepareAll(ctx, s.Spec.Cases, suite.Resources{})
}

// Start prepares the cases in a configuration, and records the versions of their programs.
func (s *Study) Start(ctx context.Context, c stack.Configuration) error {
	if err := s.Study.Start(ctx, c); err != nil {
		return err
	}
	w := s.Workspaces[c.Name]
	for _, k := range s.Spec.Cases {
		if w.Unsupported[k.Name] != nil {
			continue
		}
		lines, err := w.Run(ctx, k, "cat "+k.Local.Server.Versions)
		if err != nil {
			return w.Machine.Explain(err)
		}
		for line := range strings.Lines(string(lines)) {
			if name, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
				s.FoundTool(name, version)
			}
		}
	}
	return nil
}

// Execute runs a case once in a configuration, see experiment.Bench.
func (s *Study) Execute(ctx context.Context, e experiment.Execution) (experiment.Outcome, error) {
	w := s.Workspaces[e.Configuration.Name]
	from, address := w, machine.Loopback
	if e.Configuration.Drive == stack.Remote {
		from, address = s.clients[s.ClientNetwork(e.Configuration)], w.Machine.Address
	}
	for _, one := range []*scripts.Workspace{w, from} {
		if err := one.Unsupported[e.Case.Name]; err != nil {
			return experiment.Outcome{}, err
		}
	}
	ctx, done := machine.WhileAlive(ctx, w.Machine)
	defer done()
	outcome, err := s.load(ctx, e, w, from, address)
	return outcome, w.Machine.Explain(err)
}

// load starts the server in w, loads it from another workspace, and ends it.
func (s *Study) load(ctx context.Context, e experiment.Execution, w, from *scripts.Workspace, address string) (o experiment.Outcome, err error) {
	local, profile := e.Case.Local, e.Case.Profile
	size, err := s.Spec.Resources(e.Configuration)
	if err != nil {
		return o, err
	}
	if err := place.Run(ctx, w.Machine.Place, "sync"); err != nil {
		return o, err
	}
	variables := fmt.Sprintf("export ADDRESS=%s PORT=%d LISTEN=%s\n", address, s.port(e.Configuration), s.listen(ctx, e.Configuration, w))
	begin := time.Now()
	one, err := serve(ctx, w, e.Case, variables+local.Server.Start(profile, size))
	if err != nil {
		return o, fmt.Errorf("start the server: %w", err)
	}
	defer one.end()
	took := time.Since(begin)
	out, err := from.Run(ctx, e.Case, variables+local.Run(profile, size))
	if err != nil {
		return o, one.blame(scripts.WithOutput(err, out))
	}
	values, err := local.Parse(out)
	if err != nil {
		return o, one.blame(err)
	}
	values = append(values, workload.Value{Metric: suite.ServerStart.Name, Value: took.Seconds()})
	return experiment.Outcome{Values: values, Boot: w.Machine.Boot, Intervals: local.Intervals(out)}, nil
}

// listen returns the address that the server listens on; empty: all. On a host of the user nobody but the load
// needs to reach it.
func (s *Study) listen(ctx context.Context, c stack.Configuration, w *scripts.Workspace) string {
	switch {
	case !c.Stack.Remote() || c.Network != stack.HostNetwork:
		return ""
	case c.Drive == stack.Remote:
		return sshhost.ListenAddress(ctx, w.Machine.Place)
	}
	return machine.Loopback
}

// instance is a server of a case that runs.
type instance struct {
	log   serverLog
	stop  func()
	ended chan struct{} // closed when it has ended, with err
	err   error
}

// serve starts the server of a case, and waits until it is ready.
func serve(ctx context.Context, w *scripts.Workspace, k experiment.Case, script string) (_ *instance, err error) {
	server := k.Local.Server
	one := &instance{ended: make(chan struct{})}
	ctx, one.stop = place.UntilDone(ctx) // a busy emulated guest takes seconds to end a server
	said := one.log.Await(append([]string{server.Ready}, server.Broken...)...)
	process, err := w.Place.Start(ctx, place.Command{Args: w.Command(k, script), Stdout: &one.log, Stderr: &one.log})
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
		return nil, one.blame(fmt.Errorf("%w: %w", experiment.ErrDied, scripts.WithOutput(one.err, []byte(one.log.String()))))
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
		return fmt.Errorf("%w: %s", experiment.ErrDied, strings.TrimPrefix(complaint, refusal))
	}
	return fmt.Errorf("%w; the server's log has %q", err, complaint)
}

// refusal begins the line in which a server's script says why the server cannot run.
const refusal = "unnest: "

// complaints are texts in the lines of a server's log that say what is wrong. A line with one
// of the first matters more.
var complaints = []string{refusal, "No space left on device", "OutOfMemoryError", " FATAL ", " ERROR "}

// serverLog watches the log of a server, and keeps the line that says best what is wrong.
type serverLog struct {
	output.Watch
	lines sync.Mutex
	part  []byte // of a line, its first maxLine bytes
	line  string
	rank  int // of the line, from 1; 0: there is none
}

// maxLine limits what is kept of a line, in bytes.
const maxLine = 300

func (l *serverLog) Write(p []byte) (int, error) {
	l.lines.Lock()
	for rest := p; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		l.part, rest = append(l.part, line[:min(len(line), maxLine-len(l.part))]...), after
		if whole {
			l.judge(string(bytes.TrimSpace(l.part)))
			l.part = l.part[:0]
		}
	}
	l.lines.Unlock()
	return l.Watch.Write(p)
}

// judge keeps the line if it says better what is wrong than the line that is kept.
func (l *serverLog) judge(line string) {
	i := slices.IndexFunc(complaints, func(text string) bool { return strings.Contains(line, text) })
	if i >= 0 && (l.rank == 0 || i+1 < l.rank) {
		l.line, l.rank = line, i+1
	}
}

// complained returns the line that says what is wrong; empty: there is none.
func (l *serverLog) complained() string {
	l.lines.Lock()
	defer l.lines.Unlock()
	return l.line
}
