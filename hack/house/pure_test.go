package house

import (
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// pureRule is the rule "pure" of depguard in .golangci.yml.
type pureRule struct {
	Files []string
	Deny  []struct{ Pkg string }
}

func readPure(t *testing.T) pureRule {
	t.Helper()
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct{ Rules struct{ Pure pureRule } }
			}
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, ".golangci.yml")), &config); err != nil {
		t.Fatal(err)
	}
	return config.Linters.Settings.Depguard.Rules.Pure
}

// holds reports whether a package is pure by the patterns of the rule, which are directories with
// those below them, less those with an exclamation mark.
func (r pureRule) holds(p pkg) bool {
	pure := false
	for _, pattern := range r.Files {
		dir, less := strings.CutPrefix(pattern, "!")
		dir = strings.TrimSuffix(strings.TrimPrefix(dir, "**/"), "/**")
		if strings.HasPrefix(p.path()+"/", dir+"/") {
			pure = !less
		}
	}
	return pure
}

// denies reports whether the rule forbids an import that is not ours.
func (r pureRule) denies(path string) bool {
	return slices.ContainsFunc(r.Deny, func(d struct{ Pkg string }) bool {
		exact, ok := strings.CutSuffix(d.Pkg, "$")
		return ok && path == exact || !ok && strings.HasPrefix(path, d.Pkg)
	})
}

// depguard sees direct imports only, and allows packages that may not be pure themselves.
func TestPurePackagesReachPurePackagesOnly(t *testing.T) {
	rule, all := readPure(t), map[string]pkg{}
	for _, p := range must(packages())(t) {
		all[p.ImportPath] = p
	}
	pure := 0
	for _, p := range all {
		if !rule.holds(p) {
			continue
		}
		pure++
		for _, imported := range p.Imports {
			if other, ours := all[imported]; ours && !rule.holds(other) {
				t.Errorf("%s is pure and imports %s, which is not", p.path(), other.path())
			} else if !ours && rule.denies(imported) {
				t.Errorf("%s is pure and imports %s", p.path(), imported)
			}
		}
	}
	if pure < 20 {
		t.Errorf("%d pure packages: are the patterns of rule pure in .golangci.yml directories still?", pure)
	}
}

// Every pattern of the rule names a directory with Go code.
func TestPurePatternsExist(t *testing.T) {
	for _, pattern := range readPure(t).Files {
		dir := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(pattern, "!"), "**/"), "/**")
		exists := func(p pkg) bool { return strings.HasPrefix(p.path()+"/", dir+"/") }
		if dir != "$test" && !slices.ContainsFunc(must(packages())(t), exists) {
			t.Errorf(".golangci.yml: rule pure: %s holds no package", pattern)
		}
	}
}
