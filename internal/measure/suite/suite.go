// Package suite defines the cases of the multi-level benchmark: for each case the
// script that prepares it, the script that is measured, and the parser of its output.
//
// It is pure: it writes scripts and reads bytes. Where and how often scripts run, and
// what the figures mean, does not belong here; package workload has the clients that
// load a server over a network. A case with a server of its own has that server's script, too.
//
// Suites cpu, multicore, memory, java, disk and application are those of Lubomski et al.,
// Multi-level virtualization and its impact on system performance in cloud computing, §3.3,
// §3.5 and Tables 3, 5, 6, 7. Suite sysbench is that of FitzGerald, A Comparative Analysis of Nested
// Virtualization, 2014, Table 3.
package suite

import (
	"cmp"
	"embed"
	"fmt"
	"strings"
	"text/template"
	"time"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/workload"
)

// Profile is the size of the cases.
type Profile string

// The profiles.
const (
	Quick Profile = "quick" // takes seconds, also on an emulated processor
	Paper Profile = "paper" // the paper's sizes and durations
)

// Resources are what a case may use of the machine it runs on.
type Resources struct {
	VCPUs  int
	Memory int64 // bytes
	Whole  int64 // memory of level 0, which sizes what every level does alike; 0: Memory
}

// Case is one individual measurement of a suite. It runs as root in its own
// directory, on the storage that is measured.
type Case struct {
	Suite   string
	Name    string // unique over all suites
	Title   string
	Paper   string          // its name in the paper's table; empty: in no table
	Package string          // Debian packages of the tools
	Tools   []string        // required executables: names in PATH, or paths
	Files   []File          // required files that no Debian package has
	Metrics []result.Metric // the first one is that of the case in tables

	// Prepare creates the files that Run needs in the working directory. It runs once
	// for each directory and is not measured. Nil: Run needs no files.
	Prepare Script
	// Run is measured. It restores the directory, so that it can run again.
	Run Script
	// Parse reads the standard output of Run. Its errors quote the decisive line.
	Parse reader
	// Server is what Run loads. Nil: Run needs none.
	Server *Server
	// Intervals returns the values of metrics in consecutive intervals, from output that Parse
	// accepts. Nil: no metric has intervals.
	Intervals func(output []byte) map[string][]float64
	// Wall is roughly how long Run takes on an emulated processor, with the start of its server.
	Wall func(Profile) time.Duration
}

// Server is a server that is started for each Run of a case, in the case's directory. Run may be in
// another place. Both have its port as $PORT, and Run has its address as $ADDRESS.
type Server struct {
	Start  Script   // discards the state of earlier ones and replaces itself with the server
	Ready  string   // what it prints when it can be loaded
	Broken []string // what it prints when it never can
	// Versions is a file in the case's directory with a line for each program: name, space, version.
	Versions string
}

// ServerStart is the metric of the time from the start of a case's server until it is ready.
var ServerStart = result.Metric{Name: "server_start", Unit: "s", Order: result.LIB}

// File is a file that a case needs and no Debian package has: of Maven Central, or built.
type File = workload.File

// All returns the cases of every suite, suite by suite, in the order of the paper.
func All() (cases []Case) {
	for _, s := range suites {
		cases = append(cases, casesOf(s.name, s.table)...)
	}
	return cases
}

// Suites names the suites, in the order of All.
func Suites() (names []string) {
	for _, s := range suites {
		names = append(names, s.name)
	}
	return names
}

// Of returns the cases of a suite, or an error that lists the suites.
func Of(name string) ([]Case, error) {
	for _, s := range suites {
		if s.name == name {
			return casesOf(s.name, s.table), nil
		}
	}
	return nil, fmt.Errorf("suite %q: unknown, want one of %s", name, strings.Join(Suites(), ", "))
}

// pick returns the value of the profile.
func pick[T any](p Profile, quick, paper T) T {
	if p == Paper {
		return paper
	}
	return quick
}

// Script returns the text of a bash script, run with -e, -u and pipefail.
type Script func(Profile, Resources) string

// files are sources in other languages, and long scripts. A script includes one by
// {{template "words.pl"}}.
//
//go:embed scripts
var files embed.FS

var library = template.Must(template.New("script").Funcs(functions).ParseFS(files, "scripts/*"))

// variables are what the template of a script may use: {{.Threads}}, {{.VCPUs}}, {{.Memory}}, {{.Whole}}, {{.Quick}} and
// {{.Pick quick paper}}, and in scripts/parts.sh {{.Arg}}.
type variables struct {
	VCPUs, Memory, Whole int
	Threads              int
	Quick                bool
	Arg                  any
}

// Pick returns what the profile asks for.
func (v variables) Pick(quick, paper any) any {
	if v.Quick {
		return quick
	}
	return paper
}

// With returns the variables for a part that has an argument.
func (v variables) With(arg any) variables {
	v.Arg = arg
	return v
}

// functions are those of templates.
var functions = template.FuncMap{
	"div":        func(a, b int) int { return a / b },
	"mul":        func(a, b int) int { return a * b },
	"min":        func(a, b int) int { return min(a, b) },
	"max":        func(a, b int) int { return max(a, b) },
	"powerOfTwo": powerOfTwo,
}

// powerOfTwo returns the largest power of two that is not over n, or 1 KiB, the
// smallest useful block.
func powerOfTwo(n int) int {
	block := 1 << 10
	for block*2 <= n {
		block *= 2
	}
	return block
}

// script returns the Script of a template, with so many threads.
func script(threads func(Resources) int, text string) Script {
	t := template.Must(template.Must(library.Clone()).Parse(text))
	return func(p Profile, r Resources) string {
		var b strings.Builder
		if err := t.Execute(&b, variables{VCPUs: r.VCPUs, Memory: int(r.Memory), Whole: int(cmp.Or(r.Whole, r.Memory)), Threads: threads(r), Quick: p != Paper}); err != nil {
			panic(err) // the text is constant
		}
		return b.String()
	}
}

// timed returns the template of a script that runs text and prints, in its last line, the wall time
// that text took, for readElapsed. If text fails, the script fails and prints no time.
// The standard error of text is unchanged.
func timed(text string) string { return `{{template "time"}}` + text + `{{template "timed"}}` }
