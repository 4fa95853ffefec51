package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unnest.io/unnest/internal/cli/terminal"
)

// The help of every command fits a terminal of 80 columns, and writes the values of flags in one way.
func TestHelpFits(t *testing.T) {
	const width = 80
	var out bytes.Buffer
	n := 0
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		n++
		out.Reset()
		if err := cmd.Help(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if line = strings.TrimRight(line, "\n"); utf8.RuneCountInString(line) > width {
				t.Errorf("%s --help has %d columns: %s", cmd.CommandPath(), utf8.RuneCountInString(line), line)
			}
			if strings.TrimRight(line, " ") != line {
				t.Errorf("%s --help has a line that ends in blanks: %q", cmd.CommandPath(), line)
			}
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			name, _ := pflag.UnquoteUsage(f)
			if !strings.Contains(name, "|") && name != "" && name[0] >= 'a' {
				t.Errorf("%s --%s has the value %q: want a name in capitals, in back quotes in its help", cmd.CommandPath(), f.Name, name)
			}
		})
		for _, c := range cmd.Commands() {
			check(c)
		}
	}
	check(newRootCmd(terminal.Streams{Out: &out, Err: &out}))
	if n < 30 {
		t.Errorf("found %d commands", n)
	}
}
