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
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/report/document"
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
	// Debian has modprobe and mkfs.ext4 where the PATH of users, cron and su does not look.
	_ = os.Setenv("PATH", strings.TrimPrefix(os.Getenv("PATH")+":/usr/local/sbin:/usr/sbin:/sbin", ":"))
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

// oneLine returns the text of err in one line, without control characters: it may quote a file. by says why its context ended.
func oneLine(err error, by interrupted) string {
	text := strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
	return document.Clean(strings.ReplaceAll(text, context.Canceled.Error(), by.Error()))
}

// interrupted is the cause of a context that a signal ended.
type interrupted struct{ signal syscall.Signal }

// Error does not name the signal: people press keys, and close pipes.
func (i interrupted) Error() string {
	if i.signal == syscall.SIGPIPE {
		return "interrupted: nobody reads the output any more"
	}
	return "interrupted"
}

// repeatAfter is how long signals after the first are ignored: one interrupt can send
// several. GNU timeout signals the process, and then its group.
const repeatAfter = time.Second

// interruptible returns a context that the first interrupt ends, so that the command
// removes what it has made. Another one, at least repeatAfter later, ends the process at
// once by exit. stop restores the signals. A signal that the parent told this process
// to ignore, as nohup and "&" in scripts do, stays ignored.
//
// A write to the streams that it returns also ends the context, if the pipe behind them is
// closed: unnest bench quickstart 2>&1 | head.
func interruptible(parent context.Context, system terminal.Streams, exit func(int)) (ctx context.Context, streams terminal.Streams, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	streams = system.Watched(func() { cancel(interrupted{syscall.SIGPIPE}) })
	// Writes fail instead of killing. Children would inherit signal.Ignore.
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE)
	signals := make(chan os.Signal, 2)
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		watch(signals, cancel, streams, exit)
	}()
	return ctx, streams, func() {
		signal.Stop(pipes)
		signal.Stop(signals)
		close(signals)
		<-done
		cancel(nil)
	}
}

// watch handles signals until the channel is closed.
func watch(signals <-chan os.Signal, cancel context.CancelCauseFunc, streams terminal.Streams, exit func(int)) {
	first, open := <-signals
	if !open {
		return
	}
	interruptedAt := time.Now()
	cancel(interrupted{first.(syscall.Signal)})
	warn(streams, "interrupted: removing what was made; interrupt again to exit at once")
	for again := range signals {
		if time.Since(interruptedAt) >= repeatAfter {
			warn(streams, "interrupted again: guests, network namespaces and TAP devices of this run may remain; unnest clean removes them")
			exit(exitSignal + int(again.(syscall.Signal)))
			return
		}
	}
}

// warn writes a line, in place of a status line on the terminal.
func warn(streams terminal.Streams, text string) {
	clear := ""
	if streams.ErrWidth > 0 {
		clear = "\r\x1b[K"
	}
	_, _ = io.WriteString(streams.Err, fmt.Sprintf("%sunnest: %s\n", clear, text))
}
