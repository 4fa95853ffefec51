package thishost

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/lab"
	"unnest.io/unnest/internal/testbed/place"
)

// The root of the host's mount namespace is the guests' root directory. If it were that
// of this machine, commands in containers on the host would run in this machine's user
// space.
func TestHostRoot(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and namespaces: set UNNEST_PRIVILEGED=1")
	}
	t.Setenv("UNNEST_STATE", t.TempDir())
	l, err := lab.Create("test-host")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	h, err := New(t.Context(), l, l.HostNS(), "", image.Builder{Cache: image.CacheDir()}, image.DefaultRecipe())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		h.End()
		if err := h.Clean(); err != nil {
			t.Error(err)
		}
	}()
	if want := filepath.Join(image.CacheDir(), WorkPrefix+l.ID()); h.work != want {
		t.Errorf("the work directory is %s, want %s: labs of other state directories may have the name", h.work, want)
	}
	const script = `stat -c %d:%i /; nsenter --mount=/proc/self/ns/mnt stat -c %d:%i /; ls /mnt`
	out, err := place.Output(t.Context(), h.Inside, "sh", "-c", script)
	roots := strings.Fields(string(out))
	if err != nil || len(roots) != 2 || roots[0] != roots[1] {
		t.Errorf("%v: got %q, want the same root twice", err, out)
	}
	if err := place.Run(t.Context(), h.Inside, "test", "!", "-w", "/usr"); err != nil {
		t.Errorf("the root can be written: %v", err)
	}
	if err := place.Run(t.Context(), h.Inside, "touch", "/mnt/file", "/tmp/file", "/var/lib/file"); err != nil {
		t.Error(err)
	}
}

// A container that has ended is named with its exit code and its last output, as its engine says them.
func TestContainerThatEnds(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and namespaces: set UNNEST_PRIVILEGED=1")
	}
	t.Setenv("UNNEST_STATE", t.TempDir())
	l, err := lab.Create("test-ends")
	if err != nil {
		t.Fatal(err)
	}
	builder := image.Builder{Cache: image.CacheDir(), Files: map[string]string{"/usr/local/bin/nerdctl": "../../../../bin/nerdctl"}}
	h, err := New(t.Context(), l, l.HostNS(), "", builder, image.DefaultRecipe())
	if err != nil {
		t.Fatal(errors.Join(err, l.Close()))
	}
	defer func() {
		h.End()
		if err := errors.Join(l.Close(), h.Clean()); err != nil {
			t.Error(err)
		}
	}()
	m := h.Machine()
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	in, err := m.StartContainer(t.Context(), "web", "--network", "none")
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("no server")
	if err := machine.WithContainerEnd(t.Context(), *machine.ContainerOf(in), why); err.Error() != why.Error() {
		t.Errorf("it runs: %v", err)
	}
	if err := place.Run(t.Context(), in, "sh", "-c", "echo stack smashing detected >/proc/1/fd/1"); err != nil {
		t.Fatal(err)
	}
	if err := place.Run(t.Context(), m.Place, machine.Nerdctl, "kill", "--signal", "KILL", "web"); err != nil {
		t.Fatal(err)
	}
	const want = "no server; it ended at once: container web in this host: exit code 137: stack smashing detected"
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if err = machine.WithContainerEnd(t.Context(), *machine.ContainerOf(in), why); err.Error() == want {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("got  %v\nwant %s", err, want)
		}
	}
}
