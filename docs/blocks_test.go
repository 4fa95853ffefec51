package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The comments before a block of commands:
//
//	<!-- test: MARK -->             a test executes the block, which it finds by MARK
//	<!-- run: package.TestName -->  this test executes it
//	<!-- not run: REASON -->        no test executes it
var blockMark = regexp.MustCompile(`^<!-- (test|run|not run): (.+) -->$`)

// command matches the first line of a block that a reader types.
var command = regexp.MustCompile(`^(\w+=\S+ )*(\S*/)?(apt-get|brfusion|cat|curl|docker|echo|for|git|helm|install|ip|kubectl|make|mkdir|` +
	`python3|qemu-system-x86_64|spark-submit|sqlite3|ssh|tcpdump|unnest|unnest-[a-z]+) `)

// commandBlocks returns the number of blocks of commands in a page, and the lines of those that do not
// say whether they are executed, or by which test. known are the tests.
func commandBlocks(page string, known []string) (n int, wrong []string) {
	lines := strings.Split(page, "\n")
	said := ""
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		fenced := strings.HasPrefix(strings.TrimSpace(line), "```")
		first := line
		if fenced {
			first = lines[i+1]
		}
		switch begins := fenced || strings.HasPrefix(line, "    ") && (i == 0 || lines[i-1] == ""); {
		case !begins:
			if line != "" {
				said = line
			}
			continue
		case command.MatchString(strings.TrimSpace(first) + " "):
			n++
			m := blockMark.FindStringSubmatch(strings.TrimSpace(said))
			switch {
			case m == nil:
				wrong = append(wrong, first+": no comment says which test executes it")
			case m[1] == "run" && !slices.Contains(known, m[2]):
				wrong = append(wrong, first+": there is no test "+m[2])
			}
		}
		said = ""
		if i++; fenced {
			for i < len(lines) && !strings.HasPrefix(strings.TrimSpace(lines[i]), "```") {
				i++
			}
			continue
		}
		for i < len(lines) && strings.HasPrefix(lines[i], "    ") {
			i++
		}
		i--
	}
	return n, wrong
}

func TestCommandBlocksOfAPage(t *testing.T) {
	page := `# Page
Text.

    unnest plan

<!-- test: run -->

    bin/unnest vm up
    bin/unnest vm down

<!-- run: e2e.TestHere -->
` + "```sh\necho $X | unnest-volume attach\n```\n\n```yaml\nkind: Pod\n```\n" + `
<!-- run: e2e.TestGone -->

    FOO=1 make build

1. A list:

       helm install unnest

   <!-- not run: no registry -->

       kubectl apply

    output of unnest
`
	n, wrong := commandBlocks(page, []string{"e2e.TestHere"})
	want := []string{
		"    unnest plan: no comment says which test executes it", "    FOO=1 make build: there is no test e2e.TestGone",
		"       helm install unnest: no comment says which test executes it",
	}
	if n != 6 || !slices.Equal(wrong, want) {
		t.Errorf("%d blocks, got\n%s\nwant\n%s", n, strings.Join(wrong, "\n"), strings.Join(want, "\n"))
	}
}

// Every block of commands of the README and of a tutorial or how-to says which test executes it, or
// that none does.
func TestCommandBlocks(t *testing.T) {
	found, blocks := tests(t, "../internal"), 0
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range append(pages, "../README.md") {
		content, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		n, wrong := commandBlocks(string(content), found)
		blocks += n
		for _, w := range wrong {
			t.Errorf("%s: %s", page, w)
		}
	}
	if blocks < 40 {
		t.Errorf("found %d blocks of commands", blocks)
	}
}
