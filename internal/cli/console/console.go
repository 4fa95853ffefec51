// Package console is what programs have in common that ask something and say line by
// line what came of it, unnest-conformance and unnest-localhost: exit codes,
// interrupts, flags, lines.
//
// What they ask does not belong here, nor the command unnest, see package cli.
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
	"syscall"
)

// The exit codes.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// ErrUsage is wrapped by errors of who calls the program.
var ErrUsage = errors.New("wrong usage")

// ErrFailed says that something has failed, which was told line by line.
var ErrFailed = errors.New("failed")

// Main runs the program of the given name, until a signal ends ctx, tells on stderr
// why it has failed, and returns the exit code: 0 all is well, 1 something failed, 2
// wrong usage, 130 interrupted.
func Main(name string, stderr io.Writer, run func(ctx context.Context) error) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	switch err := run(ctx); {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitOK
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

// NewFlags returns flags that print nothing by themselves: Main tells what is wrong.
func NewFlags(name string) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	return f
}

// Printer prints line by line. Err is the first error of that.
type Printer struct {
	Out io.Writer
	Err error
}

// JSON prints a value as one line.
func (p *Printer) JSON(v any) { p.keep(json.NewEncoder(p.Out).Encode(v)) }

// Printf prints as fmt.Fprintf does.
func (p *Printer) Printf(format string, a ...any) {
	_, err := fmt.Fprintf(p.Out, format, a...)
	p.keep(err)
}

func (p *Printer) keep(err error) {
	if p.Err == nil {
		p.Err = err
	}
}
