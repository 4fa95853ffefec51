package terminal

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWidth(t *testing.T) {
	pty := openTerminal(t)
	if got := width(pty); got != assumed {
		t.Errorf("terminal without a size: width %d, want %d", got, assumed)
	}
	if err := unix.IoctlSetWinsize(int(pty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 132}); err != nil {
		t.Fatal(err)
	}
	if got := width(pty); got != 132 {
		t.Errorf("terminal of 132 columns: width %d", got)
	}
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	if got := width(file); got != 0 {
		t.Errorf("file: width %d, want 0", got)
	}
}

func TestSystemColour(t *testing.T) {
	tests := []struct {
		name, noColour, term, arg string
		terminal, want            bool
	}{
		{"terminal", "", "xterm", "report", true, true},
		{"NO_COLOR", "1", "xterm", "report", true, false},
		{"dumb terminal", "", "dumb", "report", true, false},
		{"--no-color", "", "xterm", "--no-color", true, false},
		{"file", "", "xterm", "report", false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("NO_COLOR", tt.noColour)
			t.Setenv("TERM", tt.term)
			stdout, args := os.Stdout, os.Args
			t.Cleanup(func() { os.Stdout, os.Args = stdout, args })
			os.Args = []string{"unnest", tt.arg}
			if os.Stdout = openFile(t, filepath.Join(t.TempDir(), "out"), os.O_CREATE|os.O_WRONLY); tt.terminal {
				os.Stdout = openTerminal(t)
			}
			if s := System(); s.Colour != tt.want || s.IsTTY() != tt.terminal {
				t.Errorf("colour %v, terminal %v; want %v, %v", s.Colour, s.IsTTY(), tt.want, tt.terminal)
			}
		})
	}
}

// openTerminal returns the slave of a new pseudo-terminal.
func openTerminal(t *testing.T) *os.File {
	t.Helper()
	master := openFile(t, "/dev/ptmx", os.O_RDWR|unix.O_NOCTTY)
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	return openFile(t, "/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY)
}

func openFile(t *testing.T, path string, flags int) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestFold(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"empty", "", ""},
		{"long", "one two three four", "one two\nthree four"},
		{"short lines", "one\ntwo\n\nthree", "one two\n\nthree"},
		{"table", "one two three:\n  a      b  c d e\n  f\nfour five", "one two\nthree:\n  a      b  c d e\n  f\nfour five"},
		{"word that is too long", "one twothreefour five", "one\ntwothreefour\nfive"},
		{"runes", "äöü äöü äöü", "äöü äöü\näöü"},
	} {
		if got := Fold(tt.text, 10); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
