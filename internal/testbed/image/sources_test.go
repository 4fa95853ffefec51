package image

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// copied returns the content of a file to add.
func copied(t *testing.T, s source) string {
	t.Helper()
	var out strings.Builder
	if err := s.copyTo(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// A file to add is never kept in memory as a whole. If it changes while the image is made, the
// image is not made: it would have the digest of another one.
func TestSourceIsNotKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large")
	f, err := os.Create(path)
	if err == nil {
		err = errors.Join(f.Truncate(64<<20), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	b := Builder{Files: map[string]string{"/large": path}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	files, err := b.sources(AMD64)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DefaultRecipe().Digest(sums(files)); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := addSources(root, files); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 8<<20 {
		t.Errorf("%d bytes were allocated for a file of %d", allocated, 64<<20)
	}
	if info, err := os.Stat(filepath.Join(root, "large")); err != nil || info.Size() != 64<<20 {
		t.Errorf("the file is %v, %v", info, err)
	}
	if err := os.WriteFile(path, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := addSources(root, files); err == nil || !strings.Contains(err.Error(), "add /large to the guest image: "+path+" has changed meanwhile") {
		t.Errorf("got %v", err)
	}
}

// Contents are files of an image, also in place of those of Files, and part of its digest.
func TestContents(t *testing.T) {
	file := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(file, []byte("from a file"), 0o755); err != nil {
		t.Fatal(err)
	}
	digest := func(contents map[string][]byte) string {
		b := Builder{Files: map[string]string{"/bin/a": file, "/bin/b": file}, Contents: contents}
		files, err := b.sources(AMD64)
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range contents {
			if got := copied(t, files[path]); got != string(want) {
				t.Errorf("%s is %q, want %q", path, got, want)
			}
		}
		if got := copied(t, files["/bin/a"]); got != "from a file" {
			t.Errorf("/bin/a is %q", got)
		}
		d, err := DefaultRecipe().Digest(sums(files))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if one, other := digest(map[string][]byte{"/bin/b": []byte("1")}), digest(map[string][]byte{"/bin/b": []byte("2")}); one == other {
		t.Errorf("images of different contents have the digest %s", one)
	}
}
