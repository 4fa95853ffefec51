package house

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"testing"
)

// directory is a package with the upward arrows between its files.
type directory struct {
	path   string
	upward int
}

// compare sorts by upward arrows, most of them first.
func compare(a, b directory) int { return cmp.Or(b.upward-a.upward, cmp.Compare(a.path, b.path)) }

// arrows returns the number of upward arrows between the files of a package. File A has an arrow to
// file B if A uses a function, type, variable or constant that B declares at package level. Methods and
// fields do not count: finding them needs types. Whoever reads the files in an order meets an arrow
// that points upwards where a file uses what an earlier one declares. The order is that of order,
// which has few of them; without cycles between files it has none.
func arrows(paths []string) (upward int, err error) {
	uses, err := uses(paths)
	if err != nil {
		return 0, err
	}
	at := map[string]int{}
	for i, path := range order(uses) {
		at[path] = i
	}
	for from, all := range uses {
		for to := range all {
			if at[to] < at[from] {
				upward++
			}
		}
	}
	return upward, nil
}

// uses returns for each file those whose declarations it uses.
func uses(paths []string) (map[string]map[string]bool, error) {
	declared, parsed := map[string]string{}, map[string]*ast.File{}
	for _, path := range paths {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, 0)
		if err != nil {
			return nil, err
		}
		parsed[path] = f
		for name := range f.Scope.Objects { //nolint:staticcheck // types of all packages would take a minute
			declared[name] = path
		}
	}
	all := map[string]map[string]bool{}
	for path, f := range parsed {
		all[path] = map[string]bool{}
		for _, name := range f.Unresolved { //nolint:staticcheck // as above
			if to, ok := declared[name.Name]; ok && to != path {
				all[path][to] = true
			}
		}
	}
	return all, nil
}

// order returns the files so that few of them use earlier ones, by the heuristic of Eades, Lin and
// Smyth, "A fast and effective heuristic for the feedback arc set problem", 1993: files that use no
// other go to the end, files that no other uses to the beginning, and where cycles are left, the
// file next whose uses exceed its users most.
func order(uses map[string]map[string]bool) []string {
	rest := slices.Sorted(maps.Keys(uses))
	var first, last []string
	for len(rest) > 0 {
		next, most, end := 0, -len(uses), false
		for i, path := range rest {
			users, used := degrees(uses, rest, path)
			if used == 0 || users == 0 {
				next, end = i, used == 0
				break
			}
			if used-users > most {
				next, most = i, used-users
			}
		}
		if end {
			last = append(last, rest[next])
		} else {
			first = append(first, rest[next])
		}
		rest = slices.Delete(rest, next, next+1)
	}
	slices.Reverse(last)
	return append(first, last...)
}

// degrees returns how many of the files use path, and how many path uses.
func degrees(uses map[string]map[string]bool, files []string, path string) (users, used int) {
	for _, other := range files {
		if uses[other][path] {
			users++
		}
		if uses[path][other] {
			used++
		}
	}
	return users, used
}

func TestOrder(t *testing.T) {
	uses := map[string]map[string]bool{
		"main": {"a": true, "b": true}, "a": {"b": true, "c": true}, "b": {"c": true}, "c": {}, "alone": {},
	}
	got := order(uses)
	for from, all := range uses {
		for to := range all {
			if slices.Index(got, to) < slices.Index(got, from) {
				t.Errorf("%s stands before %s, which uses it: %v", to, from, got)
			}
		}
	}
	if len(got) != len(uses) {
		t.Errorf("order %v", got)
	}
}
