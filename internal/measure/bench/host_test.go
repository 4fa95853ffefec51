package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unnest/internal/testbed/guest"
	"unnest/internal/testbed/lab"
	"unnest/internal/testbed/place"
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
	h, err := newHost(t.Context(), l, guest.Builder{Cache: guest.CacheDir()}, guest.DefaultRecipe())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		h.end()
		if err := h.clean(); err != nil {
			t.Error(err)
		}
	}()
	if want := filepath.Join(guest.CacheDir(), workPrefix+l.ID()); h.work != want {
		t.Errorf("the work directory is %s, want %s: labs of other state directories may have the name", h.work, want)
	}
	const script = `stat -c %d:%i /; nsenter --mount=/proc/self/ns/mnt stat -c %d:%i /; ls /mnt`
	out, err := place.Output(t.Context(), h.inside, "sh", "-c", script)
	roots := strings.Fields(string(out))
	if err != nil || len(roots) != 2 || roots[0] != roots[1] {
		t.Errorf("%v: got %q, want the same root twice", err, out)
	}
	if err := place.Run(t.Context(), h.inside, "test", "!", "-w", "/usr"); err != nil {
		t.Errorf("the root can be written: %v", err)
	}
	if err := place.Run(t.Context(), h.inside, "touch", "/mnt/file", "/tmp/file", "/var/lib/file"); err != nil {
		t.Error(err)
	}
}
