//go:build suites

package suite

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

var capture = flag.Bool("capture", false, "let TestCasesRun store the output of the cases of cpu, multicore and java in testdata")

// TestCasesRun runs every case twice in the quick profile, as an experiment does. It needs
// all tools and takes minutes: go test -tags suites.
func TestCasesRun(t *testing.T) {
	r := Resources{VCPUs: 2, Memory: gib}
	for _, c := range All() {
		if c.Server != nil {
			continue // a bench starts it: e2e.TestTrade
		}
		t.Run(c.Suite+"/"+c.Name, func(t *testing.T) {
			for _, tool := range c.Tools {
				if _, err := exec.LookPath(tool); err != nil {
					t.Fatalf("%v: install %s", err, c.Package)
				}
			}
			checkFiles(t, c)
			dir := t.TempDir()
			if c.Prepare != nil {
				bash(t, dir, c.Prepare(Quick, r))
			}
			before := list(t, dir)
			for range 2 {
				out := bash(t, dir, c.Run(Quick, r))
				values, err := c.Parse(out)
				if err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				checkValues(t, c, values)
				if *capture && slices.Contains([]string{"cpu", "multicore", "java"}, c.Suite) {
					if err := os.WriteFile(filepath.Join("testdata", c.Name+".txt"), out, 0o644); err != nil {
						t.Fatal(err)
					}
				}
			}
			if after := list(t, dir); !slices.Equal(before, after) {
				t.Errorf("Run left the directory with %v, found it with %v", after, before)
			}
		})
	}
}

func checkFiles(t *testing.T, c Case) {
	t.Helper()
	for _, f := range c.Files {
		data, err := os.ReadFile(f.Path)
		if err != nil {
			t.Fatalf("%v: fetch %s from Maven Central", err, f.Maven)
		}
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != f.SHA256 {
			t.Fatalf("%s: SHA-256 is %x, want %s", f.Path, sum, f.SHA256)
		}
	}
}

func list(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		names = append(names, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
