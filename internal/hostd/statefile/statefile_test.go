package statefile

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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

// What a process that was killed has left goes, and nothing else: another process may be writing, and a record that was moved aside stays.
func TestRemoveLeftovers(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	file := func(path string, age time.Duration) string {
		path = filepath.Join(dir, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600), os.Chtimes(path, now.Add(-age), now.Add(-age))); err != nil {
			t.Fatal(err)
		}
		return path
	}
	gone := []string{file("authority.pem.12", 2*time.Hour), file("policies/shop.json.3456", 2*time.Hour), file("guests/node1/guest.json.7", 2*time.Hour)}
	stay := []string{file("policies/shop.json", 2*time.Hour), file("policies/shop.json.quarantined", 2*time.Hour), file("policies/shop.json.99", time.Minute)}
	RemoveLeftovers(dir, now.Add(-time.Hour))
	for _, path := range gone {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s is still there", path)
		}
	}
	for _, path := range stay {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

// A file that is not there is not made.
func TestTruncate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := Truncate(path, 0); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if err := errors.Join(os.WriteFile(path, []byte("text"), 0o600), Truncate(path, 0)); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(path); err != nil || len(content) > 0 {
		t.Errorf("got %q, %v", content, err)
	}
}
