// Package terminal provides the standard streams of a command and the properties of their
// terminal. Output formats belong to the commands.
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
	OutWidth int       // columns of the terminal of Out, 0: not a terminal
	ErrWidth int       // columns of the terminal of Err, 0: not a terminal
	Colour   bool      // Out is a terminal, and colours are enabled
}

// System returns the streams of this process. NO_COLOR (https://no-color.org) and a TERM of
// dumb disable colours.
func System() Streams {
	s := Streams{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		OutWidth: width(os.Stdout), ErrWidth: width(os.Stderr),
	}
	s.Colour = s.IsTTY() && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	return s
}

// IsTTY reports whether Out is a terminal.
func (s Streams) IsTTY() bool { return s.OutWidth > 0 }

// assumed is the width of a terminal that does not report one, such as a serial line.
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
