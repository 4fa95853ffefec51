package server

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/place"
)

// newServer returns a server that runs a script of sh and is ready when it prints that.
// It ends with the test.
func newServer(t *testing.T, script string) *Server {
	t.Helper()
	s := &Server{Command: Command{Args: []string{"sh", "-c", script}, Ready: "Server listening on"}, Timeout: Timeout}
	t.Cleanup(func() {
		if s.stop != nil {
			s.stop()
			<-s.ended
		}
	})
	return s
}

func TestStartServer(t *testing.T) {
	tests := []struct {
		name   string
		script string
		want   []string // in the error; none: it is ready
	}{
		{"ready", "echo Server listening on 5001; sleep 61.25", nil},
		{"ready by its other output", "echo Server listening on 5001 >&2; sleep 61.25", nil},
		{"ready in pieces", "printf 'warning\nServer '; sleep 0.1; printf 'listening on'; sleep 61.25", nil},
		{"reads nothing of what its shell is told", "cat; echo Server listening on 5001; sleep 61.25", nil},
		{"ends at once", "echo cannot bind: port 5001 is taken; exit 3", []string{"it ended at once", "exit code 3", "cannot bind: port 5001 is taken"}},
		{"ends at once, content", "echo nothing to do", []string{"it ended at once", "nothing to do"}},
		{"killed at once", "kill -s KILL $$", []string{"it ended at once", "exit code 137"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newServer(t, tt.script)
			for round := range 2 { // one that did not start can be started all the same
				err := s.start(t.Context(), place.Local{})
				if len(tt.want) == 0 && err != nil {
					t.Errorf("round %d: %v", round, err)
				}
				if len(tt.want) > 0 && (err == nil || !benchtest.ContainsAll(err.Error(), tt.want...) || strings.Contains(err.Error(), "%!")) {
					t.Errorf("round %d: got %v, want %q", round, err, tt.want)
				}
			}
		})
	}
}

// A server on another machine ends with the connection, also if nobody can tell it any more.
func TestServerEndsWithInput(t *testing.T) {
	s := newServer(t, "echo Server listening on 5001; exec sleep 61.75")
	if err := s.start(t.Context(), place.Local{}); err != nil {
		t.Fatal(err)
	}
	if err := s.stdin.(io.Closer).Close(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat("/proc/" + s.process); errors.Is(err, fs.ErrNotExist) {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the server runs")
		}
	}
}

func TestStartServerWithoutProgram(t *testing.T) {
	s := newServer(t, "")
	s.Command.Args = []string{"no-such-server"}
	if err := s.start(t.Context(), place.Local{}); err == nil || !benchtest.ContainsAll(err.Error(), "no-such-server", "exit code 127") {
		t.Errorf("got %v; want an error that names the program", err)
	}
}

// Each start ends the previous server, also one that ignores SIGTERM, and waits for its
// end. There is one process at a time, each a new one.
func TestStartServerAnew(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	s := newServer(t, `trap '' TERM INT HUP
		for other in $(cat "`+log+`"); do [ ! -e "/proc/$other" ] || echo "$other is still there"; done >&2
		echo $$ >>"`+log+`"
		echo Server listening on 5001
		while :; do sleep 0.05; done`)
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const rounds = 20
	for range rounds {
		if err := s.start(t.Context(), place.Local{}); err != nil {
			t.Fatal(err)
		}
		if said := s.output.String(); strings.Contains(said, "still there") {
			t.Error(said)
		}
	}
	content, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	pids := strings.Fields(string(content))
	slices.Sort(pids)
	if pids = slices.Compact(pids); len(pids) != rounds {
		t.Errorf("%d processes in %d rounds", len(pids), rounds)
	}
	s.stop()
	<-s.ended
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		left := slices.DeleteFunc(slices.Clone(pids), func(pid string) bool { _, err := os.Stat("/proc/" + pid); return err != nil })
		if len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("processes %v outlive the end", left)
		}
	}
}

// The port of a server is free for the next one, also with open connections.
func TestStartServerPortIsFree(t *testing.T) {
	if _, err := exec.LookPath("iperf3"); err != nil {
		t.Skip("needs iperf3")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	w := stream.Workload()
	s := newServer(t, "")
	s.Command = Command{Args: w.Server(stream.Params, workload.Endpoint{Address: "127.0.0.1", Port: port}), Ready: w.Ready()}
	for range 5 {
		if err := s.start(t.Context(), place.Local{}); err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
}

// A shell that has ended is replaced. A server that has ended is started again.
func TestStartServerAfterItsEnd(t *testing.T) {
	s := newServer(t, "echo Server listening on 5001")
	for range 3 {
		if err := s.start(t.Context(), place.Local{}); err != nil {
			t.Fatal(err)
		}
	}
	s.stop()
	<-s.ended
	if err := s.start(t.Context(), place.Local{}); err != nil {
		t.Error(err)
	}
}

// silent is a place whose commands print one of some texts for each line that they
// read, after the line itself, and run until ctx ends.
type silent struct{ says []string }

func (silent) String() string { return "silent place" }

func (silent) Put(context.Context, string, fs.FileMode, io.Reader) error { return nil }

func (s silent) Start(ctx context.Context, c place.Command) (place.Process, error) {
	go func() {
		told := bufio.NewScanner(c.Stdin)
		for i := 0; told.Scan() && i < len(s.says); i++ {
			if _, err := io.WriteString(c.Stdout, told.Text()+"\n4711\n"+s.says[i]); err != nil {
				return
			}
		}
	}()
	return benchtest.Process(func() error { <-ctx.Done(); return ctx.Err() }), nil
}

// A server that never accepts clients, or never ends, is an error at the end of ctx or
// after its timeout. A server lives until it is stopped, not until the end of ctx.
func TestStartServerNeverReady(t *testing.T) {
	why := errors.New("told to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
	s := newServer(t, "")
	p := silent{[]string{"", "warming up", "Server listening on 5001"}}
	if err := s.start(ctx, p); !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}
	if !s.running() {
		t.Error("it ended with ctx")
	}
	s.Timeout = 100 * time.Millisecond
	start := time.Now()
	err := s.start(t.Context(), p)
	if err == nil || !benchtest.ContainsAll(err.Error(), `it does not print "Server listening on" after 100ms`, "warming up") || time.Since(start) < s.Timeout {
		t.Errorf("got %v after %v", err, time.Since(start))
	}
	s.Timeout = Timeout
	if err := s.start(t.Context(), p); err != nil {
		t.Error(err)
	}
	s.Timeout = 100 * time.Millisecond
	start = time.Now()
	err = s.start(t.Context(), p) // it has nothing more to say
	if err == nil || !benchtest.ContainsAll(err.Error(), "the previous instance has not ended after 100ms") || time.Since(start) < s.Timeout {
		t.Errorf("got %v after %v", err, time.Since(start))
	}
}

// The error about the end of the shell quotes its last output.
func TestStartServerWithoutShell(t *testing.T) {
	s := newServer(t, "")
	for _, reads := range []string{"", "read -r line; "} {
		err := s.start(t.Context(), place.Within{Place: place.Local{}, Enter: []string{"sh", "-c", reads + "echo no such container >&2; exit 4"}, Name: "web"})
		if err == nil || !benchtest.ContainsAll(err.Error(), "the shell that starts it has ended", "exit code 4", "no such container") {
			t.Errorf("%q: got %v", reads, err)
		}
	}
}

// Servers are started in parallel. The error names the server.
func TestStartServers(t *testing.T) {
	to := &Service{Place: silent{[]string{"ready to go", "Server listening on 5001"}}}
	for range 3 {
		to.Servers = append(to.Servers, newServer(t, ""))
	}
	for i, s := range to.Servers {
		s.Command.Ready, s.Timeout = "ready to go", time.Minute
		s.Command.Args = append(s.Command.Args, strconv.Itoa(i))
	}
	if err := to.StartServers(t.Context()); err != nil {
		t.Error(err)
	}
	for i, s := range to.Servers { // only the one in the middle waits for what comes
		if i != 1 {
			s.Command.Ready = "Server listening on"
		}
	}
	to.Servers[1].Timeout = 100 * time.Millisecond
	err := to.StartServers(t.Context())
	if err == nil || !benchtest.ContainsAll(err.Error(), `start server "`, ` 1" on silent place: it does not print "ready to go" after 100ms`) {
		t.Errorf("got %v", err)
	}
}
