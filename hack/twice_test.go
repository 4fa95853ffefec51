package hack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// runs is a command of test2json events: what it prints in its first run, and each later one.
type runs struct {
	first  []string
	status int // of the first run
	later  []string
	failed bool // of a later run
}

// events of a package in which TestA passes, and lines more.
func events(end string, more ...string) []string {
	all := []string{
		`{"Action":"start","Package":"p"}`,
		`{"Action":"run","Package":"p","Test":"TestA"}`,
		`{"Action":"pass","Package":"p","Test":"TestA"}`,
	}
	return append(append(all, more...), `{"Action":"`+end+`","Package":"p"}`)
}

// run of TestB, which prints a line.
func testB(end, line string) []string {
	return []string{
		`{"Action":"run","Package":"p","Test":"TestB"}`,
		fmt.Sprintf(`{"Action":"output","Package":"p","Test":"TestB","Output":%q}`, line+"\n"),
		`{"Action":"` + end + `","Package":"p","Test":"TestB"}`,
	}
}

// failing are n test functions, each with two parts that fail.
func failing(n int) (all []string) {
	for i := range n {
		for _, test := range []string{"/one", "/two", ""} {
			all = append(all, fmt.Sprintf(`{"Action":"fail","Package":"p","Test":"TestF%d%s"}`, i, test))
		}
	}
	return events("fail", all...)
}

// passing are the later runs of failing, all in one.
func passing(n int) []string {
	return []string{strings.ReplaceAll(strings.Join(failing(n), "\n"), `"fail"`, `"pass"`)}
}

// A test that fails runs again, alone. That counts only if it passes then, and if it was the
// only cause: not after a race, a killed process, a failure outside of tests, or a skip.
func TestFailedTestRunsTwice(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs what make test builds: set UNNEST_PRIVILEGED=1")
	}
	passes := append(append([]string{`{"Action":"start","Package":"p"}`}, testB("pass", "well")...), `{"Action":"pass","Package":"p"}`)
	fails := append(append([]string{`{"Action":"start","Package":"p"}`}, testB("fail", "bad again")...), `{"Action":"fail","Package":"p"}`)
	for _, tt := range []struct {
		name  string
		runs  runs
		ok    bool
		times int // it runs
		words string
	}{
		{"passes", runs{first: events("pass", testB("pass", "well")...)}, true, 1, "DONE 2 tests"},
		{"passes alone", runs{events("fail", testB("fail", "bad luck")...), 1, passes, false}, true, 2,
			"=== Failed at first, passed alone\n=== p TestB: output of the first failure\nbad luck\nAdd each to hack/flaky, unless it is fixed: the next time it fails the run.\n1 failed at first and passed alone: p TestB\n"},
		{"ten fail, with parts", runs{failing(10), 1, passing(10), false}, true, 11, "10 failed at first and passed alone: p TestF0, p TestF1"},
		{"eleven fail", runs{failing(11), 1, passing(11), false}, false, 1, "number of test failures (11) exceeds maximum (10)"},
		{"fails twice", runs{events("fail", testB("fail", "bad luck")...), 1, fails, true}, false, 2, "bad again"},
		{"skipped alone", runs{events("fail", testB("fail", "bad luck")...), 1, append(testB("skip", "no"), `{"Action":"pass","Package":"p"}`), false}, false, 2, "p TestB was skipped"},
		{"does not exist alone", runs{events("fail", testB("fail", "bad luck")...), 1, nil, false}, false, 2, "p TestB failed"},
		{"skipped", runs{first: events("pass", testB("skip", "no root")...)}, false, 1, "p TestB was skipped"},
		{"skipped without real data", runs{first: events("pass", `{"Action":"skip","Package":"p","Test":"TestOfGoogle2011"}`)}, true, 1, "warning: p TestOfGoogle2011 was skipped"},
		{"data race", runs{events("fail", testB("fail", "WARNING: DATA RACE")...), 1, passes, false}, false, 1, "data race"},
		{"data race in a process of the test", runs{events("fail", testB("fail", "it says: WARNING: DATA RACE")...), 1, passes, false}, false, 2, "p TestB has a data race"},
		{"killed", runs{events("fail", testB("fail", "bad luck")[:1]...), 1, passes, false}, false, 2, "p TestB did not end"},
		{"package fails", runs{events("fail"), 1, passes, false}, false, 2, "p failed, but none of its tests"},
		{"fails before its tests", runs{nil, 1, nil, false}, false, 1, "no test has passed"},
		{"other exit code", runs{events("pass", testB("pass", "well")...), 2, passes, false}, false, 1, "exit code"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			out, err := tt.runs.twice(t, dir)
			times, _ := os.ReadFile(filepath.Join(dir, "times"))
			if (err == nil) != tt.ok || !strings.Contains(out, tt.words) || len(times) != tt.times {
				t.Errorf("got %v after %d runs, want %v after %d and %q:\n%s", err, len(times), tt.ok, tt.times, tt.words, out)
			}
		})
	}
}

// A test that failed at first in an earlier run fails the run if it does so again.
func TestFlakyTestFailsTheNextTime(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs what make test builds: set UNNEST_PRIVILEGED=1")
	}
	passes := append(append([]string{`{"Action":"start","Package":"p"}`}, testB("pass", "well")...), `{"Action":"pass","Package":"p"}`)
	r := runs{events("fail", testB("fail", "bad luck")...), 1, passes, false}
	for list, ok := range map[string]bool{"p TestA 2026-11-28\n# p TestB\n": true, "p TestB 2026-11-28 # refused\n": false} {
		dir := t.TempDir()
		if err := errors.Join(os.Mkdir(filepath.Join(dir, "hack"), 0o755), os.WriteFile(filepath.Join(dir, "hack/flaky"), []byte(list), 0o600)); err != nil {
			t.Fatal(err)
		}
		out, err := r.twice(t, dir)
		if (err == nil) != ok || strings.Contains(out, "p TestB failed at first, as in an earlier run") == ok {
			t.Errorf("list %q: %v:\n%s", list, err, out)
		}
	}
}

// twice runs hack/test-twice in a directory. A file times there has a byte for each run.
func (r runs) twice(t *testing.T, dir string) (string, error) {
	t.Helper()
	files := map[string]string{
		"first": strings.Join(r.first, "\n"), "later": strings.Join(r.later, "\n"),
		"command": fmt.Sprintf("#!/bin/bash\necho -n x >>times; if (($#)); then cat later; exit %d; fi; cat first; exit %d\n",
			map[bool]int{true: 1}[r.failed], r.status),
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"gotestsum", "testresult"} {
		path, err := filepath.Abs("../bin/" + program)
		if err == nil {
			_, err = os.Stat(path)
		}
		if err == nil {
			err = os.Symlink(path, filepath.Join(dir, "bin", program))
		}
		if err != nil {
			t.Fatalf("%v: run make test", err)
		}
	}
	script, err := filepath.Abs("test-twice")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(script, "./command")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}
