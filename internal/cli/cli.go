// Package cli is the command line of unnest: the tree of commands, the exit
// codes, the wording of errors and what an interrupt does.
//
// What a command does belongs to its own package below this one, and what it
// stands on to the rooms of the house: nothing outside cmd imports this package.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"unnest/internal/cli/terminal"
	"unnest/internal/cli/usage"
)

// The exit codes. An interrupted command gives exitSignal plus the number of
// the signal, as shells do: 130 for SIGINT.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	exitSignal  = 128
)

// Main runs the command that this process was called with and returns its exit
// code: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
func Main() int {
	streams := terminal.System()
	ctx, stop := interruptible(context.Background(), streams, os.Exit)
	defer stop()
	return execute(ctx, newRootCmd(streams), streams.Err)
}

// execute runs root and tells on w why it has failed.
func execute(ctx context.Context, root *cobra.Command, w io.Writer) int {
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	// There is nowhere left to complain when stderr is gone.
	_, _ = fmt.Fprintf(w, "unnest: %s\n", oneLine(err))
	if _, wrong := errors.AsType[*usage.Error](err); wrong {
		_, _ = fmt.Fprintf(w, "see %s --help\n", cmd.CommandPath())
		return exitUsage
	}
	if by, yes := errors.AsType[interrupted](context.Cause(ctx)); yes {
		return exitSignal + int(by.signal)
	}
	return exitFailure
}

// oneLine words err in one line.
func oneLine(err error) string {
	text := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
	return strings.ReplaceAll(text, context.Canceled.Error(), "interrupted")
}
