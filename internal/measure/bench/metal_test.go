package bench

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A directory to work in is its owner's until it is cleaned; what has no owner is
// reaped, whatever is in it.
func TestReapWork(t *testing.T) {
	cache := t.TempDir()
	path := func(name string) string { return filepath.Join(cache, workPrefix+name) }
	mine, err := claimWork(path("mine"))
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	dead, err := claimWork(path("dead"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(path("dead"), "containers/web/upper"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := dead.Close(); err != nil { // as the kernel does when the owner is killed
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(cache, "image-0"), 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second finds nothing to do
		if err := reapWork(cache); err != nil {
			t.Error(err)
		}
	}
	left, err := os.ReadDir(cache)
	if err != nil || len(left) != 2 || left[0].Name() != "image-0" || left[1].Name() != workPrefix+"mine" {
		t.Errorf("left are %v, %v; want the image and what is in use", left, err)
	}
	if _, err := lockWork(path("mine")); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("locked twice: %v", err)
	}
}
