package console

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestMainPrintsTheErrorAndReturnsTheExitCode(t *testing.T) {
	interrupted := func(err error) func(context.Context, io.Writer) error {
		return func(ctx context.Context, _ io.Writer) error {
			if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
				return err
			}
			<-ctx.Done()
			return err
		}
	}
	ended := func(err error) func(context.Context, io.Writer) error {
		return func(context.Context, io.Writer) error { return err }
	}
	closed, stdout, err := os.Pipe() // as behind | true
	if err := errors.Join(err, closed.Close()); err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	// What runs has something to undo: it ends by its context, not by the signal.
	unread := func(ctx context.Context, stdout io.Writer) error {
		_, _ = fmt.Fprintln(stdout, "case 1")
		<-ctx.Done()
		return ctx.Err()
	}
	for _, c := range []struct {
		name    string
		run     func(context.Context, io.Writer) error
		exit    int
		printed string
	}{
		{"well", ended(nil), 0, ""},
		{"help", ended(fmt.Errorf("flags: %w", flag.ErrHelp)), 0, ""},
		{"failed", ended(ErrFailed), 1, ""},
		{"error", ended(errors.New("no such file")), 1, "ask: no such file\n"},
		{"usage", ended(fmt.Errorf("%w: want one", ErrUsage)), 2, "ask: wrong usage: want one\n"},
		{"interrupted", interrupted(context.Canceled), 130, "ask: interrupted\n"},
		{"interrupted at its end", interrupted(nil), 0, ""},
		{"unread", unread, 141, ""},
	} {
		var stderr strings.Builder
		if exit := Main("ask", stdout, &stderr, c.run); exit != c.exit || stderr.String() != c.printed {
			t.Errorf("%s: exit %d, printed %q; want %d, %q", c.name, exit, &stderr, c.exit, c.printed)
		}
	}
}

func TestFlagsPrintNothing(t *testing.T) {
	stderr := os.Stderr
	defer func() { os.Stderr = stderr }()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stderr = write
	err = NewFlags("ask").Parse([]string{"--colour"})
	if err == nil || !strings.Contains(err.Error(), "-colour") {
		t.Errorf("got %v", err)
	}
	if err := NewFlags("ask").Parse([]string{"--help"}); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("got %v", err)
	}
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	if n, _ := read.Read(make([]byte, 1)); n != 0 {
		t.Error("something was printed")
	}
}

// limited fails after a number of writes.
type limited struct {
	strings.Builder
	writes int
}

func (l *limited) Write(text []byte) (int, error) {
	if l.writes--; l.writes < 0 {
		return 0, fmt.Errorf("full at %q", text)
	}
	return l.Builder.Write(text)
}

func TestPrinterReturnsTheFirstError(t *testing.T) {
	out := &limited{writes: 2}
	p := Printer{Out: out}
	p.Line(nil, "%d passed", 1)
	p.JSON = true
	p.Line(map[string]string{"said": "<a>"}, "not printed")
	if err := p.End(nil, false); err != nil || out.String() != "1 passed\n"+`{"said":"\u003ca\u003e"}`+"\n" {
		t.Errorf("printed %q, %v", &out.Builder, err)
	}
	if err := p.End(nil, true); !errors.Is(err, ErrFailed) {
		t.Errorf("a check failed: got %v", err)
	}
	p.JSON = false
	p.Line(nil, "third")
	p.Line(nil, "fourth")
	if err := p.End(nil, true); err == nil || err.Error() != `full at "third\n"` {
		t.Errorf("got %v", err)
	}
	own := errors.New("its own")
	if err := p.End(own, true); !errors.Is(err, own) {
		t.Errorf("got %v, want the error of the command", err)
	}
}

func TestHelpFits(t *testing.T) {
	f := NewFlags("ask")
	f.Bool("long", false, strings.Repeat("word ", 40)+"end")
	f.Int("short", 3, "a `number`")
	var out strings.Builder
	if err := Parse(f, []string{"--help"}, "usage:\n", &out); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("got %v", err)
	}
	lines := strings.Split(out.String(), "\n")
	for _, line := range lines {
		if len(line) > 80 {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	if want := "      a number (default 3)"; lines[0] != "usage:" || !strings.Contains(out.String(), "\n      word word") || !strings.Contains(out.String(), want) || len(lines) != 8 {
		t.Errorf("got\n%s", &out)
	}
}
