// Package server runs the servers of a configuration: it starts, restarts and ends them in their place, says
// why one has ended, and reads their CPU time.
package server

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/machines/output"
	"unnest.io/unnest/internal/testbed/place"
)

// A process keeps properties that it has from its start, such as where its pages lie.
// No interval over blocks shows their effect: in one run, one of two identical
// configurations was measured a fifth slower in every block. Servers are therefore
// restarted before each block, so that the difference between instances varies from
// block to block. Block and boot of a sample identify the instance that it was
// measured with.

// Timeout bounds the end of a server, and the start of the next one until it
// accepts clients. The first start includes a login.
const Timeout = 30 * time.Second

// SlowTimeout is the same for a server that runs only while its client does, and for one in a
// domain of Xen: in an emulated guest, a Java program takes half a minute to start, as does Apache in
// one of two domains that start side by side.
const SlowTimeout = 3 * time.Minute

// Server is a server of a configuration. A shell stays in its place from block to block
// and restarts it on demand, so that a restart needs no login and no engine.
type Server struct {
	Key     string // of the cases that need it, see Key
	Command Command
	Timeout time.Duration // see the constant
	round   int           // number of starts
	process string        // ID of its process in its place
	failed  error         // why it does not run since its last start; nil: it runs
	output  *output.Watch // of the server and the shell
	stdin   io.Writer     // of the shell, which restarts the server at each line
	stop    func()        // ends the shell, and the server with it; nil: never started
	ended   chan struct{} // closed when the shell has ended, with err
	err     error
}

// serverScript restarts its arguments, the server, for each line that it reads. It prints
// the line when the previous process has been reaped and its ports are free, and the ID of the
// server's process before the server prints anything. It also prints when the server ends
// without being told to. A line with stop only ends the previous process. So does the end of its input: the
// servers on a machine end with the connection to it.
//
//go:embed server.sh
var serverScript string

// serverEnd follows the exit code of a server that ended without being told to, in server.sh.
const serverEnd = ": the server has ended"

// StartServers starts or restarts the servers, and waits until each accepts clients. It leaves
// out those that run only while their client does.
func (s *Service) StartServers(ctx context.Context) error {
	var g errgroup.Group
	for _, one := range s.Servers {
		if one.Command.Alone {
			continue
		}
		g.Go(func() error { return s.startServer(ctx, one) })
	}
	return g.Wait()
}

func (s *Service) startServer(ctx context.Context, one *Server) error {
	one.failed = one.start(ctx, s.Place)
	if one.failed != nil {
		one.failed = s.Machines.Explain(fmt.Errorf("start server %s on %s: %w", one.Command, s.Place, s.died(ctx, one.failed)))
	}
	return one.failed
}

// died adds to the error of a server that ended at once how its container has ended, if it has.
func (s *Service) died(ctx context.Context, err error) error {
	if s.Container == nil || !errors.Is(err, experiment.ErrDied) {
		return err
	}
	return machine.WithContainerEnd(ctx, *s.Container, err)
}

// Serving returns nil if the server of a case runs. A server whose start failed, or that runs only
// while its client does, is started.
func (s *Service) Serving(ctx context.Context, c experiment.Case) error {
	if one := s.serverOf(c); one != nil && (one.failed != nil || one.Command.Alone) {
		return s.startServer(ctx, one)
	}
	return nil
}

// Served ends the server of a case if it runs only while its client does.
func (s *Service) Served(ctx context.Context, c experiment.Case) {
	if one := s.serverOf(c); one != nil && one.Command.Alone && one.running() {
		// After an error, the next start waits for the same.
		_ = one.tell(context.WithoutCancel(ctx), "stop")
	}
}

// Explain adds to the error of a client that its server has ended, if it has. The server is
// started again for the next client.
func (s *Service) Explain(c experiment.Case, err error) error {
	if one := s.serverOf(c); one != nil && one.running() {
		if printed, ended := strings.CutSuffix(one.output.String(), serverEnd); ended {
			one.failed = fmt.Errorf("server %s has ended: %s", one.Command, output.LastLines(printed))
			err = fmt.Errorf("%w; %w", err, one.failed)
		}
	}
	return s.Machines.Explain(err)
}

func (s *Service) serverOf(c experiment.Case) *Server {
	key := Key(c)
	i := slices.IndexFunc(s.Servers, func(one *Server) bool { return one.Key == key })
	if i < 0 {
		return nil
	}
	return s.Servers[i]
}

// StopServers ends the servers without waiting for their end.
func (s *Service) StopServers() {
	for _, one := range s.Servers {
		if one.stop != nil {
			one.stop()
		}
	}
}

// start ends the server, if it runs, starts it again in p and waits until it accepts
// clients. The server lives until stop, not until the end of ctx.
func (s *Server) start(ctx context.Context, p place.Place) error {
	if !s.running() {
		if err := s.startShell(ctx, p); err != nil {
			return err
		}
	}
	if err := s.tell(ctx, "round"); err != nil {
		return err
	}
	process, err := s.wait(ctx, s.output.Await("\n"), "its process has not started")
	if err != nil {
		return err
	}
	s.process = strings.TrimSpace(process)
	printed, err := s.wait(ctx, s.output.Await(s.Command.Ready, serverEnd), fmt.Sprintf("it does not print %q", s.Command.Ready))
	if err != nil {
		return err
	}
	if printed, ended := strings.CutSuffix(printed, serverEnd); ended {
		return fmt.Errorf("%w: %s", experiment.ErrDied, output.LastLines(printed))
	}
	return nil
}

// tell gives the shell a line, and waits until the previous instance has ended.
func (s *Server) tell(ctx context.Context, what string) error {
	s.round++
	line := fmt.Sprintf("unnest %s %d", what, s.round)
	gone := s.output.Await(line + "\n")
	_, _ = io.WriteString(s.stdin, line+"\n") // a failure means that the shell has ended: wait reports that
	_, err := s.wait(ctx, gone, "the previous instance has not ended")
	return err
}

// running reports whether the shell runs.
func (s *Server) running() bool {
	if s.stop == nil {
		return false
	}
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

func (s *Server) startShell(ctx context.Context, p place.Place) error {
	// Not an io.Pipe: exec would copy from it, and report the end of a command on this
	// host only after the next line was read.
	in, stdin, err := os.Pipe()
	if err != nil {
		return err
	}
	closePipe := func() { _, _ = in.Close(), stdin.Close() }
	ctx, stop := place.UntilDone(context.WithoutCancel(ctx))
	s.output = &output.Watch{}
	process, err := p.Start(ctx, place.Command{
		Args:  append([]string{"sh", "-c", serverScript, "server"}, s.Command.Args...),
		Stdin: in, Stdout: s.output, Stderr: s.output,
	})
	if err != nil {
		stop()
		closePipe()
		return err
	}
	context.AfterFunc(ctx, closePipe)
	ended := make(chan struct{})
	s.stdin, s.stop, s.ended, s.err = stdin, stop, ended, nil
	go func() {
		defer close(ended)
		defer stop()
		if s.err = process.Wait(); s.err == nil {
			s.err = errors.New("exit code 0")
		}
	}()
	return nil
}

// wait waits for a text from the server or its shell and returns the output up to its
// end. late is the error for a text that does not come within the timeout.
func (s *Server) wait(ctx context.Context, text <-chan string, late string) (string, error) {
	timeout := time.NewTimer(s.Timeout)
	defer timeout.Stop()
	select {
	case printed := <-text:
		return printed, nil
	case <-s.ended:
		return "", fmt.Errorf("%w: the shell that starts it has ended: %w: %s", experiment.ErrDied, s.err, output.LastLines(s.output.String()))
	case <-timeout.C:
		return "", fmt.Errorf("%s after %v: %s", late, s.Timeout, s.output)
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
