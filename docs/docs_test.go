// Package docs tests what the pages promise: the tests that security.md names exist, and
// links lead to files.
package docs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tests lists the test functions under root as package.Test, where package is the base of
// the directory.
func tests(t *testing.T, root string) (found []string) {
	t.Helper()
	declaration := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range declaration.FindAllStringSubmatch(string(source), -1) {
			found = append(found, filepath.Base(filepath.Dir(path))+"."+m[1])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Every row of the threat model names tests, and each of them exists.
func TestSecurity(t *testing.T) {
	page, err := os.ReadFile("security.md")
	if err != nil {
		t.Fatal(err)
	}
	found, rows := append(tests(t, "../internal"), tests(t, "../hack")...), 0
	named := regexp.MustCompile("`([a-z0-9]+\\.Test\\w+)`")
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| who ") {
			continue
		}
		rows++
		names := named.FindAllStringSubmatch(line, -1)
		if len(names) == 0 {
			t.Errorf("row names no test: %s", line)
		}
		for _, n := range names {
			if !slices.Contains(found, n[1]) {
				t.Errorf("security.md names %s: there is no such test", n[1])
			}
		}
	}
	if rows < 10 {
		t.Errorf("security.md: found %d rows, want the threat model", rows)
	}
}

// Every relative link of a page leads to a file or directory.
func TestLinks(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"../*.md", "*.md", "*/*.md"} {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, matches...)
	}
	link, links := regexp.MustCompile(`\]\(([^)#:\s]+)(?:#[^)]*)?\)`), 0
	for _, page := range pages {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(content), -1) {
			links++
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), m[1])); errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s links to %s: there is no such file", page, m[1])
			}
		}
	}
	if links < 20 {
		t.Errorf("found %d links in %d pages", links, len(pages))
	}
}
