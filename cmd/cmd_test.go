// Package cmd tests what the programs say to a person at a shell.
package cmd

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// build builds programs as `make build` does, which shares the compiler's cache, and returns their directory.
func build(t *testing.T, programs ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	c := exec.Command("go", append([]string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", dir + "/"}, programs...)...)
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", c, err, out)
	}
	return dir
}

// call runs a program with more variables in its environment.
func call(t *testing.T, environ []string, path string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs strings.Builder
	c := exec.Command(path, args...)
	c.Env, c.Stdout, c.Stderr = append(os.Environ(), environ...), &out, &errs
	exit := (*exec.ExitError)(nil)
	if err := c.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), out.String(), errs.String()
}

// Help goes to the standard output, fits a terminal of 80 columns and succeeds. A wrong argument is a line on stderr that names the program.
func TestHelp(t *testing.T) {
	dir := build(t, "./unnest-cni", "./unnest-conformance", "./unnest-kube", "./unnest-localhost", "./unnest-volume")
	for _, command := range []string{
		"unnest-cni", "unnest-cni renew", "unnest-cni credentials", "unnest-cni install", "unnest-cni reclaim", "unnest-cni docker-driver",
		"unnest-conformance", "unnest-conformance churn", "unnest-kube", "unnest-localhost", "unnest-localhost check", "unnest-volume", "unnest-volume driver",
	} {
		words := strings.Fields(command)
		program := filepath.Join(dir, words[0])
		for _, help := range []string{"-h", "--help"} {
			code, out, errs := call(t, nil, program, append(words[1:], help)...)
			if code != 0 || errs != "" || !strings.Contains(out, command) {
				t.Errorf("%s %s: exit code %d, printed %q, on stderr %q", command, help, code, out, errs)
			}
			for line := range strings.Lines(out) {
				line = strings.ReplaceAll(strings.TrimSuffix(line, "\n"), "\t", "    ") // tabs stand at column 4
				if n := utf8.RuneCountInString(line); n > 80 {
					t.Errorf("%s %s has %d columns: %s", command, help, n, line)
				}
			}
		}
		for _, wrong := range []string{"--colour", "colour"} {
			code, out, errs := call(t, nil, program, append(words[1:], wrong)...)
			if code != 2 || out != "" || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, words[0]+": ") && !strings.HasPrefix(errs, command+": ") {
				t.Errorf("%s %s: exit code %d, printed %q, on stderr %q", command, wrong, code, out, errs)
			}
		}
	}
}

// A runtime gets what the CNI specification says, whatever the arguments.
func TestPluginsAnswerRuntimes(t *testing.T) {
	dir := build(t, "./unnest-cni")
	plugin := filepath.Join(dir, "brfusion")
	if err := os.Symlink("unnest-cni", plugin); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {"--help"}} {
		code, out, errs := call(t, []string{"CNI_COMMAND=VERSION", "CNI_PATH=/"}, plugin, args...)
		if code != 0 || !strings.Contains(out, `"supportedVersions":[`) || errs != "" {
			t.Errorf("VERSION with %q: exit code %d, printed %q, on stderr %q", args, code, out, errs)
		}
	}
	for _, name := range []string{"CNI_COMMAND=VERSION", "CNI_COMMAND="} {
		code, out, errs := call(t, []string{name}, filepath.Join(dir, "unnest-cni"))
		if code != 1 || !strings.Contains(out, `"code": 4`) || !strings.Contains(errs, "unknown CNI plugin") {
			t.Errorf("%s by another name: exit code %d, printed %q, on stderr %q", name, code, out, errs)
		}
	}
}
