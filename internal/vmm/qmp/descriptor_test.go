package qmp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Each descriptor arrives with its own getfd, among concurrent commands.
func TestSendFD(t *testing.T) {
	const fds, others = 30, 300
	near, far := unixPair(t)
	c := dialFakeOn(t, near, far, func(f *fake) error { return checkFDs(f, far, fds+others) })
	var wg sync.WaitGroup
	for i := range fds {
		name := fmt.Sprintf("fd%d", i)
		wg.Go(func() {
			r, w, err := os.Pipe()
			if err != nil {
				t.Error(err)
				return
			}
			defer r.Close()
			if _, err := w.WriteString(name); err != nil {
				t.Error(err)
			}
			w.Close()
			if err := c.SendFD(t.Context(), name, r); err != nil {
				t.Error(err)
			}
		})
	}
	for range others {
		wg.Go(func() {
			if err := c.Execute(t.Context(), "query-status", nil, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// checkFDs reads commands byte by byte, as QEMU does, and checks that exactly the first
// bytes of getfd commands come with a descriptor: the pipe that holds the name.
func checkFDs(f *fake, conn *net.UnixConn, commands int) error {
	if f.in.Buffered() > 0 {
		return errors.New("commands came before the capabilities were granted")
	}
	for range commands {
		line, fd, err := readFD(conn)
		if err != nil {
			return err
		}
		var cmd command
		if err := json.Unmarshal(line, &cmd); err != nil {
			return fmt.Errorf("commands are interleaved: %w: %s", err, line)
		}
		if (cmd.Execute == "getfd") != (fd != nil) {
			return fmt.Errorf("command %s, descriptor %v", line, fd)
		}
		if fd != nil {
			name, err := io.ReadAll(fd)
			_ = fd.Close()
			if err != nil {
				return fmt.Errorf("read descriptor of getfd: %w", err)
			}
			if string(name) != cmd.Arguments["fdname"] {
				return fmt.Errorf("getfd %v came with descriptor of %q", cmd.Arguments["fdname"], name)
			}
		}
		if err := f.say(`{"return": {}, "id": %s}`, cmd.ID); err != nil {
			return err
		}
	}
	return nil
}

// readFD reads one line and the descriptor that came with its first byte.
func readFD(conn *net.UnixConn) (line []byte, fd *os.File, err error) {
	for {
		b, oob := make([]byte, 1), make([]byte, syscall.CmsgSpace(4))
		_, n, _, _, err := conn.ReadMsgUnix(b, oob)
		if err != nil {
			return line, fd, err
		}
		if n > 0 {
			if len(line) > 0 {
				return line, fd, fmt.Errorf("descriptor within a command, after %q", line)
			}
			if fd, err = parseFD(oob[:n]); err != nil {
				return line, fd, err
			}
		}
		if line = append(line, b...); b[0] == '\n' {
			return line, fd, nil
		}
	}
}

func parseFD(oob []byte) (*os.File, error) {
	msgs, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	fds, err := syscall.ParseUnixRights(&msgs[0])
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fds[0]), "received"), nil
}

// A getfd that is longer than the free space of the socket is sent in parts, the
// descriptor with the first.
func TestSendFDInParts(t *testing.T) {
	near, far := unixPair(t)
	c := dialFakeOn(t, near, far, func(f *fake) error {
		line, fd, err := readFD(far)
		if err != nil {
			return err
		}
		if fd == nil {
			return errors.New("no descriptor came")
		}
		_ = fd.Close()
		var cmd command
		if err := json.Unmarshal(line, &cmd); err != nil {
			return err
		}
		return f.say(`{"return": {}, "id": %s}`, cmd.ID)
	})
	if err := near.SetWriteBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if err := c.SendFD(t.Context(), "x"+strings.Repeat("y", 256<<10), null); err != nil {
		t.Errorf("send descriptor of long name: %.200s", err)
	}
}

func TestSendFDRefused(t *testing.T) {
	near, far := unixPair(t)
	c := dialFakeOn(t, near, far, func(f *fake) error { return f.echo() })
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := c.SendFD(t.Context(), "tap", f); err == nil || !strings.Contains(err.Error(), "attach descriptor") || errors.Is(err, ErrClosed) {
		t.Errorf("closed file: got error %v, want it to blame the descriptor", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Execute(ctx, "never", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled context: got error %v", err)
	}
	if err := c.Execute(t.Context(), "next", nil, nil); err != nil {
		t.Errorf("next command: %v", err)
	}
	piped := dialFake(t, func(*fake) error { return nil })
	if err := piped.SendFD(t.Context(), "tap", f); err == nil || !strings.Contains(err.Error(), "want a unix socket") {
		t.Errorf("no unix socket: got error %v", err)
	}
}
