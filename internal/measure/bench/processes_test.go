package bench

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/workload"
	"unnest/internal/testbed/fleet"
	"unnest/internal/testbed/guest"
	"unnest/internal/testbed/place"
)

var cache = newCase("memcached", "memcached", "")

// The CPU time of an application's server, and of its VM as this host sees it, are divided by
// the requests. This process stands for the VM.
func TestProcessTimes(t *testing.T) {
	busy := newServer(t, "echo Server listening on 5001; while :; do :; done")
	busy.key, _ = serverKey(cache)
	vm := &machine{node: &fleet.Node{Guest: &guest.Guest{PID: os.Getpid()}}}
	s := &service{place: place.Local{}, servers: []*server{newServer(t, ""), busy}, machines: machines{vm, vm}}
	defer func() { s.meter.stop() }()
	if err := s.startServer(t.Context(), busy); err != nil {
		t.Fatal(err)
	}
	before, err := s.processTimes(t.Context(), cache)
	if err != nil {
		t.Fatal(err)
	}
	var spent []workload.Value
	var late *processTimes
	for end := time.Now().Add(time.Minute); len(spent) == 0 || spent[0].Value+spent[1].Value == 0 || spent[3].Value < 1e5; {
		if time.Now().After(end) {
			t.Fatalf("spent %v; want CPU time of both processes", spent)
		}
		if late, err = s.processTimes(t.Context(), cache); err != nil {
			t.Fatal(err)
		}
		if spent, err = late.perOperation(*before, 1); err != nil || len(spent) != 5 {
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
	after, err := s.processTimes(t.Context(), cache)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := after.perOperation(*late, 1); err == nil || !strings.Contains(err.Error(), "server's CPU time") {
		t.Errorf("got %v, %v; want an error, the server is another process", got, err)
	}
}

// Other workloads have no such figures, and configurations on this host no VM.
func TestProcessTimesOfOthers(t *testing.T) {
	s := &service{place: place.Local{}, servers: []*server{newServer(t, "")}}
	s.servers[0].key, _ = serverKey(stream)
	if got, err := s.processTimes(t.Context(), stream); got != nil || err != nil {
		t.Errorf("iperf3: got %+v, %v", got, err)
	}
	if got, err := (machines{&machine{}}).vmTimes(); got != nil || err != nil {
		t.Errorf("this host: got %+v, %v", got, err)
	}
	values, err := processTimes{}.perOperation(processTimes{}, 10)
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
func applicationServer(t *testing.T, port int, program ...string) *server {
	t.Helper()
	w := lookup(cache)
	s := newServer(t, "")
	args := w.Server(cache.Params, workload.Endpoint{Port: port})
	s.command.args = append(args[:slices.Index(args, w.Programs()[0])], program...)
	s.command.ready, s.command.name = w.Ready(), fmt.Sprintf("memcached on port %d", port)
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
	to := &service{place: place.Local{}}
	err = to.startServer(t.Context(), applicationServer(t, port, "sleep", "61.25"))
	want := fmt.Sprintf("start server memcached on port %d: it ended at once: port %d is in use by another program; exit code 98", port, port)
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	l.Close()
	err = to.startServer(t.Context(), applicationServer(t, port, "sh", "-c", "echo cannot allocate memory; exit 71"))
	if err == nil || !containsAll(err.Error(), "it ended at once: cannot allocate memory", "exit code 71") {
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

// On this host the load generator is next to unnest, in a pod where the guest's image has it.
func TestClientCommand(t *testing.T) {
	key, _ := serverKey(cache)
	pod := place.Within{Name: "pod"}
	s := &services{Bench: &Bench{options: Options{Binaries: "/opt/unnest"}}, client: place.Local{}, instances: map[string]*service{
		"NAT": {address: "10.201.0.2", ports: map[string]int{key: 5001}}, "SameNode": {address: loopback, ports: map[string]int{key: 5002}, client: pod},
	}}
	for name, want := range map[string]string{
		"NAT": "/opt/unnest/unnest-load memcached -target 10.201.0.2:5001 ", "SameNode": "/usr/local/bin/unnest-load memcached -target 127.0.0.1:5002 ",
	} {
		p, args := s.clientCommand(newExecution(name, cache, 0))
		if !strings.HasPrefix(strings.Join(args, " "), want) || (p.String() == "pod") != (name == "SameNode") {
			t.Errorf("%s: %q in %s, want %s", name, args, p, want)
		}
	}
	s.client = place.Within{Name: "clients of the lab"}
	e := newExecution("NAT", cache, 0)
	if p, _ := s.clientCommand(e); p.String() != "clients of the lab" {
		t.Errorf("a VM is loaded from %s", p)
	}
	e.Configuration.Host = "ssh://192.0.2.1"
	if p, _ := s.clientCommand(e); p.String() != "this host" {
		t.Errorf("a machine over SSH is loaded from %s, want the network of this process", p)
	}
}

const twoApplications = `name: two
suite: applications
configurations: [{name: NoCont, stack: vm}, {name: NAT, stack: vm/containerd, network: nat}]
cases: [{name: memcached, workload: memcached, duration: 1s}, {name: nginx, workload: nginx, duration: 1s, options: {rate: 10}}]
`

// The containers of guests and of machines over SSH have the programs of the cases, and the load
// generator if clients run there. Other studies, and those without such containers, share the usual image.
func TestApplicationImages(t *testing.T) {
	overSSH := strings.Replace(twoApplications, "vm/containerd, network: nat", "ssh/docker, network: nat, host: 'ssh://h'", 1)
	for _, text := range []string{twoApplications, strings.Replace(overSSH, "{name: NoCont, stack: vm}, ", "", 1)} {
		if got, want := contained(mustParse(t, text)), []string{"/usr/bin/memcached", "/usr/sbin/nginx"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for name, want := range map[string][]string{
		"applications-pod":       {"/usr/bin/memcached", "/usr/sbin/nginx", workload.Generator},
		"applications-pod-kafka": {"/usr/lib/jvm/java-17-openjdk-amd64/bin/java", workload.Generator},
	} {
		if got := contained(open(t, name)); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	for _, others := range []*experiment.Spec{open(t, "quickstart"), mustParse(t, strings.Replace(twoApplications, "vm/containerd", "metal/containerd", 1))} {
		if got := contained(others); got != nil {
			t.Errorf("%s: got %q", others.Name, got)
		}
	}
	if a, b := newImages(&Bench{spec: open(t, "quickstart")}).recipe, guest.DefaultRecipe(); !slices.Equal(a.Image, b.Image) {
		t.Errorf("quickstart: its containers have %q, want %q", a.Image, b.Image)
	}
	names := func(spec *experiment.Spec) (names []string) {
		for _, m := range Metrics(spec) {
			names = append(names, m.Name)
		}
		return names
	}
	if got := names(mustParse(t, twoApplications)); !slices.Contains(got, "vm_usr") || !slices.Contains(got, "host_usr") {
		t.Errorf("got %q", got)
	}
	if got := names(open(t, "quickstart")); slices.Contains(got, "server_usr") {
		t.Errorf("quickstart: got %q", got)
	}
}
