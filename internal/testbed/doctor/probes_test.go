package doctor

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/vishvananda/netns"
)

func TestOutputTakesBothOutputsAndFailure(t *testing.T) {
	out, err := output(t.Context(), "/bin/sh", "-c", "echo one; echo two >&2")
	if err != nil || out != "one\ntwo\n" {
		t.Errorf("got %q, %v", out, err)
	}
	if _, err := output(t.Context(), "/bin/sh", "-c", "exit 3"); err == nil {
		t.Error("exit 3: got no error")
	}
}

func TestDial(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	if err := dial(socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no socket: got %v", err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	if err := dial(socket); err != nil {
		t.Errorf("listening socket: got %v", err)
	}
}

// The machine of the privileged tests must have everything that the quick start
// requires. The probes must not change the namespace of the process.
func TestExamineThisMachine(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("set UNNEST_PRIVILEGED=1 to run tests as root")
	}
	before := currentNamespace(t)
	checks := Examine(t.Context(), System(t.TempDir()))
	if unmet := Unmet(checks); len(unmet) > 0 {
		t.Errorf("unmet here: %v", unmet)
	}
	for _, c := range checks {
		t.Logf("%-22s %-8s %s", c.Name, c.State, c.Found)
		if c.State != OK && c.Remedy == "" {
			t.Errorf("%s is %s without a remedy", c.Name, c.State)
		}
	}
	for _, name := range []string{"ebpf", "nftables", "veth"} {
		i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == name })
		if checks[i].State != OK {
			t.Errorf("%s: %s", name, checks[i].Found)
		}
	}
	if after := currentNamespace(t); !after.Equal(before) {
		t.Errorf("network namespace %s after, %s before", after, before)
	}
}

func currentNamespace(t *testing.T) netns.NsHandle {
	t.Helper()
	ns, err := netns.Get()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return ns
}

func TestAddLinkRefusesUnknownKind(t *testing.T) {
	if err := (namespace{}).AddLink("tunnel"); err == nil {
		t.Error("got no error")
	}
}
