package qmp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// SendFD gives QEMU a copy of f's descriptor under a name, which a later
// netdev_add takes as fd=name. A second descriptor of the same name replaces the
// first. QEMU closes its copy by the command closefd or, once netdev_add has
// taken it, with the netdev. The caller keeps f and may close it when SendFD has
// returned. The connection has to be a unix socket, and name must not begin with
// a digit.
func (c *Client) SendFD(ctx context.Context, name string, f *os.File) error {
	if err := c.execute(ctx, "getfd", map[string]any{"fdname": name}, nil, f); err != nil {
		return fmt.Errorf("send descriptor %s: %w", name, err)
	}
	return nil
}

// addedFD marks the descriptors of AddFD.
const addedFD = "unnest"

// FD is a descriptor that QEMU keeps in an fdset until it is removed.
type FD struct {
	Set    int `json:"fdset-id"`
	Number int `json:"fd"` // in QEMU's process
}

// AddFD gives QEMU a copy of f's descriptor and returns its number there. A file
// that QEMU opens as /proc/self/fd/NUMBER stays open after RemoveFD. Like SendFD
// it needs a unix socket, and the caller keeps f.
func (c *Client) AddFD(ctx context.Context, f *os.File) (FD, error) {
	var fd FD
	if err := c.execute(ctx, "add-fd", map[string]any{"opaque": addedFD}, &fd, f); err != nil {
		return fd, fmt.Errorf("add descriptor: %w", err)
	}
	return fd, nil
}

// RemoveFD removes a descriptor that AddFD has added. QEMU closes it at once, or
// when the guest runs next.
func (c *Client) RemoveFD(ctx context.Context, fd FD) error {
	return c.Execute(ctx, "remove-fd", map[string]any{"fdset-id": fd.Set, "fd": fd.Number}, nil)
}

// RemoveLeftFDs removes all descriptors that AddFD has added. If a caller ends before RemoveFD,
// QEMU 7.2 removes them with the last connection to any of its sockets, QEMU 10 never.
func (c *Client) RemoveLeftFDs(ctx context.Context) error {
	var sets []struct {
		ID  int `json:"fdset-id"`
		FDs []struct {
			Number int `json:"fd"`
			Opaque string
		}
	}
	if err := c.Execute(ctx, "query-fdsets", nil, &sets); err != nil {
		return err
	}
	var err error
	for _, set := range sets {
		for _, fd := range set.FDs {
			if fd.Opaque == addedFD {
				err = errors.Join(err, c.RemoveFD(ctx, FD{Set: set.ID, Number: fd.Number}))
			}
		}
	}
	return err
}

// PID returns the process that serves the connection: QEMU, or the process that
// opened the socket for it.
func (c *Client) PID() (int, error) { return PeerPID(c.socket) }

// PeerPID returns the process at the other end of a unix socket.
func PeerPID(conn net.Conn) (int, error) {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("find process of QMP socket: connection is a %T: want a unix socket", conn)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("find process of QMP socket: %w", err)
	}
	var peer *unix.Ucred
	controlErr := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(controlErr, err); err != nil {
		return 0, fmt.Errorf("find process of QMP socket: %w", err)
	}
	return int(peer.Pid), nil
}
