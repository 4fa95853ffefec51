package qemu

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// PID returns the process that listens on a QMP socket. It does not wait for QEMU to
// answer, which takes the connection for a client that hangs up at once; so it is
// not asked while the socket has another client that matters. When nobody listens,
// the error is that of Dial.
func PID(ctx context.Context, socket string) (pid int, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, fmt.Errorf("find process of QMP socket: %w", err)
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("find process of QMP socket %s: %w", socket, err)
	}
	var peer *unix.Ucred
	controlErr := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(controlErr, err); err != nil {
		return 0, fmt.Errorf("find process of QMP socket %s: %w", socket, err)
	}
	return int(peer.Pid), nil
}
