package statefile

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file is replaced whole, by one that only root can read. One that cannot be written
// leaves the earlier one and no other file.
func TestWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "file.json")
	for _, want := range []int{1, 2} {
		if err := Write(path, want); err != nil {
			t.Fatal(err)
		}
	}
	if err := Write(path, func() {}); err == nil {
		t.Error("what has no JSON was written")
	}
	var got int
	content, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(content, &got)
	}
	info, statErr := os.Stat(path)
	files, listErr := os.ReadDir(filepath.Dir(path))
	if err != nil || statErr != nil || listErr != nil {
		t.Fatal(err, statErr, listErr)
	}
	if got != 2 || info.Mode().Perm() != 0o600 || len(files) != 1 {
		t.Errorf("got %d with mode %v among %d files, want 2 with mode 0600 alone", got, info.Mode(), len(files))
	}
	if err := os.Mkdir(filepath.Join(filepath.Dir(path), "dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(filepath.Dir(path), "dir"), 3); err == nil {
		t.Error("a directory was replaced")
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 2 {
		t.Errorf("a write that has failed leaves %v, %v", files, err)
	}
}

// An error of a lock names the directory.
func TestLockNamesDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	if err := WhileLocked(dir, func() error { return nil }); err == nil || !strings.HasPrefix(err.Error(), "lock directory "+dir+": ") {
		t.Errorf("got %v", err)
	}
}
