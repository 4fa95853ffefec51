package hack

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestE2E runs hack/e2e in a work tree of three test files, with a go and a make that print their
// arguments.
func TestE2E(t *testing.T) {
	repo, bin := t.TempDir(), t.TempDir()
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script, err := os.ReadFile("e2e")
	if err != nil {
		t.Fatal(err)
	}
	write(filepath.Join(repo, "hack/e2e"), string(script))
	for _, name := range []string{"go", "make"} {
		write(filepath.Join(bin, name), "#!/bin/sh\necho "+name+" \"$@\"\n")
	}
	for _, name := range []string{"cmd", "docs", "experiments"} {
		write(filepath.Join(repo, name, "x.go"), "")
	}
	write(filepath.Join(repo, "internal/e2e/pods_test.go"), "//go:build kubernetes\n\nfunc TestPods(t *testing.T) {\n")
	write(filepath.Join(repo, "internal/e2e/one_test.go"), "func TestOne(t *testing.T) {\n")
	write(filepath.Join(repo, "internal/pods/pods_test.go"), "func TestPods(t *testing.T) {\n}\nfunc TestOne(t *testing.T) {\n")
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"TestPods", "-rounds", "6"}, "make --no-print-directory kubernetes helm images\ngo test -tags kubernetes -count=1 -timeout 4h -run ^(TestPods)$ -v ./internal/e2e -rounds 6\n"},
		{[]string{"TestOne/^Modes$"}, "go test -tags  -count=1 -timeout 4h -run ^(TestOne)$/^Modes$ -v ./internal/e2e ./internal/pods\n"},
		{[]string{"Test(One|Pods)"}, "make --no-print-directory kubernetes helm images\ngo test -tags kubernetes -count=1 -timeout 4h -run ^(Test(One|Pods))$ -v ./internal/e2e\n"},
		{[]string{"TestNone"}, "e2e: no test TestNone: name a test function, as in make e2e TEST=TestKubernetes\n"},
		{[]string{""}, "e2e: no test given: name one, as in make e2e TEST=TestKubernetes\n"},
		{nil, "e2e: no test given: name one, as in make e2e TEST=TestKubernetes\n"},
	} {
		cmd := exec.Command(filepath.Join(repo, "hack/e2e"), tt.args...)
		cmd.Env = []string{"PATH=" + bin + ":/usr/bin:/bin"}
		out, err := cmd.CombinedOutput()
		if string(out) != tt.want || (err == nil) == strings.HasPrefix(tt.want, "e2e:") {
			t.Errorf("%q: %v, %s\nwant %s", tt.args, err, out, tt.want)
		}
	}
}
