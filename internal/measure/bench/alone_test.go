package bench

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest/internal/measure/workload"
	"unnest/internal/testbed/place"
)

// serviceOf returns a configuration with one server, that of the case cache.
func serviceOf(t *testing.T, script string) (*service, *server) {
	t.Helper()
	one := newServer(t, script)
	one.key, _ = serverKey(cache)
	return &service{place: place.Local{}, servers: []*server{one}}, one
}

// A server that runs only while its client does is started for each execution, and has ended
// after it.
func TestServerAlone(t *testing.T) {
	s, one := serviceOf(t, "echo Server listening on 5001; exec sleep 61.25")
	one.command.alone = true
	if err := s.startServers(t.Context()); err != nil || one.stop != nil {
		t.Fatalf("it is started before its client: %v", err)
	}
	s.served(t.Context(), cache) // nothing to end
	var processes []string
	for range 2 {
		if err := s.serving(t.Context(), cache); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(processes, one.process) {
			t.Errorf("process %s serves twice", one.process)
		}
		processes = append(processes, one.process)
		s.served(t.Context(), cache)
		if _, err := os.Stat(filepath.Join("/proc", one.process)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("process %s lives: %v", one.process, err)
		}
	}
}

// A server that ends while its client runs is named with its last words, and started again.
func TestServerEndsInAnExecution(t *testing.T) {
	s, one := serviceOf(t, "echo Server listening on; sleep 0.1; echo ERROR the disk is full; exit 4")
	if err := s.startServers(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := one.process
	for end := time.Now().Add(time.Minute); !strings.HasSuffix(one.output.String(), serverEnd); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it has not ended: %s", one.output)
		}
	}
	why := errors.New("memcached: connection refused")
	err := s.explain(cache, why)
	if !errors.Is(err, why) || !containsAll(err.Error(), "has ended: ERROR the disk is full; exit code 4") {
		t.Errorf("got %v", err)
	}
	if err := s.serving(t.Context(), cache); err != nil || one.process == first {
		t.Errorf("it is not started again: %v", err)
	}
	if err := s.explain(cache, why); err.Error() != why.Error() {
		t.Errorf("the server runs, got %v", err)
	}
}

const kafkaCases = `name: k
suite: applications
configurations:
  - {name: NoCont, stack: vm}
  - {name: pod, stack: vm/containerd, network: localhost, drive: pod}
cases:
  - {name: kafka, workload: kafka, warmup: 1s, duration: 1s, options: {rate: "10"}, timeout: 2m}
  - {name: cache, workload: memcached, duration: 1s}
`

// Guests, containers and clients of Kafka have Java and Kafka's jars. Other clients run as before.
func TestExtraPrograms(t *testing.T) {
	spec := mustParse(t, kafkaCases)
	b := &Bench{spec: spec, options: Options{Binaries: "/bin"}}
	b.images = newImages(b)
	if !b.images.recipe.Whole || !slices.Contains(b.images.recipe.Packages, "openjdk-17-jre-headless") {
		t.Errorf("recipe %+v", b.images.recipe)
	}
	if files := filesOf(spec.Cases[0]); len(files) < 10 || filesOf(spec.Cases[1]) != nil {
		t.Errorf("files %v", files)
	}
	s := newServices(b)
	s.client, s.programs = place.Local{}, &host{inside: place.Within{Name: "programs"}}
	outside, inside := &service{}, &service{client: place.Within{Name: "pod"}}
	s.instances = map[string]*service{"NoCont": outside, "pod": inside}
	for _, tt := range []struct {
		configuration string
		at            int
		place, first  string
	}{
		{"NoCont", 0, "programs", workload.Generator}, {"NoCont", 1, "this host", "/bin/unnest-load"}, {"pod", 0, "pod", workload.Generator},
	} {
		p, command := s.clientCommand(newExecution(tt.configuration, spec.Cases[tt.at], 0))
		if p.String() != tt.place || command[0] != tt.first {
			t.Errorf("%+v: got %s on %s", tt, command[0], p)
		}
	}
	servers := s.assignPorts("").list
	if len(servers) != 2 || !servers[0].command.alone || servers[0].timeout != slowServerTimeout || servers[1].command.alone {
		t.Errorf("servers %+v", servers)
	}
}
