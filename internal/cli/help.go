package cli

import (
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// helpWidth is what every help fits, in columns.
const helpWidth = 80

// foldHelp folds the texts of cmd and of its subcommands.
func foldHelp(cmd *cobra.Command) {
	cmd.Long = fold(cmd.Long, helpWidth)
	for _, c := range cmd.Commands() {
		foldHelp(c)
	}
}

// fold breaks the paragraphs of text between words, into lines of at most width runes. Lines that begin
// with a blank, such as those of tables, stay as they are.
func fold(text string, width int) string {
	var lines []string
	open := false // the last line takes more words
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || line[0] == ' ' || line[0] == '\t' {
			lines, open = append(lines, line), false
			continue
		}
		for word := range strings.FieldsSeq(line) {
			if last := len(lines) - 1; open && utf8.RuneCountInString(lines[last]+" "+word) <= width {
				lines[last] += " " + word
			} else {
				lines, open = append(lines, word), true
			}
		}
	}
	return strings.Join(lines, "\n")
}
