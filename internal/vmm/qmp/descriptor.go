package qmp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// PID is the process that serves the connection: QEMU, or whoever opened the socket
// for it.
func (c *Client) PID() (int, error) {
	conn, ok := c.conn.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("find process of QEMU: connection is %T, want a unix socket", c.conn)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("find process of QEMU: %w", err)
	}
	var peer *unix.Ucred
	controlErr := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(controlErr, err); err != nil {
		return 0, fmt.Errorf("find process of QEMU: %w", err)
	}
	return int(peer.Pid), nil
}

// FD is a descriptor that QEMU keeps in a set of its own until it is removed.
type FD struct {
	Set    int `json:"fdset-id"`
	Number int `json:"fd"` // in QEMU's process
}

// AddFD gives QEMU a copy of f's descriptor and tells its number there. What QEMU
// opens by the path /proc/self/fd/NUMBER it has beyond RemoveFD. Like SendFD it
// needs a unix socket, and the caller keeps f.
func (c *Client) AddFD(ctx context.Context, f *os.File) (FD, error) {
	var fd FD
	if _, ok := c.conn.(*net.UnixConn); !ok {
		return fd, fmt.Errorf("add descriptor to QEMU: connection is %T, want a unix socket", c.conn)
	}
	if err := c.roundTrip(ctx, "add-fd", map[string]any{}, &fd, f); err != nil {
		return fd, fmt.Errorf("add descriptor: %w", err)
	}
	return fd, nil
}

// RemoveFD removes a descriptor that AddFD has added. QEMU closes it at once, or
// when the guest runs next.
func (c *Client) RemoveFD(ctx context.Context, fd FD) error {
	return c.Execute(ctx, "remove-fd", map[string]any{"fdset-id": fd.Set, "fd": fd.Number}, nil)
}

// MemoryBackend is one of the backends of the guest's memory and of devices'.
type MemoryBackend struct {
	ID    string
	Share bool // another process can map it
}

// MemoryBackends lists them.
func (c *Client) MemoryBackends(ctx context.Context) ([]MemoryBackend, error) {
	var all []MemoryBackend
	err := c.Execute(ctx, "query-memdev", nil, &all)
	return all, err
}

// Objects lists the IDs of user-created objects, such as memory backends.
func (c *Client) Objects(ctx context.Context) ([]string, error) {
	var nodes []struct{ Name, Type string }
	if err := c.Execute(ctx, "qom-list", map[string]any{"path": "/objects"}, &nodes); err != nil {
		return nil, fmt.Errorf("list objects: %w", err)
	}
	var all []string
	for _, n := range nodes {
		if strings.HasPrefix(n.Type, "child<") { // else the container's own property
			all = append(all, n.Name)
		}
	}
	return all, nil
}

// Chardevs lists the IDs of character devices.
func (c *Client) Chardevs(ctx context.Context) ([]string, error) {
	var found []struct{ Label string }
	if err := c.Execute(ctx, "query-chardev", nil, &found); err != nil {
		return nil, fmt.Errorf("list character devices: %w", err)
	}
	var all []string
	for _, f := range found {
		all = append(all, f.Label)
	}
	return all, nil
}
