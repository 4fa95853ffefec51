package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"unnest.io/unnest/internal/cli/terminal"
)

var (
	documentedCommand = regexp.MustCompile(`(?m)^(?: {4,}|)(?:\S*/)?unnest ([a-z].*)$`)
	endOfWords        = regexp.MustCompile(`\s(?:#|\||>|<|&&|;).*$|\s[0-9&]?>.*$`)
)

// Every command line of the pages that begins with unnest has a command and flags that exist. Whether it
// does what the page says is for the tests that the pages name.
func TestDocumentedCommands(t *testing.T) {
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, page := range append(pages, "../../README.md", "../../CONTRIBUTING.md") {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(content), "\\\n", " ")
		for _, m := range documentedCommand.FindAllStringSubmatch(text, -1) {
			line := endOfWords.ReplaceAllString(m[1], "")
			if strings.HasPrefix(line, "hostd ") && strings.Contains(line, ", protocol") { // output of a status
				continue
			}
			seen++
			root := newRootCmd(terminal.Streams{Out: new(bytes.Buffer), Err: new(bytes.Buffer)})
			cmd, rest, err := root.Find(strings.Fields(line))
			if err == nil && cmd == root {
				err = unknownCommand(root, strings.Fields(line)[0])
			}
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err == nil && cmd.HasSubCommands() && !cmd.Runnable() {
				err = unknownCommand(cmd, line)
			}
			if err != nil && !strings.Contains(err.Error(), "needs an argument") { // which is in the next line
				t.Errorf("%s: unnest %s: %v", filepath.Base(page), line, err)
			}
		}
	}
	if seen < 50 {
		t.Errorf("found %d command lines", seen)
	}
}
