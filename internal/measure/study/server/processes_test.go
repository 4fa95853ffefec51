package server

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/place"
)

var (
	stream = benchtest.Case("tcp_stream", "iperf3", workload.TCP)
	cache  = benchtest.Case("memcached", "memcached", "")
)

// The CPU time of an application's server, and of its VM as this host sees it, are divided by
// the requests. This process stands for the VM.
func TestProcessTimes(t *testing.T) {
	busy := newServer(t, "echo Server listening on 5001; while :; do :; done")
	busy.Key = Key(cache)
	vm := &machine.Machine{Node: &fleet.Node{Guest: &guest.Guest{PID: os.Getpid()}}}
	s := &Service{Place: place.Local{}, Servers: []*Server{newServer(t, ""), busy}, Machines: machine.List{vm, vm}}
	defer func() { s.meter.Stop() }()
	if err := s.startServer(t.Context(), busy); err != nil {
		t.Fatal(err)
	}
	before, err := s.ProcessTimes(t.Context(), cache)
	if err != nil {
		t.Fatal(err)
	}
	var spent []workload.Value
	var late *ProcessTimes
	for end := time.Now().Add(time.Minute); len(spent) == 0 || spent[0].Value+spent[1].Value == 0 || spent[3].Value < 1e5; {
		if time.Now().After(end) {
			t.Fatalf("spent %v; want CPU time of both processes", spent)
		}
		if late, err = s.ProcessTimes(t.Context(), cache); err != nil {
			t.Fatal(err)
		}
		if spent, err = late.PerOperation(*before, 1); err != nil || len(spent) != 5 {
			t.Fatalf("got %v, %v", spent, err)
		}
	}
	for i, name := range []string{"vm_usr", "vm_sys", "vm_guest", "server_usr", "server_sys"} {
		if spent[i].Metric != name {
			t.Errorf("got %v, want %s", spent[i], name)
		}
	}
	if err := s.startServer(t.Context(), busy); err != nil { // another process
		t.Fatal(err)
	}
	after, err := s.ProcessTimes(t.Context(), cache)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := after.PerOperation(*late, 1); err == nil || !strings.Contains(err.Error(), "server's CPU time") {
		t.Errorf("got %v, %v; want an error, the server is another process", got, err)
	}
}

// Other workloads have no such figures, and configurations on this host no VM.
func TestProcessTimesOfOthers(t *testing.T) {
	s := &Service{Place: place.Local{}, Servers: []*Server{newServer(t, "")}}
	s.Servers[0].Key = Key(stream)
	if got, err := s.ProcessTimes(t.Context(), stream); got != nil || err != nil {
		t.Errorf("iperf3: got %+v, %v", got, err)
	}
	if got, err := (machine.List{&machine.Machine{}}).VMTimes(); got != nil || err != nil {
		t.Errorf("this host: got %+v, %v", got, err)
	}
	values, err := ProcessTimes{}.PerOperation(ProcessTimes{}, 10)
	if err != nil || len(values) != 2 || values[0].Metric != "server_usr" {
		t.Errorf("got %v, %v; want only the server's", values, err)
	}
}

// withBusybox lets the scripts of servers find the programs of this host under the name of
// busybox, which it need not have.
func withBusybox(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "busybox"), []byte("#!/bin/sh\nexec \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// applicationServer returns a server of memcached on a port whose program is another one.
func applicationServer(t *testing.T, port int, program ...string) *Server {
	t.Helper()
	w := cache.Workload()
	s := newServer(t, "")
	args := w.Server(cache.Params, workload.Endpoint{Port: port})
	s.Command.Args = append(args[:slices.Index(args, w.Programs()[0])], program...)
	s.Command.Ready, s.Command.Name = w.Ready(), fmt.Sprintf("memcached on port %d", port)
	return s
}

// A server of an application is ready when something listens on its port. A port that another
// program uses is one clear line.
func TestApplicationServer(t *testing.T) {
	withBusybox(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	to := &Service{Place: place.Local{}}
	err = to.startServer(t.Context(), applicationServer(t, port, "sleep", "61.25"))
	want := fmt.Sprintf("start server memcached on port %d on this host: it ended at once: port %d is in use by another program; exit code 98", port, port)
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	l.Close()
	err = to.startServer(t.Context(), applicationServer(t, port, "sh", "-c", "echo cannot allocate memory; exit 71"))
	if err == nil || !benchtest.ContainsAll(err.Error(), "it ended at once: cannot allocate memory", "exit code 71") {
		t.Errorf("got %v", err)
	}
	s := applicationServer(t, port, "sleep", "61.25")
	listens := make(chan net.Listener, 1)
	time.AfterFunc(200*time.Millisecond, func() {
		l, _ := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		listens <- l
	})
	if err := to.startServer(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if l := <-listens; l == nil {
		t.Error("the server was ready before anything listened")
	} else {
		l.Close()
	}
	comm, err := os.ReadFile(filepath.Join("/proc", s.process, "comm"))
	if err != nil || string(comm) != "sleep\n" {
		t.Errorf("process %s is %q, %v; want the server", s.process, comm, err)
	}
}
