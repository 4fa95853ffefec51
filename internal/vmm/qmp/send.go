package qmp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

// SendFD gives QEMU a copy of f's descriptor under a name, which a later
// netdev_add takes as fd=name. The descriptor travels in the same sendmsg as
// its getfd command. A second one of the same name replaces the first; QEMU
// closes its copy when netdev_add has taken it and the netdev is deleted, or
// by the command closefd. The caller keeps f and may close it when SendFD has
// returned. It needs a unix socket. name must not begin with a digit.
func (c *Client) SendFD(ctx context.Context, name string, f *os.File) error {
	if _, ok := c.conn.(*net.UnixConn); !ok {
		return fmt.Errorf("send descriptor %s to QEMU: connection is %T, want a unix socket", name, c.conn)
	}
	args := map[string]any{"fdname": name}
	if err := c.roundTrip(ctx, "getfd", args, nil, f); err != nil {
		return fmt.Errorf("send descriptor %s: %w", name, err)
	}
	return nil
}

// send writes one command, whole: commands never interleave. When ctx ends
// before its first byte is out, the connection stays usable; when it ends
// later, the connection is lost.
func (c *Client) send(ctx context.Context, line []byte, fd *os.File) error {
	select {
	case c.writing <- struct{}{}:
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return fmt.Errorf("wait to send: %w", context.Cause(ctx))
	}
	defer func() { <-c.writing }()
	if ctx.Err() != nil {
		return fmt.Errorf("wait to send: %w", context.Cause(ctx))
	}
	release := c.interruptible(ctx)
	n, err := c.write(line, fd)
	release()
	if err == nil {
		return nil
	}
	if closed := c.Err(); closed != nil {
		return closed
	}
	timedOut := errors.Is(err, os.ErrDeadlineExceeded)
	switch {
	case n == 0 && timedOut:
		return fmt.Errorf("send command: %w", context.Cause(ctx))
	case n == 0 && fd != nil && !peerGone(err):
		return fmt.Errorf("attach descriptor: %w", err) // f's fault: nothing was sent
	case timedOut:
		err = fmt.Errorf("command cut off in mid-message: %w", context.Cause(ctx))
	}
	c.fail(fmt.Errorf("send command: %w", err))
	return c.Err()
}

// interruptible makes writes fail once ctx has ended, until release is called.
func (c *Client) interruptible(ctx context.Context) (release func()) {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = c.conn.SetWriteDeadline(time.Unix(1, 0)) // fails only when closed, as the write does then
	})
	return func() {
		if !stop() {
			<-interrupted
			_ = c.conn.SetWriteDeadline(time.Time{})
		}
	}
}

// write writes line with fd (nil: none) attached to its first byte, and returns
// how many bytes are out.
func (c *Client) write(line []byte, fd *os.File) (int, error) {
	if fd == nil {
		return c.conn.Write(line)
	}
	n, err := writeFD(c.conn.(*net.UnixConn), line, fd)
	if err != nil || n == len(line) {
		return n, err
	}
	rest, err := c.conn.Write(line[n:]) // a full socket takes a part; fd went with it
	return n + rest, err
}

// writeFD sends line, or a first part of it, and fd in one sendmsg. It leaves
// fd's blocking mode as it is, which (*os.File).Fd would not.
func writeFD(conn *net.UnixConn, line []byte, fd *os.File) (n int, err error) {
	raw, err := fd.SyscallConn()
	if err != nil {
		return 0, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		n, _, err = conn.WriteMsgUnix(line, syscall.UnixRights(int(fd)), nil)
	})
	if controlErr != nil {
		return 0, controlErr
	}
	return n, err
}
