package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The navigation of the site names every page of a reader once, and each of them exists.
func TestSiteNavigation(t *testing.T) {
	configuration, err := os.ReadFile("../deploy/site/mkdocs.yml")
	if err != nil {
		t.Fatal(err)
	}
	_, navigation, ok := strings.Cut(string(configuration), "\nnav:\n")
	if !ok {
		t.Fatal("deploy/site/mkdocs.yml has no nav at its end")
	}
	named := map[string]int{}
	for _, m := range regexp.MustCompile(`- (\S+\.md)`).FindAllStringSubmatch(navigation, -1) {
		if strings.HasPrefix(m[1], "reference/") { // which hack/site generates
			continue
		}
		named[m[1]]++
		if _, err := os.Stat(filepath.Join("..", m[1])); err != nil {
			t.Errorf("deploy/site/mkdocs.yml names a page that does not exist: %v", err)
		}
	}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/explanation/*.md"} {
		pages, err := filepath.Glob(filepath.Join("..", pattern))
		if err != nil || len(pages) == 0 {
			t.Fatalf("%s: %d pages: %v", pattern, len(pages), err)
		}
		for _, page := range pages {
			page = strings.TrimPrefix(page, "../")
			if named[page] != 1 {
				t.Errorf("deploy/site/mkdocs.yml has %s %d times under nav, want 1", page, named[page])
			}
		}
	}
}
