//go:build xen

package scripts

import (
	"context"
	"errors"
	"os"
	"path"
	"testing"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/place"
)

// newPV returns a study with a PV domain on a Xen host that it boots.
func newPV(t *testing.T) (*Study, *experiment.Spec) {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root: set UNNEST_PRIVILEGED=1")
	}
	spec := benchtest.XenSpec(t, "  - {name: PV, stack: xen-pv}\n", "  - {suite: sysbench, only: [sysbench-cpu], timeout: 10m}\n")
	spec.Guest.VCPUs = 1
	choice, err := guest.ChooseAccel(guest.AccelAuto)
	if err != nil {
		t.Fatal(err)
	}
	s := New(machines.New(spec, machines.Options{Lab: "xenrestart", Binaries: "../../../../bin", Accel: choice.Accel, Progress: &benchtest.Phases{}}))
	t.Cleanup(func() {
		if err := s.Down(); err != nil {
			t.Error(err)
		}
	})
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Boot(t.Context(), s.Needs()); err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context(), spec.Configurations[0]); err != nil {
		t.Fatal(err)
	}
	return s, spec
}

// A domain that was destroyed is created again, and a Xen host that died boots again with its domain.
func TestXenRestart(t *testing.T) {
	s, spec := newPV(t)
	x := experiment.Execution{Configuration: spec.Configurations[0], Case: spec.Cases[0]}
	execute := func() (boot string, err error) {
		ctx, cancel := context.WithTimeout(t.Context(), x.Case.Timeout)
		defer cancel()
		o, err := s.Execute(ctx, x)
		if err == nil && len(o.Values) == 0 {
			t.Error("no value")
		}
		return o.Boot, err
	}
	boot, err := execute()
	if err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func() error{
		"domain": func() error {
			h := xenOf(t, s, x.Configuration)
			return place.Run(t.Context(), h.Dom0, "xl", "destroy", path.Base(h.Dir)+"-pv")
		},
		"host": func() error { return xenOf(t, s, x.Configuration).Machine.Node.Kill() },
	} {
		if err := end(); err != nil {
			t.Fatal(name, err)
		}
		if _, err := execute(); !errors.Is(err, experiment.ErrFatal) {
			t.Fatalf("%s: %v", name, err)
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(name, err)
		}
		again, err := execute()
		if err != nil || again == boot {
			t.Fatalf("%s: boot %s after %s, %v", name, again, boot, err)
		}
		boot = again
		if n := len(s.Facts().Guests); n != 2 {
			t.Errorf("%s: %d machines in the facts, want dom0 and the domain", name, n)
		}
	}
}

// xenOf returns the Xen host of a configuration, which is up.
func xenOf(t *testing.T, s *Study, c stack.Configuration) *machines.XenHost {
	t.Helper()
	h, err := s.XenHost(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return h
}
