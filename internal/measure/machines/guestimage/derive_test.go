package guestimage

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/image"
)

// derivedImages are images of the cases of Kafka, whose root directory has packages but no programs.
func derivedImages(t *testing.T) (i *Images, root string) {
	t.Helper()
	all := New(benchtest.Parse(t, benchtest.KafkaCases), "/bin")
	i = &all
	i.Builder = image.Builder{Cache: t.TempDir(), Progress: func(string) {}}
	root = t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "var/lib/dpkg"), 0o700); err != nil {
		t.Fatal(err)
	}
	benchtest.Write(t, filepath.Join(root, "var/lib/dpkg/status"), "Package: java\nVersion: 17\n")
	return i, root
}

// What a case makes of its files is made again when the script, a file or a package has changed.
func TestDerivedKey(t *testing.T) {
	_, root := derivedImages(t)
	key := func(script, file string) string {
		t.Helper()
		k, err := derivedKey(root, workload.Derived{Script: script}, map[string]string{"/a.jar": file})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	seen := map[string]bool{key("one", "file-1"): true, key("two", "file-1"): true, key("one", "file-2"): true}
	benchtest.Write(t, filepath.Join(root, "var/lib/dpkg/status"), "Package: java\nVersion: 18\n")
	if seen[key("one", "file-1")] = true; len(seen) != 4 {
		t.Errorf("keys %v", seen)
	}
}

// A script that fails leaves nothing, and its error is one line.
func TestDeriveFails(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root: set UNNEST_PRIVILEGED=1")
	}
	i, root := derivedImages(t)
	cached := func(name string) string { return filepath.Join(i.Builder.Cache, "file-"+name) }
	for _, dir := range []string{"proc", "dev", "tmp", "usr/local"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	err := inRoot(t.Context(), root, workload.Derived{Script: "true", Paths: []string{"/a.jsa"}}, nil, cached)
	if err == nil || !strings.Contains(err.Error(), "No such file or directory") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(i.Builder.Cache); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
	if mounts, err := os.ReadFile("/proc/self/mounts"); err != nil || strings.Contains(string(mounts), root) {
		t.Errorf("it leaves mounts: %v", err)
	}
}

// Guests, containers and clients of Kafka have Java and Kafka's jars.
func TestExtraPrograms(t *testing.T) {
	spec := benchtest.Parse(t, benchtest.KafkaCases)
	i := New(spec, "/bin")
	if !i.Recipe.Whole || !slices.Contains(i.Recipe.Packages, "openjdk-17-jre-headless") {
		t.Errorf("recipe %+v", i.Recipe)
	}
	if files := filesOf(spec.Cases[0]); len(files) < 10 || filesOf(spec.Cases[1]) != nil {
		t.Errorf("files %v", files)
	}
}
