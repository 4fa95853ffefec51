package image

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// The least recently used entries are removed first, and those in use never.
func TestExcess(t *testing.T) {
	now := time.Unix(1e9, 0)
	all := []Entry{
		{"/c/image-new", 5, now.Add(-2 * time.Hour), false},
		{"/c/image-running", 5, now.Add(-keepFor * 2), true},
		{"/c/image-month", 5, now.Add(-keepFor - 1), false},
		{"/c/snapshot-old", 5, now.Add(-48 * time.Hour), false},
		{"/c/debian-old", 5, now.Add(-48 * time.Hour), false},
	}
	for limit, want := range map[int64][]string{
		100: {"image-month"},
		20:  {"image-month"},
		19:  {"image-month", "debian-old"},
		14:  {"image-month", "debian-old", "snapshot-old"},
		0:   {"image-month", "debian-old", "snapshot-old", "image-new"},
	} {
		var got []string
		for _, e := range excess(all, limit, now) {
			got = append(got, filepath.Base(e.Path))
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %d: got %q, want %q", limit, got, want)
		}
	}
}

// Entries that are recent or that a running process names stay, as does what belongs to
// others. What killed processes left goes.
func TestPrune(t *testing.T) {
	cache := t.TempDir()
	dirs := map[string]time.Duration{ // since their use
		"image-old": 2 * time.Hour, "image-running": 2 * time.Hour, "image-new": time.Minute, "debian-old": 31 * 24 * time.Hour,
		"snapshot-old": 2 * time.Hour, "snapshot-killed.part": time.Minute, "debian-killed.part": time.Minute, "host-killed.part": 25 * time.Hour,
		"host-live.part": 2 * time.Hour, "work-old": 31 * 24 * time.Hour,
	}
	for name, age := range dirs {
		dir := filepath.Join(cache, name)
		then := time.Now().Add(-age)
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "root"), 0o755), os.WriteFile(filepath.Join(dir, "root/file"), make([]byte, 4096), 0o600), os.Chtimes(dir, then, then)); err != nil {
			t.Fatal(err)
		}
	}
	running := exec.Command("sh", "-c", "read line; exit # "+cache+"/image-running/root.ext4")
	stdin, err := running.StdinPipe()
	if err = errors.Join(err, running.Start()); err != nil {
		t.Fatal(err)
	}
	defer func() { stdin.Close(); _ = running.Wait() }()
	names := func() (names []string) {
		entries, err := os.ReadDir(cache)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
		return names
	}
	listed, err := Prune(t.Context(), cache, 0, true)
	if err != nil || len(listed) != 6 || len(names()) != len(dirs) || listed[0].Size < 4096 {
		t.Errorf("a dry run lists %+v, %v, and leaves %q", listed, err, names())
	}
	if _, err := os.Stat(filepath.Join(cache, "host-live.part/size")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a root that is being made has a file of the cache: %v", err)
	}
	removed, err := Prune(t.Context(), cache, 0, false)
	if want := []string{"host-live.part", "image-new", "image-running", "work-old"}; err != nil || len(removed) != 6 || !slices.Equal(names(), want) {
		t.Errorf("removed %+v, %v; left are %q, want %q", removed, err, names(), want)
	}
	if !MarkUsed(filepath.Join(cache, "image-new")) || MarkUsed(filepath.Join(cache, "image-none")) {
		t.Error("an existing directory is not cached")
	}
}

func TestLimit(t *testing.T) {
	for text, want := range map[string]int64{"": 20 << 30, "0": 0, "3": 3 << 30} {
		t.Setenv("UNNEST_CACHE_GIB", text)
		if got, err := Limit(); got != want || err != nil {
			t.Errorf("%q: got %d, %v", text, got, err)
		}
	}
	t.Setenv("UNNEST_CACHE_GIB", "20GiB")
	if _, err := Limit(); err == nil || err.Error() != "UNNEST_CACHE_GIB=20GiB: want a whole number of GiB" {
		t.Errorf("got %v", err)
	}
}

// old makes an old entry of a cache, a file or a directory with one.
func old(t *testing.T, path string, dir bool) {
	t.Helper()
	file, then := path, time.Now().Add(-2*time.Hour)
	if dir {
		file = filepath.Join(path, "file")
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, make([]byte, 4096), 0o600), os.Chtimes(path, then, then)); err != nil {
		t.Fatal(err)
	}
}

// Downloads, what is made of them, and downloads that were killed belong to the cache. A removal that was killed does not stop
// the next one.
func TestPruneFiles(t *testing.T) {
	cache := t.TempDir()
	for _, name := range []string{"file-abc", "file-abc-app.jsa", ".put-123"} {
		old(t, filepath.Join(cache, name), false)
	}
	old(t, filepath.Join(cache, "image-a"), true)
	old(t, filepath.Join(cache, "image-a.gone.part"), true)
	removed, err := Prune(t.Context(), cache, 0, false)
	if err != nil || len(removed) != 4 || removed[0].Size < 4096 {
		t.Errorf("removed %+v, %v", removed, err)
	}
	if left, err := filepath.Glob(cache + "/*-*"); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A build removes what killed builds of other images left, and does not fail because something cannot be removed from the cache.
func TestBuildRemovesParts(t *testing.T) {
	cache, r := t.TempDir(), DefaultRecipe()
	for _, name := range []string{"debian-" + r.rootDigest(), "image-other.part", "debian-other.part"} {
		old(t, filepath.Join(cache, name), true)
	}
	if _, err := (&Builder{Cache: cache}).Build(t.Context(), r); err == nil {
		t.Error("an image was made of nothing")
	}
	if left, err := filepath.Glob(cache + "/*.part"); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	said := ""
	broken := &Builder{Cache: filepath.Join(cache, "[") + "/", Progress: func(step string) { said = step }}
	if err := broken.prune(t.Context()); err != nil || !strings.Contains(said, "clean the cache: ") {
		t.Errorf("got %v, said %q", err, said)
	}
}
