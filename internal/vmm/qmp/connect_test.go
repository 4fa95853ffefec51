package qmp

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// fullSocket returns a socket with a full queue of connections, and a function that
// removes one connection from it.
func fullSocket(t *testing.T) (path string, accept func() net.Conn) {
	t.Helper()
	dir, err := os.MkdirTemp("", "qmp") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "s")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), path)
	defer file.Close()
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 1)); err != nil {
		t.Fatal(err)
	}
	l, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	for {
		conn, err := net.Dial("unix", path)
		if errors.Is(err, syscall.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	return path, func() net.Conn {
		conn, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		return conn
	}
}

// Dial waits while the queue is full: QEMU empties it when it notices that the previous
// client was killed.
func TestConnectToFullQueue(t *testing.T) {
	path, accept := fullSocket(t)
	time.AfterFunc(3*retryPause, func() { accept().Close() })
	conn, err := connect(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestConnectToQueueThatStaysFull(t *testing.T) {
	path, _ := fullSocket(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*retryPause)
	defer cancel()
	if conn, err := connect(ctx, path); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("got %v, %v; want the end of the wait, and why", conn, err)
	}
	begin := time.Now()
	if conn, err := connect(t.Context(), path); !errors.Is(err, syscall.EAGAIN) || time.Since(begin) < retryTime {
		t.Errorf("got %v, %v after %v; want what is wrong, after %v", conn, err, time.Since(begin), retryTime)
	}
}
