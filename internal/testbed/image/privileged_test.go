package image

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a test waits for things that take seconds.
const patience = 2 * time.Minute

// privileged skips the test unless privileged tests are asked for.
func privileged(t *testing.T) {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and Debian's tools: set UNNEST_PRIVILEGED=1")
	}
}

// On a full disk the error is that, and not what a tool has printed meanwhile.
func TestFullDisk(t *testing.T) {
	privileged(t)
	cache := t.TempDir()
	if err := unix.Mount("tmpfs", cache, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(cache, 0); err != nil {
			t.Error(err)
		}
	})
	b := Builder{Cache: cache}
	noise := errors.New("run mmdebstrap: exit status 25: E: apt-get failed")
	err := b.checkDisk(noise)
	if want := "the disk of " + cache + " is full: free some space, or set UNNEST_CACHE to a directory elsewhere"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := b.checkDisk(nil); err != nil {
		t.Errorf("a step that has worked: %v", err)
	}
	b.Cache = os.TempDir()
	if err := b.checkDisk(noise); !errors.Is(err, noise) {
		t.Errorf("another failure: got %v", err)
	}
}
