// Package terminal provides the standard streams of a command and the properties of their
// terminal. Output formats belong to the commands.
package terminal

import (
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

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

// Gate is a writer that drops what is written while it is shut.
type Gate struct {
	io.Writer
	Shut bool
}

func (g *Gate) Write(p []byte) (int, error) {
	if g.Shut {
		return len(p), nil
	}
	return g.Writer.Write(p)
}

// System returns the streams of this process. NO_COLOR (https://no-color.org), a TERM of dumb and the argument
// --no-color disable colours.
func System() Streams {
	s := Streams{
		In: os.Stdin, Out: os.Stdout, Err: os.Stderr,
		OutWidth: width(os.Stdout), ErrWidth: width(os.Stderr),
	}
	s.Colour = s.IsTTY() && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && !slices.Contains(os.Args, "--no-color")
	return s
}

// Watched returns the streams, with a call of closed at each write to Out or Err that finds
// the pipe behind it closed. The process must catch SIGPIPE: by default it kills.
func (s Streams) Watched(closed func()) Streams {
	s.Out, s.Err = Watch(s.Out, closed), Watch(s.Err, closed)
	return s
}

// Ungated returns the streams without a gate, for questions and for what other programs complain of.
func (s Streams) Ungated() Streams {
	if g, ok := s.Err.(*Gate); ok {
		s.Err = g.Writer
	}
	return s
}

// Unwatched returns the streams without the calls of Watched and without a gate, for services: a lost log does
// not end them, and --quiet does not shut it.
func (s Streams) Unwatched() Streams {
	s = s.Ungated()
	for _, w := range []*io.Writer{&s.Out, &s.Err} {
		if watched, ok := (*w).(watched); ok {
			*w = watched.Writer
		}
	}
	return s
}

// Watch returns a writer to w that calls closed at each write that fails with EPIPE.
func Watch(w io.Writer, closed func()) io.Writer { return watched{w, closed} }

type watched struct {
	io.Writer
	closed func()
}

func (w watched) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	if errors.Is(err, syscall.EPIPE) {
		w.closed()
	}
	return n, err
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

// Fold breaks the paragraphs of text between words, into lines of at most width runes. Lines that begin
// with a blank, such as those of tables, stay as they are.
func Fold(text string, width int) string {
	var lines []string
	open := false // the last line takes more words
	for line := range strings.SplitSeq(text, "\n") {
		if line == "" || line[0] == ' ' || line[0] == '\t' {
			lines, open = append(lines, line), false
			continue
		}
		for word := range strings.FieldsSeq(line) {
			if last := len(lines) - 1; open && utf8.RuneCountInString(lines[last]+" "+word) <= width {
				lines[last] += " " + word
			} else {
				lines, open = append(lines, word), true
			}
		}
	}
	return strings.Join(lines, "\n")
}
