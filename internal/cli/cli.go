// Package cli is the command line of unnest: the tree of commands, exit codes, error
// messages and interrupts.
//
// Each command has its own package below this one, which turns flags into options and
// calls the packages that do the work. Only cmd imports this package.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
)

// Exit codes. An interrupted command exits with exitSignal plus the number of the
// signal, as shells do: 130 for SIGINT, 141 if nobody reads the output any more.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	exitSignal  = 128
)

// Main runs the command line of this process and returns its exit code: 0 success,
// 1 failure, 2 wrong usage, 130 interrupted, 141 if nobody reads the output any more.
func Main() int {
	ctx, streams, stop := interruptible(context.Background(), terminal.System(), os.Exit)
	defer stop()
	return execute(ctx, newRootCmd(streams), streams.Err)
}

// Commands returns the tree of commands, for the manual and the completions. They print nothing.
func Commands() *cobra.Command {
	return newRootCmd(terminal.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard})
}

// execute runs root, writes an error to w and returns the exit code.
func execute(ctx context.Context, root *cobra.Command, w io.Writer) int {
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	if exit, said := errors.AsType[usage.Exit](err); said {
		return int(exit)
	}
	by, stopped := errors.AsType[interrupted](context.Cause(ctx))
	if stopped && by.signal == syscall.SIGPIPE && unread(err) {
		return exitSignal + int(by.signal)
	}
	// An error of stderr cannot be reported.
	_, _ = fmt.Fprintf(w, "unnest: %s\n", oneLine(err, by))
	if _, wrong := errors.AsType[*usage.Error](err); wrong {
		_, _ = fmt.Fprintf(w, "see %s --help\n", cmd.CommandPath())
		return exitUsage
	}
	if stopped {
		return exitSignal + int(by.signal)
	}
	return exitFailure
}

// unread reports whether a command ended only because its output could not be written, which
// is no news to who closed it: unnest report RUN | head.
func unread(err error) bool {
	_, stopped := errors.AsType[interrupted](err)
	return errors.Is(err, syscall.EPIPE) && !stopped && !errors.Is(err, context.Canceled)
}

// oneLine returns the text of err in one line. by says why its context ended.
func oneLine(err error, by interrupted) string {
	text := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
	return strings.ReplaceAll(text, context.Canceled.Error(), by.Error())
}
