package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// event is one of test2json's.
type event struct {
	Action, Package, Test, Output string
}

// test is a test function with all its parts.
type test struct {
	ends    []string // an Action for each time that it ended
	running bool
	output  strings.Builder // up to its first end
}

func (t *test) failed() bool { return slices.Contains(t.ends, "fail") }

func (t *test) passed() bool { return len(t.ends) > 0 && t.ends[len(t.ends)-1] == "pass" }

// result is that of all runs, in the order in which they ran.
type result struct {
	tests    map[string]*test // by package and name
	failures map[string]bool  // packages in whose present run a test has failed
	skipped  []string
	problems []string
}

const race = "WARNING: DATA RACE"

func read(in io.Reader) (*result, error) {
	r := &result{tests: map[string]*test{}, failures: map[string]bool{}}
	for events := json.NewDecoder(in); ; {
		var e event
		if err := events.Decode(&e); errors.Is(err, io.EOF) {
			return r, nil
		} else if err != nil {
			return nil, err
		}
		if e.Test == "" {
			r.addPackage(e)
		} else {
			r.addTest(e)
		}
	}
}

func (r *result) addPackage(e event) {
	switch e.Action {
	case "start":
		r.failures[e.Package] = false
	case "output":
		if strings.Contains(e.Output, race) {
			r.problem("%s has a data race", e.Package)
		}
	case "pass", "fail":
		// A process that is killed ends no test, and begins no further ones.
		killed := r.end(e.Package)
		if e.Action == "fail" && !killed && !r.failures[e.Package] {
			r.problem("%s failed, but none of its tests", e.Package)
		}
	}
}

// end reports whether tests of a package are running, and has none run afterwards.
func (r *result) end(pkg string) (running bool) {
	for name, t := range r.tests {
		if t.running && strings.HasPrefix(name, pkg+" ") {
			r.problem("%s did not end", name)
			t.running, running = false, true
		}
	}
	return running
}

func (r *result) addTest(e event) {
	function, _, part := strings.Cut(e.Test, "/")
	name := e.Package + " " + function
	t := r.tests[name]
	if t == nil {
		t = &test{}
		r.tests[name] = t
	}
	switch {
	case e.Action == "output" && len(t.ends) == 0:
		t.output.WriteString(e.Output)
	case e.Action == "skip":
		r.skipped = append(r.skipped, e.Package+" "+e.Test)
	}
	switch {
	case part: // ends with its test
	case e.Action == "run":
		t.running = true
	case e.Action == "pass", e.Action == "fail", e.Action == "skip":
		t.running, t.ends = false, append(t.ends, e.Action)
		r.failures[e.Package] = r.failures[e.Package] || e.Action == "fail"
	}
}

func (r *result) problem(format string, args ...any) {
	r.problems = append(r.problems, fmt.Sprintf(format, args...))
}

// Tests of data that we may not publish, and of a program that Debian does not have, may be skipped.
var (
	ofRealData = regexp.MustCompile(` Test\w*Google2011\w*$`)
	ofDuckDB   = regexp.MustCompile(` TestConvertParquet$`)
)

// flakyFile lists tests that failed at first once: a line has package, test and date. What is behind # is a remark.
const flakyFile = "hack/flaky"

// flaky returns the tests that a list names, by package and name.
func flaky(list string) map[string]bool {
	known := map[string]bool{}
	for line := range strings.Lines(list) {
		line, _, _ = strings.Cut(line, "#")
		if fields := strings.Fields(line); len(fields) >= 2 {
			known[fields[0]+" "+fields[1]] = true
		}
	}
	return known
}

// judge returns what to print, and what is wrong, with a line for each cause. Tests that are known to
// have failed at first in an earlier run must not do so again.
func (r *result) judge(known map[string]bool) (text string, problem error) {
	var out strings.Builder
	var repeated []string
	passed := false
	for _, name := range slices.Sorted(maps.Keys(r.tests)) {
		t := r.tests[name]
		passed = passed || t.passed()
		switch {
		case t.running:
			r.problem("%s did not end", name)
		case t.failed() && !t.passed():
			r.problem("%s failed", name)
		case t.failed() && strings.Contains(t.output.String(), race):
			r.problem("%s has a data race", name)
		case t.failed():
			repeated = append(repeated, name)
		}
	}
	for _, name := range r.skipped {
		if ofRealData.MatchString(name) {
			fmt.Fprintf(&out, "warning: %s was skipped: set UNNEST_GOOGLE2011 to run it\n", name)
			continue
		}
		if ofDuckDB.MatchString(name) {
			fmt.Fprintf(&out, "warning: %s was skipped: pip install duckdb to run it\n", name)
			continue
		}
		r.problem("%s was skipped, although UNNEST_PRIVILEGED=1 does not allow that", name)
	}
	if !passed {
		r.problem("no test has passed")
	}
	if len(repeated) > 0 {
		fmt.Fprint(&out, "\n=== Failed at first, passed alone\n")
		for _, name := range repeated {
			fmt.Fprintf(&out, "=== %s: output of the first failure\n%s", name, r.tests[name].output.String())
			if known[name] {
				r.problem("%s failed at first, as in an earlier run: find the cause, fix it, and remove its line from %s", name, flakyFile)
			}
		}
		fmt.Fprintf(&out, "Add each to %s, unless it is fixed: the next time it fails the run.\n", flakyFile)
		fmt.Fprintf(&out, "%d failed at first and passed alone: %s\n", len(repeated), strings.Join(repeated, ", "))
	}
	if len(r.problems) > 0 {
		problem = errors.New(strings.Join(r.problems, "\n"))
	}
	return out.String(), problem
}
