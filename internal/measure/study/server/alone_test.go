package server

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/testbed/place"
)

// serviceOf returns a configuration with one server, that of the case cache.
func serviceOf(t *testing.T, script string) (*Service, *Server) {
	t.Helper()
	one := newServer(t, script)
	one.Key = Key(cache)
	return &Service{Place: place.Local{}, Servers: []*Server{one}}, one
}

// A server that runs only while its client does is started for each execution, and has ended
// after it.
func TestServerAlone(t *testing.T) {
	s, one := serviceOf(t, "echo Server listening on 5001; exec sleep 61.25")
	one.Command.Alone = true
	if err := s.StartServers(t.Context()); err != nil || one.stop != nil {
		t.Fatalf("it is started before its client: %v", err)
	}
	s.Served(t.Context(), cache) // nothing to end
	var processes []string
	for range 2 {
		if err := s.Serving(t.Context(), cache); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(processes, one.process) {
			t.Errorf("process %s serves twice", one.process)
		}
		processes = append(processes, one.process)
		s.Served(t.Context(), cache)
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // until its parent has reaped it
			_, err := os.Stat(filepath.Join("/proc", one.process))
			if errors.Is(err, os.ErrNotExist) {
				break
			}
			if err != nil || time.Now().After(end) {
				t.Fatalf("process %s lives: %v", one.process, err)
			}
		}
	}
}

// A server that ends while its client runs is named with its last words, and started again.
func TestServerEndsInAnExecution(t *testing.T) {
	s, one := serviceOf(t, "echo Server listening on; sleep 0.1; echo ERROR the disk is full; exit 4")
	if err := s.StartServers(t.Context()); err != nil {
		t.Fatal(err)
	}
	first := one.process
	for end := time.Now().Add(time.Minute); !strings.HasSuffix(one.output.String(), serverEnd); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it has not ended: %s", one.output)
		}
	}
	why := errors.New("memcached: connection refused")
	err := s.Explain(cache, why)
	if !errors.Is(err, why) || !benchtest.ContainsAll(err.Error(), "has ended: ERROR the disk is full; exit code 4") {
		t.Errorf("got %v", err)
	}
	if err := s.Serving(t.Context(), cache); err != nil || one.process == first {
		t.Errorf("it is not started again: %v", err)
	}
	if err := s.Explain(cache, why); err.Error() != why.Error() {
		t.Errorf("the server runs, got %v", err)
	}
}
