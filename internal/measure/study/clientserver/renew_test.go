package clientserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/study/client"
	"unnest.io/unnest/internal/measure/study/server"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/place"
)

// newServer returns a server that runs a script of sh and is ready when it prints that.
func newServer(script string) *server.Server {
	return &server.Server{Command: server.Command{Args: []string{"sh", "-c", script}, Ready: "Server listening on"}, Timeout: server.Timeout}
}

// withServers gives each configuration two servers, which log their processes in files of dir. If dir has a
// file broken, the second server of NAT, that of stream, ends at once.
func withServers(t *testing.T, b *Study, dir string) {
	t.Helper()
	for name, to := range b.Instances {
		to.Place = place.Local{}
		for i := range 2 {
			script := fmt.Sprintf("echo $$ >>%s/%s%d; ", dir, name, i)
			if name == "NAT" && i == 1 {
				script += "[ ! -e " + dir + "/broken ] || { echo address already in use; exit 1; }; "
			}
			to.Servers = append(to.Servers, newServer(script+"echo Server listening on 500"+fmt.Sprint(i)+"; exec sleep 61.25"))
		}
		to.Servers[1].Key = server.Key(stream)
		if err := to.StartServers(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// processes returns the processes of each server that were started so far.
func processes(t *testing.T, dir string) map[string][]string {
	t.Helper()
	logs, err := filepath.Glob(dir + "/*[01]")
	if err != nil || len(logs) != 4 {
		t.Fatalf("logs %v, %v", logs, err)
	}
	all := map[string][]string{}
	for _, log := range logs {
		content, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(log)] = strings.Fields(string(content))
	}
	return all
}

// The servers of every configuration are restarted for a block. The client that was
// started in advance is killed first: it may have connected.
func TestRenew(t *testing.T) {
	b, dir := newBench(&clock{}), t.TempDir()
	withServers(t, b, dir)
	ahead := b.newClient(t.Context(), benchtest.Execution("NAT", pingPong, 1), 0, client.Pending)
	b.early = []*client.Client{ahead}
	if err := b.Renew(t.Context(), benchtest.Execution("NAT", stream, 2)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ahead.Done:
	default:
		t.Error("the client that was started ahead is still there")
	}
	if b.early != nil {
		t.Error("the client that was started ahead may have its turn")
	}
	for name, all := range processes(t, dir) {
		if len(all) != 2 {
			t.Errorf("%s was started %d times, want 2", name, len(all))
		}
	}
	broken := filepath.Join(dir, "broken")
	benchtest.Write(t, broken, "")
	if err := b.Renew(t.Context(), benchtest.Execution("NAT", stream, 3)); err != nil { // the others go on
		t.Error(err)
	}
	for range 2 { // each attempt starts it again
		_, err := b.Execute(t.Context(), benchtest.Execution("NAT", stream, 2))
		if !errors.Is(err, experiment.ErrDied) || !benchtest.ContainsAll(err.Error(), "start server", "address already in use") {
			t.Errorf("got %v; want an error that names the server", err)
		}
	}
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	if err := b.Instances["NAT"].Serving(t.Context(), stream); err != nil {
		t.Error(err)
	}
	if err := b.Down(); err != nil {
		t.Error(err)
	}
	for name, all := range processes(t, dir) {
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			if _, err := os.Stat("/proc/" + all[len(all)-1]); errors.Is(err, fs.ErrNotExist) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s outlives the study", name)
			}
		}
	}
}

// While servers restart, a client that uses UDP idles. One that uses TCP would connect to the old server.
func TestRenewStartsClient(t *testing.T) {
	overTCP := benchtest.Case("tcp_rr", "sockperf", workload.TCP)
	for _, tt := range []struct {
		first experiment.Case
		early int
	}{{pingPong, 1}, {overTCP, 0}, {stream, 0}} {
		b := newBench(&clock{})
		if err := b.Renew(t.Context(), benchtest.Execution("NAT", tt.first, 0)); err != nil {
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
	s := &machine.Machine{Gone: gone, Died: func() error {
		select {
		case <-gone:
			return died
		default:
			return nil
		}
	}}
	b := New(machines.New(&experiment.Spec{}, machines.Options{}))
	b.Add("node1", s)
	b.Instances["NAT"] = &server.Service{Machines: machine.List{s}, Place: silent{}, Servers: []*server.Server{newServer("")}}
	defer func() { _ = b.Instances["NAT"].Leave() }()
	time.AfterFunc(100*time.Millisecond, func() { close(gone) })
	if err := b.Renew(t.Context(), experiment.Execution{}); !errors.Is(err, died) || !errors.Is(err, experiment.ErrFatal) {
		t.Errorf("got %v", err)
	}
}

// silent is a place whose commands print nothing and run until ctx ends.
type silent struct{ place.Local }

func (silent) Start(ctx context.Context, _ place.Command) (place.Process, error) {
	return benchtest.Process(func() error { <-ctx.Done(); return ctx.Err() }), nil
}
