// Package house checks what the documentation says of the code, and that the code stays small.
package house

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// root is the work tree.
const root = "../.."

// module is the path of our module, with a slash.
const module = "unnest.io/unnest/"

// pkg is a package of ours, as go list prints it.
type pkg struct {
	ImportPath string
	Imports    []string // without those of tests
}

// path returns the directory of the package in the work tree.
func (p pkg) path() string { return strings.TrimPrefix(p.ImportPath, module) }

// output runs a command in the work tree and returns its standard output.
func output(name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	return cmd.Output()
}

// listed is what packages has returned. The tests run one after another.
var listed []pkg

// packages returns all packages of ours.
func packages() ([]pkg, error) {
	if listed != nil {
		return listed, nil
	}
	out, err := output("go", "list", "-json=ImportPath,Imports", "./...")
	if err != nil {
		return nil, err
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		switch err := dec.Decode(&p); {
		case errors.Is(err, io.EOF):
			return listed, nil
		case err != nil:
			return nil, err
		}
		listed = append(listed, p)
	}
}

// files returns the paths of all files of the work tree that git does not ignore.
func files() ([]string, error) {
	// Another user may own the work tree, so git is told that it is safe.
	out, err := output("git", "-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "--deduplicate")
	if err != nil {
		return nil, err
	}
	var all []string
	for line := range strings.Lines(string(out)) {
		path := strings.TrimSuffix(line, "\n")
		if _, err := os.Lstat(filepath.Join(root, path)); err == nil { // else it is deleted and not committed
			all = append(all, path)
		}
	}
	return all, nil
}

// must returns v, or ends the test if err is not nil.
func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// read returns the content of a file of the work tree.
func read(t *testing.T, path string) string {
	t.Helper()
	return string(must(os.ReadFile(filepath.Join(root, path)))(t))
}
