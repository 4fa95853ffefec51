// Package console is the frame of the command lines of unnest-conformance, unnest-kube and
// unnest-localhost: exit codes, interrupts, flags, and one line of output per outcome.
//
// What they check does not belong here. The command unnest has package cli.
package console

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"unnest.io/unnest/internal/cli/terminal"
)

// The exit codes.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
	exitUnread      = 141
)

// ErrUsage is wrapped by errors in the arguments.
var ErrUsage = errors.New("wrong usage")

// ErrFailed says that a check has failed. The output has already said which one.
var ErrFailed = errors.New("failed")

// Main calls run, whose context ends at a signal and when nobody reads the output any more,
// prints its error to stderr, and returns the exit code: 0 success, 1 a failure, 2 wrong
// usage, 130 interrupted, 141 output that nobody reads. run writes to the writer that it gets.
func Main(name string, stdout, stderr io.Writer, run func(ctx context.Context, stdout io.Writer) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE) // writes fail; by default the signal kills
	defer signal.Stop(pipes)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	switch err := run(ctx, terminal.Watch(stdout, func() { cancel(syscall.EPIPE) })); {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.Is(context.Cause(ctx), syscall.EPIPE):
		return exitUnread
	case errors.Is(err, ErrFailed):
		return exitFailure
	case errors.Is(err, ErrUsage):
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return exitUsage
	case ctx.Err() != nil:
		fmt.Fprintf(stderr, "%s: interrupted\n", name)
		return exitInterrupted
	default:
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return exitFailure
	}
}

// NewFlags returns a flag set that prints nothing. Main prints its errors.
func NewFlags(name string) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	return f
}

// Parse parses args. On --help it prints usage and the flags, and returns flag.ErrHelp.
func Parse(f *flag.FlagSet, args []string, usage string, stdout io.Writer) error {
	err := f.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return errors.Join(err, Help(f, usage, stdout))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	return nil
}

// Help prints usage and the flags, whose texts fit 80 columns.
func Help(f *flag.FlagSet, usage string, stdout io.Writer) error {
	text := &strings.Builder{}
	f.SetOutput(text)
	f.PrintDefaults()
	help := usage
	for line := range strings.Lines(text.String()) {
		if words, ok := strings.CutPrefix(line, "    \t"); ok {
			line = "      " + strings.ReplaceAll(terminal.Fold(strings.TrimSpace(words), 80-6), "\n", "\n      ") + "\n"
		}
		help += line
	}
	_, err := fmt.Fprint(stdout, help)
	return err
}

// Printer prints lines, as text or as JSON.
type Printer struct {
	Out  io.Writer
	JSON bool
	err  error // the first
}

// Line prints v as JSON, or else the text.
func (p *Printer) Line(v any, format string, a ...any) {
	var err error
	if p.JSON {
		err = json.NewEncoder(p.Out).Encode(v)
	} else {
		_, err = fmt.Fprintf(p.Out, format+"\n", a...)
	}
	if p.err == nil {
		p.err = err
	}
}

// End returns the error of a command: its own, that of printing, or ErrFailed.
func (p *Printer) End(err error, failed bool) error {
	switch {
	case err != nil:
		return err
	case p.err != nil:
		return p.err
	case failed:
		return ErrFailed
	}
	return nil
}

// Count returns the function of a flag that sets target to a whole number of at least least.
func Count(target *int, least int) func(word string) error {
	return func(word string) error {
		n, err := strconv.Atoi(word)
		if err != nil || n < least {
			return fmt.Errorf("want a whole number of at least %d", least)
		}
		*target = n
		return nil
	}
}

// Time returns the function of a flag that sets target to a time of more than 0.
func Time(target *time.Duration) func(word string) error {
	return func(word string) error {
		d, err := time.ParseDuration(word)
		if err != nil || d <= 0 {
			return errors.New("want a time of more than 0, such as 30s or 5m")
		}
		*target = d
		return nil
	}
}
