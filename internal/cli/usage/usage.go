// Package usage is what a command line may say: the error for one that is
// wrong, and flags that take one of a few words. Which exit code a wrong command
// line gives belongs to package cli.
package usage

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Error says that the command line is wrong; running the same line again cannot
// work.
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

// Args returns the check that exactly the arguments called names are given.
func Args(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return Errorf("missing argument %s", strings.Join(names[len(args):], " "))
		case len(args) > len(names):
			return Errorf("unexpected argument %q", args[len(names)])
		}
		return nil
	}
}

// choice is the value of a flag that takes one of a few words.
type choice struct {
	target *string
	words  []string
}

// Choice returns the value of a flag that sets target to one of words. Any other
// word is refused when the command line is read, with an error that lists them.
func Choice(target *string, words ...string) pflag.Value {
	return &choice{target, words}
}

// String returns the word chosen.
func (c *choice) String() string { return *c.target }

// Type is shown for the word in help texts.
func (c *choice) Type() string { return strings.Join(c.words, "|") }

// Set chooses word.
func (c *choice) Set(word string) error {
	if !slices.Contains(c.words, word) {
		return fmt.Errorf("want one of %s", strings.Join(c.words, ", "))
	}
	*c.target = word
	return nil
}
