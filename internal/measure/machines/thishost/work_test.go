package thishost

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// A work directory stays as long as its owner lives; one without an owner is removed
// with everything in it.
func TestCleanWork(t *testing.T) {
	cache := t.TempDir()
	path := func(name string) string { return filepath.Join(cache, WorkPrefix+name) }
	mine, err := ClaimWork(path("mine"))
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	dead, err := ClaimWork(path("dead"))
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
	for _, tt := range []struct {
		dryRun bool
		want   []string
	}{{true, []string{path("dead")}}, {false, []string{path("dead")}}, {false, nil}} {
		if got, err := CleanWork(cache, tt.dryRun); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("dry run %v: removed %v, %v; want %v", tt.dryRun, got, err, tt.want)
		}
	}
	left, err := os.ReadDir(cache)
	if err != nil || len(left) != 2 || left[0].Name() != "image-0" || left[1].Name() != WorkPrefix+"mine" {
		t.Errorf("left are %v, %v; want the image and the directory in use", left, err)
	}
	if _, err := lockWork(path("mine")); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("locked twice: %v", err)
	}
}

// A work directory that was removed and made again is not the one that was opened.
func TestSameFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "work")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := sameFile(f, dir); err != nil {
		t.Error(err)
	}
	if err := errors.Join(os.Remove(dir), os.Mkdir(dir+".new", 0o700), os.Rename(dir+".new", dir)); err != nil {
		t.Fatal(err)
	}
	if err := sameFile(f, dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
}
