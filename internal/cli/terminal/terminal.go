// Package terminal is where a command reads and writes: three streams, and what
// is known of the terminal behind them. What is written belongs to the commands.
package terminal

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Streams are the standard streams of a command.
type Streams struct {
	In       io.Reader
	Out      io.Writer // results
	Err      io.Writer // progress, warnings, errors
	OutWidth int       // columns of the terminal behind Out, 0: not a terminal
	ErrWidth int       // columns of the terminal behind Err, 0: not a terminal
	Colour   bool      // Out is a terminal that is to show colours
}

// System returns the streams of this process. Colour follows the terminal unless
// NO_COLOR is set (https://no-color.org) or TERM is dumb.
func System() Streams {
	s := Streams{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		OutWidth: width(os.Stdout), ErrWidth: width(os.Stderr),
	}
	s.Colour = s.IsTTY() && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return s
}

// IsTTY reports whether results go to a terminal.
func (s Streams) IsTTY() bool { return s.OutWidth > 0 }

// assumed is the width of a terminal that does not tell its own, such as a
// serial line.
const assumed = 80

func width(f *os.File) int {
	fd := int(f.Fd())
	if !term.IsTerminal(fd) {
		return 0
	}
	if columns, _, err := term.GetSize(fd); err == nil && columns > 0 {
		return columns
	}
	return assumed
}
