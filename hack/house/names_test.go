package house

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The pages whose names are resolved.
var pages = []string{"ARCHITECTURE.md", "CONTRIBUTING.md"}

// The forms of names in backticks, and the targets of links.
var (
	link       = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	quoted     = regexp.MustCompile("`([^`\n]+)`")
	target     = regexp.MustCompile(`^make ([a-z0-9-]+)`)
	tested     = regexp.MustCompile(`TEST='?([^' ]+)`)
	file       = regexp.MustCompile(`^\.?[\w-]+\.(go|md|mod|sum|yml|yaml)$`)
	inside     = regexp.MustCompile(`^\.?[\w-]+(/[\w.-]+)+/?$`)
	qualified  = regexp.MustCompile(`^([a-z][a-z0-9]*)\.([A-Z]\w*)$`)
	identifier = regexp.MustCompile(`^([A-Z][a-z]\w*|[a-z]+[A-Z]\w*)$`)
	variable   = regexp.MustCompile(`\b(UNNEST_[A-Z0-9_]+)\b`)
)

// placeholders stand for names of the reader's own.
var placeholders = []string{"internal/measure/workload/TOOL.go", "docs/results/runs", "runs"}

// tree is what names are resolved in.
type tree struct {
	files    []string
	goFiles  string // the text of all Go files
	tests    []string
	makefile string
}

func newTree(t *testing.T) tree {
	t.Helper()
	tr := tree{files: must(files())(t), makefile: read(t, "Makefile")}
	var text strings.Builder
	for _, path := range tr.files {
		if strings.HasSuffix(path, ".go") {
			text.WriteString(read(t, path))
		}
	}
	tr.goFiles = text.String()
	for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(tr.goFiles, -1) {
		tr.tests = append(tr.tests, m[1])
	}
	return tr
}

// missing says why a name in backticks, or the target of a link, cannot be resolved. Empty: it can,
// or it is not a name in the code, such as a command of another program.
func (tr tree) missing(name string) string {
	if m := target.FindStringSubmatch(name); m != nil && !regexp.MustCompile(`(?m)^`+m[1]+`:`).MatchString(tr.makefile) {
		return "make has no target " + m[1]
	}
	for _, m := range variable.FindAllString(name, -1) {
		if !strings.Contains(tr.goFiles, `"`+m+`"`) && !tr.inScripts(m) {
			return "nothing reads " + m
		}
	}
	switch m := qualified.FindStringSubmatch(name); {
	case slices.Contains(placeholders, name):
	case file.MatchString(name):
		if !tr.has(name) {
			return "there is no file of this name"
		}
	case inside.MatchString(name):
		if !tr.has(name) {
			return "there is no file or directory whose path ends so"
		}
	case m != nil:
		if !tr.has(m[1]) || !tr.declares(m[2]) {
			return "nothing declares it"
		}
	case identifier.MatchString(name) && !strings.HasPrefix(name, "Test"): // else see untested
		if !tr.declares(name) {
			return "nothing declares it"
		}
	}
	return ""
}

// has reports whether the path of a file or directory is name, or ends in it.
func (tr tree) has(name string) bool {
	name = strings.TrimSuffix(name, "/")
	return slices.ContainsFunc(tr.files, func(f string) bool {
		return f == name || strings.HasSuffix(f, "/"+name) || strings.HasPrefix(f, name+"/") || strings.Contains(f, "/"+name+"/")
	})
}

// declares reports whether a Go file declares a function, method, type, variable, constant or field.
func (tr tree) declares(name string) bool {
	return regexp.MustCompile(`(?m)^(func (\([^)]*\) )?|type |var |const |\t)` + name + `\b`).MatchString(tr.goFiles)
}

// inScripts reports whether the scripts of make, which the Makefile names, can read a variable.
func (tr tree) inScripts(name string) bool { return strings.Contains(tr.makefile, name) }

func TestNames(t *testing.T) {
	tr := newTree(t)
	for _, page := range pages {
		for i, line := range strings.Split(read(t, page), "\n") {
			for _, m := range quoted.FindAllStringSubmatch(line, -1) {
				if why := tr.missing(m[1]); why != "" {
					t.Errorf("%s:%d: `%s`: %s", page, i+1, m[1], why)
				}
				if why := tr.untested(m[1]); why != "" {
					t.Errorf("%s:%d: `%s`: %s", page, i+1, m[1], why)
				}
			}
			for _, m := range link.FindAllStringSubmatch(line, -1) {
				if !slices.ContainsFunc(tr.files, func(f string) bool { return f == m[1] || strings.HasPrefix(f, strings.TrimSuffix(m[1], "/")+"/") }) {
					t.Errorf("%s:%d: link to %s: there is no such file", page, i+1, m[1])
				}
			}
		}
	}
}

// untested says which test a parameter TEST of make e2e names in vain, in a command or at the
// beginning of a row of the tables.
func (tr tree) untested(name string) string {
	pattern := ""
	if m := tested.FindStringSubmatch(name); m != nil && !strings.HasSuffix(name, "TEST=") {
		pattern = m[1]
	} else if m := regexp.MustCompile(`^'?(Test[^' ]*[^\w' ][^' ]*|Test\w+)`).FindStringSubmatch(name); m != nil {
		pattern = m[1]
	}
	function, _, _ := strings.Cut(strings.ReplaceAll(pattern, `\|`, "|"), "/")
	if function == "" || function == "NAME" {
		return ""
	}
	re, err := regexp.Compile("^(" + function + ")$")
	if err != nil {
		return err.Error()
	}
	if !slices.ContainsFunc(tr.tests, re.MatchString) {
		return "there is no such test"
	}
	return ""
}

// The table of areas in ARCHITECTURE.md has every area, and the directories of packages directly in it.
func TestAreas(t *testing.T) {
	have := map[string][]string{}
	for _, p := range must(packages())(t) {
		if parts := strings.Split(p.path(), "/"); parts[0] == "internal" {
			name := parts[min(2, len(parts)-1)] // of the area itself, or of a directory in it
			if !slices.Contains(have[parts[1]], name) {
				have[parts[1]] = append(have[parts[1]], name)
			}
		}
	}
	_, table, _ := strings.Cut(read(t, "ARCHITECTURE.md"), "## Areas\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|[^|]*\\|([^|]*)\\|").FindAllStringSubmatch(table, -1) {
		area := row[1]
		var named []string
		for _, m := range quoted.FindAllStringSubmatch(row[2], -1) {
			named = append(named, m[1])
			if !slices.Contains(have[area], m[1]) {
				t.Errorf("ARCHITECTURE.md: area %s has no package %s", area, m[1])
			}
		}
		if _, ok := have[area]; !ok {
			t.Errorf("ARCHITECTURE.md: there is no area %s", area)
		}
		for _, name := range have[area] {
			if name != area && !slices.Contains(named, name) && !strings.Contains(row[2], "one per command") {
				t.Errorf("ARCHITECTURE.md: area %s has a package %s, which the table does not name", area, name)
			}
		}
		delete(have, area)
	}
	for area := range have {
		t.Errorf("ARCHITECTURE.md: the table of areas does not have %s", area)
	}
}

func TestMissing(t *testing.T) {
	tr := tree{
		files: []string{"hack/test", "internal/hostd/daemon/admission.go"}, makefile: "test: x\n",
		goFiles: "\nfunc startTarget() {\n\tValidate() error\n", tests: []string{"TestOne"},
	}
	for name, missing := range map[string]bool{
		"make test": false, "make tests": true, "hack/test": false, "hack/tests": true, "hostd/daemon": false, "daemon/admission.go": false,
		"daemon/admit.go": true, "admission.go": false, "admit.go": true, "startTarget": false, "stopTarget": true,
		"Validate": false, "daemon.Validate": false, "demon.Validate": true, "go vet": false,
		"UNNEST_NONE=1": true,
	} {
		if got := tr.missing(name); (got != "") != missing {
			t.Errorf("%s: %q, want an error: %v", name, got, missing)
		}
	}
	for name, missing := range map[string]bool{
		"make e2e TEST=TestOne": false, "make e2e TEST=TestTwo": true, "make e2e TEST='Test(One|Two)' ARGS=-x": false,
		"TestOne": false, "TestTwo": true, "TestOne ARGS=-x": false, `'Test(Two\|Three)?'`: true, "TEST=TestOne/Part": false, "make e2e TEST=NAME": false,
	} {
		if got := fmt.Sprint(tr.untested(name)); (got != "") != missing {
			t.Errorf("%s: %q, want an error: %v", name, got, missing)
		}
	}
}
