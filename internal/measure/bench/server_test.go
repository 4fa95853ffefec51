package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
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

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/workload"
	"unnest/internal/testbed/place"
)

// containsAll reports whether text has all words.
func containsAll(text string, words ...string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// newServer returns a server that runs a script of sh and is ready when it prints that.
// It ends with the test.
func newServer(t *testing.T, script string) *server {
	t.Helper()
	s := &server{command: serverCommand{args: []string{"sh", "-c", script}, ready: "Server listening on"}, timeout: serverTimeout}
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
				if len(tt.want) > 0 && (err == nil || !containsAll(err.Error(), tt.want...) || strings.Contains(err.Error(), "%!")) {
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
	s.command.args = []string{"no-such-server"}
	if err := s.start(t.Context(), place.Local{}); err == nil || !containsAll(err.Error(), "no-such-server", "exit code 127") {
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
	w := lookup(stream)
	s := newServer(t, "")
	s.command = serverCommand{args: w.Server(stream.Params, workload.Endpoint{Address: "127.0.0.1", Port: port}), ready: w.Ready()}
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
	return process(func() error { <-ctx.Done(); return ctx.Err() }), nil
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
	s.timeout = 100 * time.Millisecond
	start := time.Now()
	err := s.start(t.Context(), p)
	if err == nil || !containsAll(err.Error(), `it does not print "Server listening on" after 100ms`, "warming up") || time.Since(start) < s.timeout {
		t.Errorf("got %v after %v", err, time.Since(start))
	}
	s.timeout = serverTimeout
	if err := s.start(t.Context(), p); err != nil {
		t.Error(err)
	}
	s.timeout = 100 * time.Millisecond
	start = time.Now()
	err = s.start(t.Context(), p) // it has nothing more to say
	if err == nil || !containsAll(err.Error(), "the previous instance has not ended after 100ms") || time.Since(start) < s.timeout {
		t.Errorf("got %v after %v", err, time.Since(start))
	}
}

// The error about the end of the shell quotes its last output.
func TestStartServerWithoutShell(t *testing.T) {
	s := newServer(t, "")
	for _, reads := range []string{"", "read -r line; "} {
		err := s.start(t.Context(), place.Within{Place: place.Local{}, Enter: []string{"sh", "-c", reads + "echo no such container >&2; exit 4"}, Name: "web"})
		if err == nil || !containsAll(err.Error(), "the shell that starts it has ended", "exit code 4", "no such container") {
			t.Errorf("%q: got %v", reads, err)
		}
	}
}

// Servers are started in parallel. The error names the server.
func TestStartServers(t *testing.T) {
	to := &service{place: silent{[]string{"ready to go", "Server listening on 5001"}}}
	for range 3 {
		to.servers = append(to.servers, newServer(t, ""))
	}
	for i, s := range to.servers {
		s.command.ready, s.timeout = "ready to go", time.Minute
		s.command.args = append(s.command.args, strconv.Itoa(i))
	}
	if err := to.startServers(t.Context()); err != nil {
		t.Error(err)
	}
	for i, s := range to.servers { // only the one in the middle waits for what comes
		if i != 1 {
			s.command.ready = "Server listening on"
		}
	}
	to.servers[1].timeout = 100 * time.Millisecond
	err := to.startServers(t.Context())
	if err == nil || !containsAll(err.Error(), `start server "`, ` 1": it does not print "ready to go" after 100ms`) {
		t.Errorf("got %v", err)
	}
}

// The servers of every configuration are restarted for a block. The client that was
// started in advance is killed first: it may have connected.
func TestRenew(t *testing.T) {
	p := &clock{}
	b := newBench(p)
	for _, to := range b.instances {
		to.place = place.Local{}
		to.servers = []*server{newServer(t, "echo Server listening on 5001; sleep 61.25"), newServer(t, "echo Server listening on 5002; sleep 61.25")}
		if err := to.startServers(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ahead := b.newClient(t.Context(), newExecution("NAT", pingPong, 1), 0, idling)
	b.early = []*client{ahead}
	if err := b.Renew(t.Context(), newExecution("NAT", stream, 2)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ahead.done:
	default:
		t.Error("the client that was started ahead is still there")
	}
	if b.early != nil {
		t.Error("the client that was started ahead may have its turn")
	}
	for name, to := range b.instances {
		for _, s := range to.servers {
			if s.round != 2 {
				t.Errorf("%s: a server was started %d times, want 2", name, s.round)
			}
		}
	}
	broken := b.instances["NAT"].servers[1]
	broken.command.args = []string{"sh", "-c", "echo address already in use; exit 1"}
	broken.stop()
	<-broken.ended
	if err := b.Renew(t.Context(), newExecution("NAT", stream, 3)); err != nil { // the others go on
		t.Error(err)
	}
	broken.key, _ = serverKey(stream)
	for range 2 { // each attempt starts it again
		if _, err := b.Execute(t.Context(), newExecution("NAT", stream, 2)); err == nil || !containsAll(err.Error(), "start server", "address already in use") {
			t.Errorf("got %v; want an error that names the server", err)
		}
	}
	broken.command.args = []string{"sh", "-c", "echo Server listening on 5002; sleep 61.25"}
	broken.stop() // the next shell has the new arguments
	<-broken.ended
	if err := b.instances["NAT"].serving(t.Context(), stream); err != nil {
		t.Error(err)
	}
	if err := b.Down(); err != nil {
		t.Error(err)
	}
	for _, to := range b.instances {
		for _, s := range to.servers {
			<-s.ended
		}
	}
}

// While servers restart, a client that uses UDP idles. One that uses TCP would connect to the old server.
func TestRenewStartsClient(t *testing.T) {
	overTCP := newCase("tcp_rr", "sockperf", workload.TCP)
	for _, tt := range []struct {
		first experiment.Case
		early int
	}{{pingPong, 1}, {overTCP, 0}, {stream, 0}} {
		b := newBench(&clock{})
		if err := b.Renew(t.Context(), newExecution("NAT", tt.first, 0)); err != nil {
			t.Fatal(err)
		}
		if len(b.early) != tt.early {
			t.Errorf("%s: %d clients idle, want %d", tt.first.Name, len(b.early), tt.early)
		}
		b.dropEarly()
	}
}

// The end of a machine is the error of starting its servers, and ends the wait.
func TestRenewWithoutMachine(t *testing.T) {
	died := errors.New("guest node1 died")
	gone := make(chan struct{})
	s := &machine{gone: gone, died: func() error {
		select {
		case <-gone:
			return died
		default:
			return nil
		}
	}}
	b := &services{Bench: &Bench{running: map[string]*machine{"node1": s}}, instances: map[string]*service{
		"NAT": {machines: machines{s}, place: silent{}, servers: []*server{newServer(t, "")}},
	}}
	time.AfterFunc(100*time.Millisecond, func() { close(gone) })
	if err := b.Renew(t.Context(), experiment.Execution{}); !errors.Is(err, died) || !errors.Is(err, experiment.ErrFatal) {
		t.Errorf("got %v", err)
	}
}

// The text is found in any division into writes, and after any amount of other input.
func TestWatch(t *testing.T) {
	const text = "Server listening on"
	for _, noise := range []int{0, 1, watchedBytes - 5, watchedBytes, 3 * watchedBytes} {
		whole := strings.Repeat("#", noise) + text
		for _, cut := range []int{0, 1, len(text) / 2, len(text) - 1} {
			for _, piece := range []int{1, 7, watchedBytes + 1} {
				t.Run(fmt.Sprintf("%d noise, cut %d, pieces of %d", noise, cut, piece), func(t *testing.T) {
					w := &watch{}
					found := w.await("no such text", text)
					early, late := whole[:noise+cut], whole[noise+cut:]
					writeAll(t, w, early, piece)
					if len(found) > 0 {
						t.Fatal("found before it was written")
					}
					writeAll(t, w, late+" port\n", piece)
					select {
					case said := <-found:
						if !strings.HasSuffix(said, text) || len(said) > watchedBytes {
							t.Errorf("found at the end of %q", said)
						}
					default:
						t.Error("not found")
					}
					writeAll(t, w, text, piece) // a second time: nobody waits
				})
			}
		}
	}
}

// The input up to a found text is dropped, the rest is searched again. The first of
// several texts is found.
func TestWatchAgain(t *testing.T) {
	w := &watch{}
	writeAll(t, w, "ready of the old\n", 5)
	gone := w.await("gone\n")
	writeAll(t, w, "gone\nready", 3)
	if got := <-gone; got != "ready of the old\ngone\n" {
		t.Errorf("got %q", got)
	}
	if got := <-w.await("ready", "ended"); got != "ready" {
		t.Errorf("got %q", got)
	}
	ended := w.await("ready", "ended")
	if len(ended) > 0 {
		t.Error("found what was found before")
	}
	writeAll(t, w, ": no, it has ended, ready or not", 1000)
	if got := <-ended; got != ": no, it has ended" {
		t.Errorf("got %q", got)
	}
}

func writeAll(t *testing.T, w io.Writer, text string, piece int) {
	t.Helper()
	for len(text) > 0 {
		n := min(piece, len(text))
		if written, err := io.WriteString(w, text[:n]); written != n || err != nil {
			t.Fatalf("wrote %d of %d: %v", written, n, err)
		}
		text = text[n:]
	}
}

func TestWatchQuotesTheEnd(t *testing.T) {
	w := &watch{}
	w.await("ready")
	writeAll(t, w, strings.Repeat("#", 2*watchedBytes)+"\nlast words\n", 1000)
	if got := w.String(); len(got) > watchedBytes || !strings.HasSuffix(got, "\nlast words") {
		t.Errorf("got %d bytes that end with %q", len(got), got[len(got)-20:])
	}
}
