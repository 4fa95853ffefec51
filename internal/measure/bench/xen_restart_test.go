//go:build xen

package bench

import (
	"context"
	"errors"
	"os"
	"path"
	"testing"

	"unnest/internal/measure/experiment"
	"unnest/internal/testbed/guest"
	"unnest/internal/testbed/place"
)

// upPV brings up a PV domain on a Xen host that it boots.
func upPV(t *testing.T, lab string) (*scripts, *experiment.Spec, guest.Accel) {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root: set UNNEST_PRIVILEGED=1")
	}
	spec := xenSpec(t, "  - {name: PV, stack: xen-pv}\n", "  - {suite: sysbench, only: [sysbench-cpu], timeout: 10m}\n")
	spec.Guest.VCPUs = 1
	choice, err := guest.ChooseAccel(guest.AccelAuto)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Up(t.Context(), spec, Options{Lab: lab, Binaries: "../../../bin", Accel: choice.Accel, Progress: &names{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Down(); err != nil {
			t.Error(err)
		}
	})
	return r.(*scripts), spec, choice.Accel
}

// A domain that was destroyed is created again, and a Xen host that died boots again with its domain.
func TestXenRestart(t *testing.T) {
	s, spec, _ := upPV(t, "xenrestart")
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
			h := s.xens[xenKey]
			return place.Run(t.Context(), h.Dom0, "xl", "destroy", path.Base(h.Dir)+"-pv")
		},
		"host": func() error { return s.xens[xenKey].dom0.node.Kill() },
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
		if n := len(s.facts.Guests); n != 2 {
			t.Errorf("%s: %d machines in the facts, want dom0 and the domain", name, n)
		}
	}
}
