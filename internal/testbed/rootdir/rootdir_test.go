package rootdir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// tree makes a root with a file, and links to it that lead to another file on this host.
func tree(t *testing.T) (root Dir, outside string) {
	t.Helper()
	dir := t.TempDir()
	root, outside = Dir(filepath.Join(dir, "root")), filepath.Join(dir, "host")
	inside := filepath.Join(string(root), outside)
	for path, content := range map[string]string{outside: "host", inside: "system", filepath.Join(string(root), "usr/lib/a"): "library"} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		"absolute": outside, "up": "../../../../../../../.." + outside, "twice": "/absolute", "lib": "/usr/lib", "dangling": "/none", "loop": "loop",
	} {
		if err := os.Symlink(target, filepath.Join(string(root), link)); err != nil {
			t.Fatal(err)
		}
	}
	return root, outside
}

func TestReadFollowsLinksBelowTheRoot(t *testing.T) {
	root, outside := tree(t)
	for name, want := range map[string]string{"absolute": "system", "up": "system", "twice": "system", outside: "system", "/lib/a": "library", "lib/../lib/a": "library", "../../lib/a": "library"} {
		content, err := root.ReadFile(name)
		if err != nil || string(content) != want {
			t.Errorf("%s: %q, %v; want %q", name, content, err, want)
		}
		if info, err := root.Stat(name); err != nil || info.Size() != int64(len(want)) {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if entries, err := root.ReadDir("lib"); err != nil || len(entries) != 1 {
		t.Errorf("lib: %v, %v", entries, err)
	}
	if _, err := root.Open("dangling"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("dangling: %v", err)
	}
	if _, err := root.Open("loop"); err == nil {
		t.Error("a loop of links opens")
	}
}

// An entry replaces a link, not what it leads to. Links in its directory stay below the root.
func TestEntry(t *testing.T) {
	root, outside := tree(t)
	for name, want := range map[string]string{"absolute": "absolute", "lib/b": "usr/lib/b", "new/deep/c": "new/deep/c"} {
		path, err := root.Entry(name)
		if err != nil || path != filepath.Join(string(root), want) {
			t.Errorf("%s: %s, %v; want %s", name, path, err, want)
		}
		if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, []byte("new"), 0o600)); err != nil {
			t.Error(err)
		}
	}
	for _, path := range []string{outside, filepath.Join(string(root), outside)} {
		if content, err := os.ReadFile(path); err != nil || string(content) == "new" {
			t.Errorf("%s: %q, %v", path, content, err)
		}
	}
}

func TestOnly(t *testing.T) {
	root, _ := tree(t)
	if name, err := root.Only("lib/[a-z]*"); err != nil || name != "lib/a" {
		t.Errorf("got %s, %v", name, err)
	}
	for _, pattern := range []string{"none/*", "lib/b*", "*", "lib/["} {
		if name, err := root.Only(pattern); err == nil {
			t.Errorf("%s: got %s", pattern, name)
		}
	}
}
