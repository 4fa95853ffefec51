// Package usage checks command lines: the error for a wrong one, flag values that are
// checked when they are read, and suggestions for misspelt names. The exit code of a
// wrong command line belongs to package cli.
package usage

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"unnest.io/unnest/internal/cli/console"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/yamldoc"
)

// Error is a mistake in the command line, as opposed to a failure of the command.
type Error struct{ err error }

// Errorf returns an *Error with the text of fmt.Errorf.
func Errorf(format string, args ...any) error {
	return &Error{fmt.Errorf(format, args...)}
}

// Wrap returns err as an *Error, nil when there is none.
func Wrap(err error) error {
	if err == nil {
		return nil
	}
	return &Error{err}
}

// Error returns the text of the error inside.
func (e *Error) Error() string { return e.err.Error() }

// Unwrap returns the error inside.
func (e *Error) Unwrap() error { return e.err }

// Exit is the error of a command that ends with this exit code, after it has said why.
type Exit int

// Error is for those who call the command in this process.
func (e Exit) Error() string { return "exit code " + strconv.Itoa(int(e)) }

// Args returns a check for exactly the arguments called names.
func Args(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return Errorf("missing argument %s", strings.Join(names[len(args):], " "))
		case len(args) > len(names):
			word := args[len(names)]
			return Errorf("unexpected argument %q%s", word, cmp.Or(SuggestValue(cmd, word), SuggestCommand(cmd, word, "")))
		}
		return nil
	}
}

// SuggestValue asks whether word is meant for a flag that is given without its value, which only = can give: --noise 5s.
func SuggestValue(cmd *cobra.Command, word string) (hint string) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.NoOptDefVal != "" && f.Value.Type() != "bool" && f.Value.String() == f.NoOptDefVal {
			hint = fmt.Sprintf(": did you mean --%s=%s?", f.Name, word)
		}
	})
	return hint
}

// Some returns a check for one argument called name, or several.
func Some(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error { return Args(name)(cmd, args[:min(len(args), 1)]) }
}

// Suggest asks whether name is a misspelling of one of names: it returns ": did you mean
// X?", or "" when none is similar. prefix precedes each name, such as "--".
func Suggest(name, prefix string, names []string) string {
	group := &cobra.Command{}
	for _, n := range names {
		group.AddCommand(&cobra.Command{Use: n, Run: func(*cobra.Command, []string) {}})
	}
	return SuggestCommand(group, name, prefix)
}

// SuggestCommand is Suggest for the names of the subcommands of group.
func SuggestCommand(group *cobra.Command, name, prefix string) string {
	group.SuggestionsMinimumDistance = 2
	found := slices.DeleteFunc(group.SuggestionsFor(name), func(near string) bool { // a short word may share nothing with it
		return name == "" || len(name) <= 3 && near[0] != name[0]
	})
	if len(found) == 0 {
		return ""
	}
	return ": did you mean " + prefix + strings.Join(found, " or "+prefix) + "?"
}

// value is the value of a flag whose words set checks.
type value struct {
	kind string // for help texts
	get  func() string
	set  func(word string) error

	words []cobra.Completion // to choose from, if there are few
}

func (v value) String() string        { return v.get() }
func (v value) Type() string          { return v.kind }
func (v value) Set(word string) error { return v.set(word) }

// Choice returns the value of a flag that sets target to one of words.
func Choice(target *string, words ...string) pflag.Value {
	return value{strings.Join(words, "|"), func() string { return *target }, func(word string) error {
		if !slices.Contains(words, word) {
			return fmt.Errorf("want one of %s", strings.Join(words, ", "))
		}
		*target = word
		return nil
	}, words}
}

// Complete makes shells complete the flag name of cmd by f.
func Complete(cmd *cobra.Command, name string, f cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(name, f); err != nil {
		panic(err) // there is no such flag
	}
}

// CompleteChoices makes shells complete the flags of cmd that Choice has made.
func CompleteChoices(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if v, ok := f.Value.(value); ok && len(v.words) > 0 {
			Complete(cmd, f.Name, cobra.FixedCompletions(v.words, cobra.ShellCompDirectiveNoFileComp))
		}
	})
}

// Memory returns the value of a flag that sets target to the memory of a machine in bytes, such as 512MiB.
func Memory(target *int64) pflag.Value {
	return value{"SIZE", func() string { return stack.FormatBytes(*target) }, func(word string) (err error) {
		*target, err = yamldoc.MachineMemory(word)
		return err
	}, nil}
}

// Count returns the value of a flag that sets target to a whole number of at least 1.
func Count(target *int) pflag.Value {
	return value{"count", func() string { return strconv.Itoa(*target) }, console.Count(target, 1), nil}
}

// Time returns the value of a flag that sets target to a time of more than 0. A target of 0 is printed as no default.
func Time(target *time.Duration) pflag.Value {
	text := func() string {
		if *target == 0 {
			return ""
		}
		return target.String()
	}
	return value{"time", text, console.Time(target), nil}
}
