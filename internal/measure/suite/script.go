package suite

import (
	"embed"
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

var library = template.Must(template.New("script").Funcs(functions).ParseFS(files, "scripts/*"))

// variables are what the template of a script may use: {{.Threads}}, {{.VCPUs}}, {{.Memory}}, {{.Quick}} and
// {{.Pick quick paper}}, and in scripts/parts.sh {{.Arg}}.
type variables struct {
	VCPUs, Memory int
	Threads       int
	Quick         bool
	Arg           any
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
		if err := t.Execute(&b, variables{VCPUs: r.VCPUs, Memory: int(r.Memory), Threads: threads(r), Quick: p != Paper}); err != nil {
			panic(err) // the text is constant
		}
		return b.String()
	}
}

// timed returns the template of a script that runs text and prints, in its last line, the wall time
// that text took, for readElapsed. If text fails, the script fails and prints no time.
// The standard error of text is unchanged.
func timed(text string) string { return `{{template "time"}}` + text + `{{template "timed"}}` }
