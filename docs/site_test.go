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

// The README has its parts in the order in which a reader asks for them, on two screens, and each paper with title and link.
func TestREADME(t *testing.T) {
	content, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	if n := strings.Count(text, "\n"); n > 120 {
		t.Errorf("README.md has %d lines, want at most 120", n)
	}
	at := 0
	for _, part := range []string{
		"# Unnest\n", "It is for people", "## What is removed\n", "<!-- begin path -->", "## Install\n", "unnest doctor --fix --yes", "To undo that",
		"## Measure, remove, plan\n", "unnest bench ", "unnest vm up ", "unnest plan ", "make quickstart\n", "make test ", "To undo a trial",
		"## What your machine needs\n", "## Read on\n", "## The papers\n", "## Status and license\n", "[Apache-2.0](LICENSE)",
	} {
		next := strings.Index(text[at:], part)
		if next < 0 {
			t.Fatalf("README.md lacks %q after %q", part, text[max(0, at-40):at])
		}
		at += next + len(part)
	}
	_, papers, _ := strings.Cut(text, "## The papers\n")
	papers, _, _ = strings.Cut(papers, "\n## ")
	for _, paper := range strings.Split(papers, "\n- ")[1:] {
		cited := regexp.MustCompile(`(?s)\*[^*]+\*.*\]\(https://`).MatchString(paper)
		if !cited && !strings.Contains(paper, "are in this repository, its title and its authors are not") {
			t.Errorf("README.md has neither title and link of a paper, nor that it lacks them: %s", paper)
		}
	}
}
