// Package suite knows the cases of the multi-level benchmark: for each one what
// has to be there before, the script that is measured, and the reader of what it
// prints. The cases are those of Lubomski et al., Multi-level virtualization and
// its impact on system performance in cloud computing, §3.3 and Tables 3, 5, 6
// (suites cpu, multicore, memory, java, disk), and those of FitzGerald, A
// Comparative Analysis of Nested Virtualization, 2014, Table 3 (suite sysbench).
//
// It is pure: it writes scripts and reads bytes. Where and how often they run,
// and what the figures mean, does not belong here; clients that load a server
// over a network are package workload's.
package suite

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"unnest/internal/measure/result"
	"unnest/internal/measure/workload"
)

// Profile says how large the cases are.
type Profile string

// The profiles.
const (
	Quick Profile = "quick" // the same work in seconds, also on an emulated processor
	Paper Profile = "paper" // the paper's own sizes and durations
)

// Resources are what a case may use of the machine it runs on.
type Resources struct {
	VCPUs  int
	Memory int64 // bytes
}

// Script returns the text of a bash script, run with -e, -u and pipefail.
type Script func(Profile, Resources) string

// Case is one individual measurement of a suite. It runs as root in a directory
// of its own, on the storage that is measured.
type Case struct {
	Suite   string
	Name    string // unique over all suites
	Title   string
	Paper   string          // what the paper's table calls it; empty: it is not in one
	Package string          // the Debian package of the tool
	Tools   []string        // programs that have to be in PATH, or paths
	Files   []File          // files that no Debian package has
	Metrics []result.Metric // the first stands for the case in tables

	// Prepare makes in the working directory what Run needs. It is run once for
	// each directory, and not measured. Nil: nothing is needed.
	Prepare Script
	// Run is what is measured. It leaves the directory as it found it, so that it
	// can run again.
	Run Script
	// Parse reads the standard output of Run. Its errors quote the line that decides.
	Parse func(output []byte) ([]workload.Value, error)
	// Wall is about how long Run takes on an emulated processor.
	Wall func(Profile) time.Duration
}

// File is a file that a case needs and no Debian package has.
type File struct {
	Maven  string // coordinates on Maven Central, group:artifact:version of a jar
	SHA256 string // hexadecimal
	Path   string // where the case expects it
}

// All returns the cases of every suite, suite by suite, in the order of the paper.
func All() []Case {
	return slices.Concat(cpu(), multicore(), memory(), java(), disk(), sysbench())
}

// Suites names the suites, in the order of All.
func Suites() []string {
	var names []string
	for _, c := range All() {
		if !slices.Contains(names, c.Suite) {
			names = append(names, c.Suite)
		}
	}
	return names
}

// Of returns the cases of a suite, or an error that lists the suites there are.
func Of(name string) ([]Case, error) {
	var cases []Case
	for _, c := range All() {
		if c.Suite == name {
			cases = append(cases, c)
		}
	}
	if len(cases) == 0 {
		return nil, fmt.Errorf("suite %q: unknown, want one of %s", name, strings.Join(Suites(), ", "))
	}
	return cases, nil
}

// Lookup returns the case called name, or an error that says where they are listed.
func Lookup(name string) (Case, error) {
	for _, c := range All() {
		if c.Name == name {
			return c, nil
		}
	}
	return Case{}, fmt.Errorf("case %q: unknown: docs/suites.md lists the cases", name)
}

// pick returns what the profile asks for.
func pick[T any](p Profile, quick, paper T) T {
	if p == Paper {
		return paper
	}
	return quick
}

// wall is for a case that takes so long in each profile.
func wall(quick, paper time.Duration) func(Profile) time.Duration {
	return func(p Profile) time.Duration { return pick(p, quick, paper) }
}
