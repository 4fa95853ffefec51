package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"unnest/internal/cli/terminal"
)

// interrupted is the cause of a context that a signal has ended.
type interrupted struct{ signal syscall.Signal }

// Error says what happened, not which signal: people press keys.
func (i interrupted) Error() string { return "interrupted" }

// interruptible returns a context that the first interrupt ends, so that the
// command undoes what it has begun; the second leaves at once by exit. stop
// gives the signals back. A signal that the parent told this process to ignore,
// as nohup and "&" in scripts do, stays ignored.
func interruptible(parent context.Context, streams terminal.Streams, exit func(int)) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
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
	return ctx, func() {
		signal.Stop(signals)
		close(signals)
		<-done
		cancel(nil)
	}
}

// watch obeys signals until there are no more.
func watch(signals <-chan os.Signal, cancel context.CancelCauseFunc, streams terminal.Streams, exit func(int)) {
	first, open := <-signals
	if !open {
		return
	}
	cancel(interrupted{first.(syscall.Signal)})
	warn(streams, "interrupted: undoing what was begun; once more leaves at once")
	second, open := <-signals
	if !open {
		return
	}
	warn(streams, "interrupted again: guests, network namespaces and TAP devices of this run may remain; the next start of unnest removes them")
	exit(exitSignal + int(second.(syscall.Signal)))
}

// warn writes a line, over a status line that may stand on the terminal.
func warn(streams terminal.Streams, text string) {
	clear := ""
	if streams.ErrWidth > 0 {
		clear = "\r\x1b[K"
	}
	_, _ = io.WriteString(streams.Err, fmt.Sprintf("%sunnest: %s\n", clear, text))
}
