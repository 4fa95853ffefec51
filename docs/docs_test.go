// Package docs tests what the pages promise: the tests that security.md names exist, and
// links lead to files.
package docs

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
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

// pages are all pages of the repository, relative to docs.
func pages(t *testing.T) (all []string) {
	t.Helper()
	for _, pattern := range []string{"../*.md", "*.md", "*/*.md", "../apps/*/*.md"} {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, matches...)
	}
	return all
}

var (
	codeBlock  = regexp.MustCompile("(?m)^```(?s:.*?)^```|(?:\\A|\n\n)(?:(?: {4}|\t).*\n)+")
	headline   = regexp.MustCompile(`(?m)^#+ +(.+?) *#*$`)
	notInID    = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
	linkTarget = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	linkText   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// anchors returns the identifiers that GitHub gives the headlines of a page.
func anchors(text string) map[string]bool {
	ids := map[string]bool{}
	for _, m := range headline.FindAllStringSubmatch(codeBlock.ReplaceAllString(text, "\n\n"), -1) {
		plain := linkText.ReplaceAllString(m[1], "$1")
		id := strings.ReplaceAll(notInID.ReplaceAllString(strings.ToLower(plain), ""), " ", "-")
		for n, first := 1, id; ids[id]; n++ {
			id = fmt.Sprintf("%s-%d", first, n)
		}
		ids[id] = true
	}
	return ids
}

func TestAnchors(t *testing.T) {
	page := "# Let the VMM hand over: `a_b`, [c](d.md)!\n\n    # code\n\n## Same\n## Same\n```\n# code\n```\n"
	want := map[string]bool{"let-the-vmm-hand-over-a_b-c": true, "same": true, "same-1": true}
	if got := anchors(page); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Every relative link of a page leads to a file or directory, and its anchor to a headline there.
func TestLinks(t *testing.T) {
	links, withAnchor := 0, 0
	for _, page := range pages(t) {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range linkTarget.FindAllStringSubmatch(codeBlock.ReplaceAllString(string(content), "\n\n"), -1) {
			path, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(path, ":") {
				continue // an URL
			}
			links++
			target := page
			if path != "" {
				target = filepath.Join(filepath.Dir(page), path)
			}
			text, err := os.ReadFile(target)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				t.Errorf("%s links to %s: there is no such file", page, m[1])
			case anchor == "":
			case err != nil:
				t.Errorf("%s links to %s: %v", page, m[1], err)
			default:
				if withAnchor++; !anchors(string(text))[anchor] {
					t.Errorf("%s links to %s: there is no such headline", page, m[1])
				}
			}
		}
	}
	t.Logf("%d links, %d of them with an anchor", links, withAnchor)
	if links < 200 || withAnchor < 50 {
		t.Errorf("found %d links, %d with an anchor", links, withAnchor)
	}
}
