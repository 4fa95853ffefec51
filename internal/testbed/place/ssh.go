package place

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// SSH is a machine behind SSH: one of our guests, or any host. All commands share one
// connection.
type SSH struct {
	name   string
	client *ssh.Client
	answer answerTime    // defaultAnswerTime
	lost   chan struct{} // closed when the connection has ended
}

// Dialer opens the connection for SSH.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// DialSSH logs in at address (host:port). name names the place for people. The Timeout
// of config limits the whole login.
func DialSSH(ctx context.Context, name, address string, dial Dialer, config *ssh.ClientConfig) (*SSH, error) {
	if config.Timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, config.Timeout)
		defer cancel()
		ctx = limited
	}
	conn, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("reach %s: %w", name, err)
	}
	// The handshake takes no context. Closing the connection ends it.
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	c, channels, requests, err := ssh.NewClientConn(conn, address, config)
	if !stop() {
		err = context.Cause(ctx) // the cause of any other error
	}
	if err != nil {
		return nil, fmt.Errorf("log in to %s: %w", name, errors.Join(err, ignoreClosed(conn.Close())))
	}
	s := &SSH{name, ssh.NewClient(c, channels, requests), defaultAnswerTime, make(chan struct{})}
	go func() {
		_ = s.client.Wait()
		close(s.lost)
	}()
	return s, nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// String names the place.
func (s *SSH) String() string { return s.name }

// Close ends the connection and every command that runs over it.
func (s *SSH) Close() error { return ignoreClosed(s.client.Close()) }

// Lost reports whether the connection has ended. No command can run then.
func (s *SSH) Lost() bool {
	select {
	case <-s.lost:
		return true
	default:
		return false
	}
}

// Done is closed when the connection has ended.
func (s *SSH) Done() <-chan struct{} { return s.lost }

// Client returns the connection, for a terminal, which a Place does not offer.
func (s *SSH) Client() *ssh.Client { return s.client }

// answerTime is how long a machine may take to answer after the end of a context. After
// that, the connection is closed, with every command that runs over it.
type answerTime struct {
	stopped time.Duration // the context was cancelled: somebody waits
	late    time.Duration // a time limit has passed, or the work is done: the machine may be busy
}

var defaultAnswerTime = answerTime{stopped: 2 * time.Second, late: 30 * time.Second}

// Patient gives the machine half a minute to answer after the end of any context, which an emulated
// host of emulated machines needs. It returns s. Call it before the first command.
func (s *SSH) Patient() *SSH {
	s.answer.stopped = s.answer.late
	return s
}

func (p answerTime) after(ctx context.Context) time.Duration {
	why := errors.Join(ctx.Err(), context.Cause(ctx))
	if errors.Is(why, context.DeadlineExceeded) || errors.Is(why, errDone) {
		return p.late
	}
	return p.stopped
}

// errDone ends the context of a command whose work is done.
var errDone = errors.New("its work is done")

// UntilDone returns a context for a command, and a function that ends it when its work is done. Nobody
// waits then, so the machine has as much time to end the command as after a time limit.
func UntilDone(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, func() { cancel(errDone) }
}

// open opens a session. Lost is true as soon as open fails, unless the server has refused the session.
func (s *SSH) open() (*ssh.Session, error) {
	type result struct {
		session *ssh.Session
		err     error
	}
	opened := make(chan result, 1)
	go func() { // it can wait forever if the connection ends meanwhile: golang.org/x/crypto v0.58.0, mux.openChannel
		session, err := s.client.NewSession()
		opened <- result{session, err}
	}()
	select {
	case r := <-opened:
		var refused *ssh.OpenChannelError
		if r.err == nil || errors.As(r.err, &refused) {
			return r.session, r.err
		}
		_ = s.client.Close()
		select {
		case <-s.lost:
		case <-time.After(defaultAnswerTime.stopped): // the machine that the connection goes through does not answer
		}
		return nil, r.err
	case <-s.lost:
		return nil, net.ErrClosed
	}
}

// Start starts c as the leader of a session in the machine.
func (s *SSH) Start(ctx context.Context, c Command) (Process, error) {
	defer s.expectAnswer(ctx)()
	session, err := s.open()
	if err != nil {
		return nil, fmt.Errorf("start %s on %s: %w", c.Args[0], s.name, err)
	}
	p := &sshProcess{place: s, session: session, args: c.Args, ended: make(chan struct{}), killed: make(chan struct{})}
	session.Stdin, session.Stdout, session.Stderr = c.Stdin, c.Stdout, &p.tail
	if c.Stderr != nil {
		session.Stderr = io.MultiWriter(c.Stderr, &p.tail)
	}
	file := pidFile()
	if err := session.Start(quote(append([]string{"setsid", "--wait"}, withPIDFile(file, c.Env, c.Args)...))); err != nil {
		return nil, errors.Join(fmt.Errorf("start %s on %s: %w", c.Args[0], s.name, err), ignoreClosed(session.Close()))
	}
	go func() {
		p.exit = session.Wait()
		close(p.ended)
	}()
	p.stop = context.AfterFunc(ctx, func() { p.kill(ctx, file) })
	return p, nil
}

// expectAnswer closes the connection if the machine does not answer in time after the
// end of ctx. Call answered when the answer has arrived.
func (s *SSH) expectAnswer(ctx context.Context) (answered func()) {
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-done:
		case <-time.After(s.answer.after(ctx)):
			_ = s.client.Close()
		}
	})
	return func() {
		close(done)
		stop()
	}
}

type sshProcess struct {
	place   *SSH
	session *ssh.Session
	args    []string
	tail    tail
	ended   chan struct{} // closed when the session has ended, with exit
	exit    error
	stop    func() bool
	killed  chan struct{} // closed when kill has returned
}

// kill kills the process by a command in a session of its own, then closes the channel.
func (p *sshProcess) kill(ctx context.Context, file string) {
	defer close(p.killed)
	defer p.place.expectAnswer(ctx)()
	if session, err := p.place.open(); err == nil {
		_ = session.Run(quote(killCommand(file))) // fails if the process has ended
		_ = session.Close()
	}
	_ = p.session.Close()
	<-p.ended
}

func (p *sshProcess) Wait() error {
	<-p.ended
	if !p.stop() {
		<-p.killed
	}
	return p.explain(p.exit)
}

// explain turns the end of a session into the error of Wait.
func (p *sshProcess) explain(err error) error {
	var exit *ssh.ExitError
	if errors.As(err, &exit) {
		code := exit.ExitStatus()
		if exit.Signal() != "" {
			code = -1
		}
		return &ExitError{Place: p.place.name, Args: p.args, Code: code, Stderr: p.tail.String()}
	}
	if err != nil {
		return fmt.Errorf("%s on %s: connection lost: %w", p.args[0], p.place.name, err)
	}
	return nil
}

// Put writes a file in the machine.
func (s *SSH) Put(ctx context.Context, file string, mode fs.FileMode, content io.Reader) error {
	return put(ctx, s, file, mode, content)
}

// put writes a file through a shell in p. The shell counts the bytes: its input also ends if the connection is lost.
func put(ctx context.Context, p Place, file string, mode fs.FileMode, content io.Reader) error {
	const script = `set -e; umask 077; mkdir -p "$2"; trap 'rm -f "$0.put"' EXIT; cat >"$0.put"; [ "$(wc -c <"$0.put")" -eq "$3" ] || { echo "only a part arrived" >&2; exit 1; }; chmod "$1" "$0.put"; mv "$0.put" "$0"`
	all, err := io.ReadAll(content)
	var process Process
	if err == nil {
		args := []string{"sh", "-c", script, file, fmt.Sprintf("%o", mode.Perm()), path.Dir(file), fmt.Sprint(len(all))}
		process, err = p.Start(ctx, Command{Args: args, Stdin: bytes.NewReader(all)})
	}
	if err == nil {
		err = process.Wait()
	}
	if err != nil {
		return fmt.Errorf("put %s on %s: %w", file, p, err)
	}
	return nil
}

// A command in another system is not our child: it survives the end of the SSH channel or
// of the `nerdctl exec` that started it. A shell that leads the command's process group
// therefore writes its process ID to a file, by which the group can be killed.

func pidFile() string { return "/tmp/.unnest-" + rand.Text() }

// withPIDFile returns a command line that runs args, with env added, in a shell whose
// process ID is in file meanwhile.
func withPIDFile(file string, env, args []string) []string {
	script := `pid=$1; shift; echo $$ >"$pid"; `
	if len(env) > 0 {
		script += "export " + quote(env) + "; "
	}
	return append([]string{"sh", "-c", script + `"$@"; code=$?; rm -f "$pid"; exit $code`, "sh", file}, args...)
}

// killCommand returns a command line that kills the process group in file. A process
// that has just started may not have written the file yet.
func killCommand(file string) []string {
	const script = `tries=0; until [ -s "$1" ] || [ $tries = 10 ]; do tries=$((tries + 1)); sleep 0.1; done; ` +
		`kill -s KILL -- "-$(cat "$1")"; rm -f "$1"`
	return []string{"sh", "-c", script, "sh", file}
}

// quote returns args as one line for a POSIX shell.
func quote(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}
