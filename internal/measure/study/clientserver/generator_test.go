package clientserver

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/study/server"
	"unnest.io/unnest/internal/testbed/place"
)

// generatorBench returns a bench whose load generator is a script.
func generatorBench(t *testing.T, script string) *Study {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "unnest-load"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	key := server.Key(cache)
	return &Study{Set: &machines.Set{Options: machines.Options{Binaries: dir}}, Client: place.Local{}, Instances: map[string]*server.Service{
		"NAT": {Address: "10.201.0.2", Ports: map[string]int{key: 5001}},
	}}
}

// The load begins after the CPU times were read, and these are read when the generator is
// prepared.
func TestGeneratorBegins(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	b := generatorBench(t, `echo prepared >>"`+log+`"; echo connected >&2; echo prepared >&2; read -r line && echo loaded >>"`+log+`" && echo '{"seconds":1}'`)
	c, err := b.turn(t.Context(), benchtest.Execution("NAT", cache, 0), func() error {
		content, err := os.ReadFile(log)
		if string(content) != "prepared\n" {
			t.Errorf("before the load: %q", content)
		}
		return errors.Join(err, os.WriteFile(log, []byte("read\n"), 0o600))
	})
	if err != nil {
		t.Fatal(err)
	}
	<-c.Done
	if content, err := os.ReadFile(log); err != nil || string(content) != "read\nloaded\n" {
		t.Errorf("got %q, %v", content, err)
	}
	if c.Err != nil || !bytes.Equal(c.Printed, []byte("{\"seconds\":1}\n")) {
		t.Errorf("got %q, %v", c.Printed, c.Err)
	}
}

// A generator that cannot prepare the server ends, and its line is the error. One that waits is
// killed with its execution.
func TestGeneratorFails(t *testing.T) {
	b := generatorBench(t, `echo '{"error":"SET unnest-0: connection refused"}'; exit 1`)
	c, err := b.turn(t.Context(), benchtest.Execution("NAT", cache, 0), func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Output(t.Context()); err == nil || err.Error() != "memcached: SET unnest-0: connection refused" {
		t.Errorf("got %v", err)
	}

	why := errors.New("no CPU time")
	if _, err := generatorBench(t, "echo prepared >&2; read -r line").turn(t.Context(), benchtest.Execution("NAT", cache, 0), func() error { return why }); !errors.Is(err, why) {
		t.Errorf("got %v, want %v", err, why)
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	c, err = generatorBench(t, "read -r line").turn(ctx, benchtest.Execution("NAT", cache, 0), func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Output(ctx); err == nil || !strings.Contains(err.Error(), why.Error()) {
		t.Errorf("got %v, want %v", err, why)
	}
}
