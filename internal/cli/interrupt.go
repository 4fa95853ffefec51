package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"unnest.io/unnest/internal/cli/terminal"
)

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
