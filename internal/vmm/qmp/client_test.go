package qmp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestExecute(t *testing.T) {
	var longDesc = strings.Repeat("x", 1<<20)
	tests := []struct {
		name  string
		reply string // %s is the id
		want  string // value or error
	}{
		{"value", `{"return": {"v": "yes"}, "id": %s}`, "yes"},
		{"id first", `{"id": %s, "return": {"v": "yes"}}`, "yes"},
		{"pretty", "{\n \"return\": {\n  \"v\": \"yes\"\n },\n \"id\": %s\n}", "yes"},
		{"events between", `{"event": "RESUME", "timestamp": {"seconds": 1, "microseconds": 2}}{"return": {"v": "yes"}, "id": %s}`, "yes"},
		{"reply without a request", `{"return": {"v": "no"}, "id": 4711}{"return": {"v": "yes"}, "id": %s}`, "yes"},
		{"generic error", `{"error": {"class": "GenericError", "desc": "Duplicate ID 'x'"}, "id": %s}`, "qmp get: Duplicate ID 'x'"},
		{"class", `{"error": {"class": "DeviceNotFound", "desc": "Device 'x' not found"}, "id": %s}`, "qmp get: Device 'x' not found (DeviceNotFound)"},
		{"long error", `{"error": {"class": "GenericError", "desc": "` + longDesc + `"}, "id": %s}`, "qmp get: " + longDesc},
		{"wrong type", `{"return": [], "id": %s}`, "decode reply to qmp get: json: cannot unmarshal array into Go value of type struct { V string }"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := dialFake(t, func(f *fake) error {
				cmd, err := f.next()
				if err != nil {
					return err
				}
				if err := f.say(tt.reply, cmd.ID); err != nil {
					return err
				}
				return f.echo() // the connection works in any case
			})
			var result struct{ V string }
			got := ""
			if err := c.Execute(t.Context(), "get", nil, &result); err != nil {
				got = err.Error()
			} else {
				got = result.V
			}
			if got != tt.want {
				t.Errorf("got %.200q, want %.200q", got, tt.want)
			}
			if err := c.Execute(t.Context(), "again", nil, nil); err != nil {
				t.Errorf("next command: %v", err)
			}
		})
	}
}

func TestArguments(t *testing.T) {
	c := dialFake(t, func(f *fake) error { return f.echo() })
	var r struct{ Arguments map[string]any }
	if err := c.Execute(t.Context(), "netdev_del", map[string]any{"id": "net\n\"1\""}, &r); err != nil {
		t.Fatal(err)
	}
	if got := r.Arguments["id"]; got != "net\n\"1\"" {
		t.Errorf("server got id %q", got)
	}
	err := c.Execute(t.Context(), "bad", func() {}, nil)
	if err == nil || !strings.Contains(err.Error(), "qmp bad: encode arguments: ") {
		t.Errorf("unencodable arguments: got error %v", err)
	}
}

func TestHugeReply(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 16<<20/16)
	c := dialFake(t, func(f *fake) error {
		cmd, err := f.next()
		if err != nil {
			return err
		}
		return f.say(`{"return": {"v": "%s"}, "id": %s}`, big, cmd.ID)
	})
	var r struct{ V string }
	if err := c.Execute(t.Context(), "get", nil, &r); err != nil {
		t.Fatal(err)
	}
	if r.V != big {
		t.Errorf("got %d bytes, want %d", len(r.V), len(big))
	}
}

func TestTooLongReply(t *testing.T) {
	c := dialFake(t, func(f *fake) error {
		if _, err := f.next(); err != nil {
			return err
		}
		chunk := make([]byte, 1<<20)
		for i := range chunk {
			chunk[i] = ' '
		}
		for range MaxMessage>>20 + 2 {
			if _, err := f.conn.Write(chunk); err != nil {
				return nil // the client hung up, as it should
			}
		}
		return errors.New("client read more than MaxMessage")
	})
	err := c.Execute(t.Context(), "get", nil, nil)
	if !errors.Is(err, ErrClosed) || !errors.Is(err, errTooLong) {
		t.Errorf("got error %v, want ErrClosed for a message too long", err)
	}
}

// When a connection fails, waiting and later calls return the cause.
func TestBadEnd(t *testing.T) {
	tests := []struct {
		name string
		say  string
		want string
		gone bool // QEMU closed it
	}{
		{"closed", "", "QEMU is gone", true},
		{"closed in mid-reply", `{"return": {"v": "y`, "QEMU is gone", true},
		{"garbage", "SSH-2.0-OpenSSH_9.2\r\n", "decode QMP message: invalid character 'S'", false},
		{"not an object", "[1]\r\n", "decode QMP message", false},
		{"no kind", "{}\r\n", "want exactly one", false},
		{"two kinds", `{"return": {}, "event": "X", "id": 1}` + "\r\n", "want exactly one", false},
		{"greeting again", greetingLine, "QEMU greeted twice", false},
		{"reply without id", `{"return": {}}` + "\r\n", "reply has id", false},
		{"reply with a foreign id", `{"return": {}, "id": "x"}` + "\r\n", "reply has id", false},
		{"input refused", `{"error": {"class": "GenericError", "desc": "JSON parse error"}}` + "\r\n", "QEMU refused unreadable input: JSON parse error", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := dialFake(t, func(f *fake) error {
				if _, err := f.next(); err != nil {
					return err
				}
				if _, err := io.WriteString(f.conn, tt.say); err != nil {
					return err
				}
				if tt.gone {
					return f.conn.Close()
				}
				return nil
			})
			s := c.Subscribe()
			defer s.Close()
			err := c.Execute(t.Context(), "get", nil, nil)
			if !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), tt.want) || errors.Is(err, io.EOF) != tt.gone {
				t.Errorf("Execute: got error %v, want ErrClosed with %q, EOF %t", err, tt.want, tt.gone)
			}
			if _, err := s.Next(t.Context()); !errors.Is(err, ErrClosed) {
				t.Errorf("Next: got error %v, want ErrClosed", err)
			}
			if err := c.Execute(t.Context(), "later", nil, nil); !errors.Is(err, ErrClosed) {
				t.Errorf("later Execute: got error %v, want ErrClosed", err)
			}
			<-c.Done()
			if err := c.Err(); !errors.Is(err, ErrClosed) {
				t.Errorf("Err: got %v, want ErrClosed", err)
			}
		})
	}
}

func TestReplyBeforeEndWins(t *testing.T) {
	for range 200 {
		c := dialFake(t, func(f *fake) error {
			if err := f.echo(); err != nil {
				return err
			}
			return f.conn.Close()
		})
		if err := c.Execute(t.Context(), "quit", nil, nil); err != nil {
			t.Fatalf("reply before the end got lost: %v", err)
		}
	}
}

func TestQuit(t *testing.T) {
	t.Run("no reply", func(t *testing.T) {
		c := dialFake(t, func(f *fake) error {
			_, err := f.next()
			return errors.Join(err, f.conn.Close())
		})
		if err := c.Execute(t.Context(), "quit", nil, nil); !errors.Is(err, ErrClosed) || !errors.Is(err, io.EOF) {
			t.Errorf("QEMU gone before its reply: got error %v, want ErrClosed and io.EOF", err)
		}
	})
	t.Run("closed before", func(t *testing.T) {
		c := dialFake(t, func(*fake) error { return nil })
		_ = c.Close()
		if err := c.Execute(t.Context(), "quit", nil, nil); !errors.Is(err, ErrClosed) || errors.Is(err, io.EOF) {
			t.Errorf("after Close: got error %v, want ErrClosed without io.EOF", err)
		}
	})
}

func TestHandshakeFails(t *testing.T) {
	t.Run("no greeting", func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		_, err := New(ctx, near)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "is another one connected?") {
			t.Errorf("got error %v, want a deadline with a hint", err)
		}
	})
	t.Run("closed", func(t *testing.T) {
		near, far := net.Pipe()
		far.Close()
		if _, err := New(t.Context(), near); !errors.Is(err, ErrClosed) || !errors.Is(err, io.EOF) {
			t.Errorf("got error %v, want ErrClosed and io.EOF", err)
		}
	})
	t.Run("no socket", func(t *testing.T) {
		if _, err := Dial(t.Context(), t.TempDir()+"/none"); err == nil {
			t.Error("no error for a socket that does not exist")
		}
	})
	t.Run("path too long", func(t *testing.T) {
		_, err := Dial(t.Context(), "/"+strings.Repeat("x", 107))
		if err == nil || !strings.Contains(err.Error(), "path has 108 bytes: want at most 107") {
			t.Errorf("got error %v", err)
		}
	})
}

// A cancelled wait leaves the client usable, and no other call gets its late reply.
func TestCancelledWait(t *testing.T) {
	asked := make(chan struct{})
	cancelled := make(chan struct{})
	c := dialFake(t, func(f *fake) error {
		first, err := f.next()
		if err != nil {
			return err
		}
		close(asked)
		<-cancelled
		second, err := f.next()
		if err != nil {
			return err
		}
		return errors.Join(
			f.say(`{"return": {"v": "late"}, "id": %s}`, first.ID),
			f.say(`{"return": {"v": "right"}, "id": %s}`, second.ID))
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-asked
		cancel(errors.New("pod is gone"))
	}()
	err := c.Execute(ctx, "slow", nil, nil)
	if err == nil || err.Error() != "qmp slow: wait for reply: pod is gone" {
		t.Errorf("got error %v, want the context's cause", err)
	}
	close(cancelled)
	var r struct{ V string }
	if err := c.Execute(t.Context(), "next", nil, &r); err != nil || r.V != "right" {
		t.Errorf("next command got %q, error %v", r.V, err)
	}
}

// The server does not read. A cancelled write ends the connection only if a part of it
// was written.
func TestCancelledWrite(t *testing.T) {
	t.Run("not begun", func(t *testing.T) {
		resume := make(chan struct{})
		c := dialFake(t, func(f *fake) error {
			<-resume
			return f.echo()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := c.Execute(ctx, "stuck", nil, nil); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrClosed) {
			t.Errorf("got error %v, want deadline exceeded", err)
		}
		close(resume)
		var r struct{ Command string }
		if err := c.Execute(t.Context(), "next", nil, &r); err != nil || r.Command != "next" {
			t.Errorf("next command: got %q, error %v", r.Command, err)
		}
	})
	t.Run("waiting for another", func(t *testing.T) {
		begun, resume := make(chan struct{}), make(chan struct{})
		c := dialFake(t, func(f *fake) error {
			head := make([]byte, 1)
			if _, err := io.ReadFull(f.conn, head); err != nil {
				return err
			}
			close(begun)
			<-resume
			f.in = bufio.NewReader(io.MultiReader(bytes.NewReader(head), f.conn))
			return f.echo()
		})
		first := make(chan error, 1)
		go func() { first <- c.Execute(t.Context(), "first", nil, nil) }()
		<-begun
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := c.Execute(ctx, "second", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v, want deadline exceeded", err)
		}
		close(resume)
		if err := <-first; err != nil {
			t.Errorf("first command: %v", err)
		}
	})
	t.Run("cut off", func(t *testing.T) {
		read := make(chan struct{})
		c := dialFake(t, func(f *fake) error {
			_, err := io.ReadFull(f.conn, make([]byte, 5))
			close(read)
			return err
		})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-read; cancel() }()
		err := c.Execute(ctx, "stuck", nil, nil)
		if !errors.Is(err, ErrClosed) || !errors.Is(err, context.Canceled) {
			t.Errorf("got error %v, want ErrClosed for a cancelled write", err)
		}
	})
}

func TestConcurrentCommands(t *testing.T) {
	const callers = 500
	c := dialFake(t, func(f *fake) error {
		for range callers / 2 { // two by two, answered in reverse
			a, err := f.next()
			if err != nil {
				return err
			}
			b, err := f.next()
			if err != nil {
				return err
			}
			for _, cmd := range []command{b, a} {
				if err := f.say(`{"return": {"v": %q}, "id": %s}`, cmd.Execute, cmd.ID); err != nil {
					return err
				}
			}
		}
		return nil
	})
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			want := fmt.Sprintf("c%d", i)
			var r struct{ V string }
			if err := c.Execute(t.Context(), want, nil, &r); err != nil || r.V != want {
				t.Errorf("command %s got %q, error %v", want, r.V, err)
			}
		})
	}
	wg.Wait()
}

// Close ends all waits, may be repeated, and leaves no goroutine.
func TestCloseLeavesNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		near, far := net.Pipe()
		served := make(chan error, 1)
		go func() {
			f := newFake(far)
			served <- f.serve(func(f *fake) error { _, err := io.Copy(io.Discard, f.in); return err })
		}()
		c, err := New(t.Context(), near)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		s := c.Subscribe()
		wg.Go(func() {
			if _, err := s.Next(context.Background()); !errors.Is(err, ErrClosed) {
				t.Errorf("Next: got error %v, want ErrClosed", err)
			}
		})
		for range 3 {
			wg.Go(func() {
				err := c.Execute(context.Background(), "never", nil, nil)
				if !errors.Is(err, ErrClosed) || errors.Is(err, io.EOF) {
					t.Errorf("Execute: got error %v, want ErrClosed without EOF", err)
				}
			})
		}
		for range 2 {
			wg.Go(func() {
				if err := c.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
		}
		wg.Wait()
		if err := <-served; err != nil {
			t.Errorf("server: %v", err)
		}
	}
	for deadline := time.Now().Add(time.Minute); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}
