package house

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the diagram of ARCHITECTURE.md")

// The lines around the diagram in ARCHITECTURE.md.
const (
	begin = "<!-- begin arrows -->\n"
	end   = "<!-- end arrows -->\n"
)

// area returns the area of a package: cmd, or a directory in internal. Other packages have none.
func (p pkg) area() string {
	parts := strings.Split(p.path(), "/")
	switch {
	case parts[0] == "cmd":
		return "cmd"
	case parts[0] == "internal" && len(parts) > 1:
		return parts[1]
	}
	return ""
}

// imports returns the areas that each area imports, tests aside.
func imports(all []pkg) map[string][]string {
	areas := map[string]string{}
	for _, p := range all {
		areas[p.ImportPath] = p.area()
	}
	found := map[string][]string{}
	for _, p := range all {
		from := p.area()
		if from == "" {
			continue
		}
		for _, path := range p.Imports {
			if to := areas[path]; to != "" && to != from && !slices.Contains(found[from], to) {
				found[from] = append(found[from], to)
			}
		}
	}
	for _, to := range found {
		slices.Sort(to)
	}
	return found
}

// diagram returns one line per area that imports others, each above those that it imports. A cycle is
// an error.
func diagram(imports map[string][]string) (string, error) {
	var text strings.Builder
	text.WriteString("```\n")
	rest := slices.Sorted(maps.Keys(imports))
	for len(rest) > 0 {
		top := slices.IndexFunc(rest, func(area string) bool {
			return !slices.ContainsFunc(rest, func(other string) bool { return slices.Contains(imports[other], area) })
		})
		if top < 0 {
			return "", fmt.Errorf("areas import each other in a cycle: %s", strings.Join(rest, ", "))
		}
		fmt.Fprintf(&text, "%-8s ──► %s\n", rest[top], strings.Join(imports[rest[top]], " "))
		rest = slices.Delete(rest, top, top+1)
	}
	text.WriteString("```\n")
	return text.String(), nil
}

func TestDiagram(t *testing.T) {
	want := must(diagram(imports(must(packages())(t))))(t)
	page := read(t, "ARCHITECTURE.md")
	before, rest, ok := strings.Cut(page, begin)
	got, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("ARCHITECTURE.md has no %s … %s", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	if got == want {
		return
	}
	if !*update {
		t.Fatalf("the diagram of ARCHITECTURE.md differs from the imports: run go test ./hack/house -update\n%s", want)
	}
	if err := os.WriteFile(filepath.Join(root, "ARCHITECTURE.md"), []byte(before+begin+want+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestDiagramRefusesACycle(t *testing.T) {
	if _, err := diagram(map[string][]string{"a": {"b"}, "b": {"a"}}); err == nil {
		t.Error("a and b import each other: no error")
	}
}
