package qmp

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

const greetingLine = `{"QMP": {"version": {"qemu": {"micro": 22, "minor": 2, "major": 7}, "package": "Debian"}, "capabilities": ["oob"]}}` + "\r\n"

// fake is the server's end of a connection, for one goroutine.
type fake struct {
	conn net.Conn
	in   *bufio.Reader
}

func newFake(conn net.Conn) *fake { return &fake{conn: conn, in: bufio.NewReader(conn)} }

// command is one command as the server got it.
type command struct {
	Execute   string
	Arguments map[string]any
	ID        json.RawMessage
}

// next reads one command. It returns errors, because it does not run in the test's
// goroutine.
func (f *fake) next() (command, error) {
	var c command
	line, err := f.in.ReadBytes('\n')
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(line, &c)
}

func (f *fake) say(format string, args ...any) error {
	_, err := fmt.Fprintf(f.conn, format+"\r\n", args...)
	return err
}

// echo answers one command with its arguments.
func (f *fake) echo() error {
	c, err := f.next()
	if err != nil {
		return err
	}
	args, err := json.Marshal(c.Arguments)
	if err != nil {
		return err
	}
	return f.say(`{"return": {"command": %q, "arguments": %s}, "id": %s}`, c.Execute, args, c.ID)
}

// dialFake connects a client to a server that has greeted and granted the
// capabilities, then runs serve, which says how it ended. Both ends are closed,
// and serve's error checked, when the test ends.
func dialFake(t *testing.T, serve func(*fake) error) *Client {
	t.Helper()
	near, far := net.Pipe()
	return dialFakeOn(t, near, far, serve)
}

func dialFakeOn(t *testing.T, near, far net.Conn, serve func(*fake) error) *Client {
	t.Helper()
	served := make(chan error, 1)
	go func() {
		f := newFake(far)
		served <- f.serve(serve)
	}()
	c, err := New(t.Context(), near)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Close()
		_ = far.Close()
		select {
		case err := <-served:
			if err != nil {
				t.Errorf("fake server: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("fake server does not end")
		}
	})
	return c
}

func (f *fake) serve(then func(*fake) error) error {
	if _, err := f.conn.Write([]byte(greetingLine)); err != nil {
		return err
	}
	c, err := f.next()
	if err != nil {
		return err
	}
	if c.Execute != "qmp_capabilities" {
		return fmt.Errorf("first command is %s, want qmp_capabilities", c.Execute)
	}
	if err := f.say(`{"return": {}, "id": %s}`, c.ID); err != nil {
		return err
	}
	return then(f)
}

// unixPair returns the two ends of a unix socket in the file system.
func unixPair(t *testing.T) (near, far *net.UnixConn) {
	t.Helper()
	dir, err := os.MkdirTemp("", "qmp") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err = net.DialUnix("unix", nil, l.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	far, err = l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	return near, far
}
