package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"unnest/internal/measure/experiment"
	"unnest/internal/testbed/place"
)

// A process keeps properties that it has from its start, such as where its pages lie.
// No interval over blocks shows their effect: in one run, one of two identical
// configurations was measured a fifth slower in every block. Servers are therefore
// restarted before each block, so that the difference between instances varies from
// block to block. Block and boot of a sample identify the instance that it was
// measured with.

// serverTimeout bounds the end of a server, and the start of the next one until it
// accepts clients. The first start includes a login.
const serverTimeout = 30 * time.Second

// slowServerTimeout is the same for a server that runs only while its client does, and for one in a
// domain of Xen: in an emulated guest, a Java program takes half a minute to start, as does Apache in
// one of two domains that start side by side.
const slowServerTimeout = 3 * time.Minute

// server is a server of a configuration. A shell stays in its place from block to block
// and restarts it on demand, so that a restart needs no login and no engine.
type server struct {
	key     string // of the cases that need it, see serverKey
	command serverCommand
	timeout time.Duration // see serverTimeout
	round   int           // number of starts
	process string        // ID of its process in its place
	failed  error         // why it does not run since its last start; nil: it runs
	output  *watch        // of the server and the shell
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
const serverScript = `serve() {
	trap 'kill -s KILL "$server"; wait "$server"; exit' TERM
	sh -c 'echo $$; exec "$@"' sh "$@" </dev/null & server=$!
	wait "$server"
	echo "exit code $?` + serverEnd + `"
}
exec 2>&1
while read -r round; do
	[ -z "$serving" ] || { kill "$serving"; wait "$serving"; } 2>/dev/null
	echo "$round"
	case $round in *stop*) serving=; continue ;; esac
	serve "$@" & serving=$!
done
[ -z "$serving" ] || kill "$serving" 2>/dev/null
`

// serverEnd follows the exit code of a server that ended without being told to.
const serverEnd = ": the server has ended"

// startServers starts or restarts the servers, and waits until each accepts clients. It leaves
// out those that run only while their client does.
func (s *service) startServers(ctx context.Context) error {
	var g errgroup.Group
	for _, one := range s.servers {
		if one.command.alone {
			continue
		}
		g.Go(func() error { return s.startServer(ctx, one) })
	}
	return g.Wait()
}

func (s *service) startServer(ctx context.Context, one *server) error {
	one.failed = one.start(ctx, s.place)
	if one.failed != nil {
		one.failed = s.machines.explain(fmt.Errorf("start server %s: %w", one.command, one.failed))
	}
	return one.failed
}

// serving returns nil if the server of a case runs. A server whose start failed, or that runs only
// while its client does, is started.
func (s *service) serving(ctx context.Context, c experiment.Case) error {
	if one := s.serverOf(c); one != nil && (one.failed != nil || one.command.alone) {
		return s.startServer(ctx, one)
	}
	return nil
}

// served ends the server of a case if it runs only while its client does.
func (s *service) served(ctx context.Context, c experiment.Case) {
	if one := s.serverOf(c); one != nil && one.command.alone && one.running() {
		// After an error, the next start waits for the same.
		_ = one.tell(context.WithoutCancel(ctx), "stop")
	}
}

// explain adds to the error of a client that its server has ended, if it has. The server is
// started again for the next client.
func (s *service) explain(c experiment.Case, err error) error {
	if one := s.serverOf(c); one != nil && one.running() {
		if printed, ended := strings.CutSuffix(one.output.String(), serverEnd); ended {
			one.failed = fmt.Errorf("server %s has ended: %s", one.command, inLine(printed))
			err = fmt.Errorf("%w; %w", err, one.failed)
		}
	}
	return s.machines.explain(err)
}

// inLine joins the lines of what a server printed.
func inLine(printed string) string {
	return strings.ReplaceAll(strings.TrimSpace(printed), "\n", "; ")
}

// serverOf returns the server that a case needs.
func (s *service) serverOf(c experiment.Case) *server {
	key, _ := serverKey(c)
	i := slices.IndexFunc(s.servers, func(one *server) bool { return one.key == key })
	if i < 0 {
		return nil
	}
	return s.servers[i]
}

// stopServers ends the servers without waiting for their end.
func (s *service) stopServers() {
	for _, one := range s.servers {
		if one.stop != nil {
			one.stop()
		}
	}
}

// start ends the server, if it runs, starts it again in p and waits until it accepts
// clients. The server lives until stop, not until the end of ctx.
func (s *server) start(ctx context.Context, p place.Place) error {
	if !s.running() {
		if err := s.startShell(ctx, p); err != nil {
			return err
		}
	}
	if err := s.tell(ctx, "round"); err != nil {
		return err
	}
	process, err := s.wait(ctx, s.output.await("\n"), "its process has not started")
	if err != nil {
		return err
	}
	s.process = strings.TrimSpace(process)
	printed, err := s.wait(ctx, s.output.await(s.command.ready, serverEnd), fmt.Sprintf("it does not print %q", s.command.ready))
	if err != nil {
		return err
	}
	if printed, ended := strings.CutSuffix(printed, serverEnd); ended {
		return fmt.Errorf("it ended at once: %s", inLine(printed))
	}
	return nil
}

// tell gives the shell a line, and waits until the previous instance has ended.
func (s *server) tell(ctx context.Context, what string) error {
	s.round++
	line := fmt.Sprintf("unnest %s %d", what, s.round)
	gone := s.output.await(line + "\n")
	_, _ = io.WriteString(s.stdin, line+"\n") // a failure means that the shell has ended: wait reports that
	_, err := s.wait(ctx, gone, "the previous instance has not ended")
	return err
}

// running reports whether the shell runs.
func (s *server) running() bool {
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

func (s *server) startShell(ctx context.Context, p place.Place) error {
	// Not an io.Pipe: exec would copy from it, and report the end of a command on this
	// host only after the next line was read.
	in, stdin, err := os.Pipe()
	if err != nil {
		return err
	}
	closePipe := func() { _, _ = in.Close(), stdin.Close() }
	ctx, stop := place.UntilDone(context.WithoutCancel(ctx))
	s.output = &watch{}
	process, err := p.Start(ctx, place.Command{
		Args:  append([]string{"sh", "-c", serverScript, "server"}, s.command.args...),
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
func (s *server) wait(ctx context.Context, text <-chan string, late string) (string, error) {
	timeout := time.NewTimer(s.timeout)
	defer timeout.Stop()
	select {
	case printed := <-text:
		return printed, nil
	case <-s.ended:
		return "", fmt.Errorf("the shell that starts it has ended: %w: %s", s.err, s.output)
	case <-timeout.C:
		return "", fmt.Errorf("%s after %v: %s", late, s.timeout, s.output)
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
