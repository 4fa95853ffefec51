package e2e

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// documented returns the commands of a section of a document: its indented lines. A command
// continues in the next line if its line ends with a backslash.
func documented(t *testing.T, path, heading string) (commands []string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(content), "\n"+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	continues := false
	for _, line := range strings.Split(section, "\n") {
		text, indented := strings.CutPrefix(line, "    ")
		switch {
		case indented && continues:
			commands[len(commands)-1] += "\n" + text
		case indented:
			commands = append(commands, text)
		}
		continues = indented && strings.HasSuffix(text, "\\")
	}
	if len(commands) == 0 {
		t.Fatalf("%s: no commands below %q", path, heading)
	}
	return commands
}

// block is a code block of a document with what a comment before it says to the test.
type block struct{ mark, text string }

var mark = regexp.MustCompile(`^<!-- test: (.*) -->$`)

// marked returns the blocks of a document, indented or fenced, that follow a comment
// "<!-- test: MARK -->".
func marked(t *testing.T, path string) (blocks []block) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(content), "\n")
	for i := 0; i < len(lines); i++ {
		m := mark.FindStringSubmatch(lines[i])
		if m == nil {
			continue
		}
		text := codeBlock(lines[i+1:])
		if text == "" {
			t.Fatalf("%s:%d: no code block follows", path, i+1)
		}
		blocks = append(blocks, block{m[1], text})
	}
	return blocks
}

// codeBlock returns the block at the beginning of lines, after blank lines.
func codeBlock(lines []string) string {
	for len(lines) > 0 && lines[0] == "" {
		lines = lines[1:]
	}
	var text []string
	fenced := len(lines) > 0 && strings.HasPrefix(lines[0], "```")
	for n, line := range lines {
		code, indented := strings.CutPrefix(line, "    ")
		switch {
		case fenced && n == 0:
			continue
		case fenced && line == "```", !fenced && !indented && line != "":
			return strings.TrimSpace(strings.Join(text, "\n"))
		case fenced:
			code = line
		}
		text = append(text, code)
	}
	return strings.TrimSpace(strings.Join(text, "\n"))
}
