package qemu

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPID(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "qmp")
	if _, err := PID(t.Context(), socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no socket: got %v", err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // no process accepts
		if pid, err := PID(t.Context(), socket); pid != os.Getpid() || err != nil {
			t.Errorf("got %d, %v, want %d", pid, err, os.Getpid())
		}
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := PID(t.Context(), socket); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("socket without a listener: got %v", err)
	}
}
