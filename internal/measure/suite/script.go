package suite

import (
	"embed"
	"fmt"
	"strings"
	"text/template"
)

// Script returns the text of a bash script, run with -e, -u and pipefail.
type Script func(Profile, Resources) string

// files are sources in other languages, and long scripts. A script includes one by
// {{template "words.pl"}}.
//
//go:embed scripts
var files embed.FS

var library = template.Must(template.New("script").ParseFS(files, "scripts/*"))

// variables are what the template of a script may use: {{.Threads}}, {{.VCPUs}},
// {{.Memory}}, and {{.Pick quick paper}}.
type variables struct {
	Resources
	Threads int
	profile Profile
}

// Pick returns what the profile asks for.
func (v variables) Pick(quick, paper any) any { return pick(v.profile, quick, paper) }

// script returns the Script of a template. Its threads are as many as the machine has
// virtual processors.
func script(text string) Script {
	return threaded(func(r Resources) int { return r.VCPUs }, text)
}

// threaded is script with another number of threads.
func threaded(threads func(Resources) int, text string) Script {
	t := template.Must(template.Must(library.Clone()).Parse(text))
	return func(p Profile, r Resources) string {
		var b strings.Builder
		if err := t.Execute(&b, variables{r, threads(r), p}); err != nil {
			panic(err) // the text is constant
		}
		return b.String()
	}
}

// timed returns a script that runs text and prints, in its last line, the wall time
// that text took, for readElapsed. If text fails, the script fails and prints no time.
// The standard error of text is unchanged.
func timed(text string) string {
	return "TIMEFORMAT='seconds %3R'\n{ time {\n" + text + "\n} 2>&9; } 9>&2 2>&1\n"
}

// scratch returns a script that runs body with an empty directory "scratch" in
// the working directory, and removes it however body ends.
func scratch(body string) string {
	return "rm -rf scratch\ntrap 'rm -rf scratch' EXIT\nmkdir scratch\n" + body
}

// input returns a script that runs a command with a file of scripts/ as its input.
func input(command, file string) string {
	return command + " <<'END'\n{{template \"" + file + "\"}}END\n"
}

// words returns a script that makes the file text of so many bytes: 5000 words, the
// first ones frequent, so that the text compresses. It is the same on every machine.
func words(quick, paper int64) string {
	return input(fmt.Sprintf("perl - {{.Pick %d %d}} >text", quick, paper), "words.pl")
}
