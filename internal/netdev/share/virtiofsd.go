package share

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Server is a process that serves one volume to one guest by virtiofs.
type Server struct {
	cmd   *exec.Cmd
	said  *os.File // what it says: a file, which is there for it also when we are not
	ended chan struct{}
}

// serverPath is where Debian 12 has QEMU's own virtiofsd. Its successor, which comes
// with QEMU 8, is elsewhere and takes other options.
const serverPath = "/usr/lib/qemu/virtiofsd"

// ErrNoServer is wrapped when there is no virtiofsd of QEMU's own.
var ErrNoServer = errors.New("no virtiofsd: install Debian 12's package qemu-system-common")

// serverOptions keep fractions in agreement: names and attributes are asked for at
// each use, data when a file is opened or has changed, and locks are the host's, so
// that a program that waits for a lock is refused instead of having one that the
// other fractions do not see. Nobody makes device nodes.
const serverOptions = "cache=auto,timeout=0,posix_lock,flock,sandbox=namespace,modcaps=-mknod,log_level=err"

// Serve starts a virtiofsd for a volume's directory. It returns the VMM's end of the
// connection too, which the caller closes when the VMM has it. The server lives as
// long as that connection and no longer: beyond this process, never beyond the VMM.
// It is connected from the beginning, so that none is left that waits for a VMM.
func Serve(dir string) (_ *Server, vmm *os.File, err error) {
	if _, err := os.Stat(serverPath); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrNoServer, err)
	}
	listener, vmm, err := connected()
	if err != nil {
		return nil, nil, fmt.Errorf("serve volume %s: %w", dir, err)
	}
	defer listener.Close()
	// The commas of a path would end the option: it has to be the last of its own.
	if strings.ContainsRune(dir, ',') {
		return nil, nil, errors.Join(fmt.Errorf("serve volume %s: want a path without comma", dir), vmm.Close())
	}
	said, err := unix.MemfdCreate("virtiofsd", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("serve volume %s: %w", dir, err), vmm.Close())
	}
	s := &Server{said: os.NewFile(uintptr(said), "virtiofsd"), ended: make(chan struct{})}
	s.cmd = exec.Command(serverPath, "-f", "--fd=3", "-o", "source="+dir, "-o", serverOptions)
	s.cmd.ExtraFiles = []*os.File{listener} // is number 3
	s.cmd.Stderr = s.said
	s.cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := s.cmd.Start(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("serve volume %s: %w", dir, err), vmm.Close(), s.said.Close())
	}
	go func() {
		_ = s.cmd.Wait() // it ends with an error also when the VMM hangs up
		close(s.ended)
	}()
	return s, vmm, nil
}

// connected returns a listening unix socket and a connection that waits there to be
// accepted. No other can come in between: the socket's file was in a directory of
// our own, and is gone.
func connected() (listener, conn *os.File, err error) {
	dir, err := os.MkdirTemp("", "unnest-volume")
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	address := &net.UnixAddr{Name: filepath.Join(dir, "fs"), Net: "unix"}
	l, err := net.ListenUnix("unix", address)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	c, err := net.DialUnix("unix", nil, address)
	if err != nil {
		return nil, nil, err
	}
	defer c.Close()
	if listener, err = l.File(); err != nil {
		return nil, nil, err
	}
	if conn, err = c.File(); err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	return listener, conn, nil
}

// serverPatience is how long a server has for its end, once its VMM has hung up.
const serverPatience = 2 * time.Second

// Stop ends a server whose VMM has hung up. One that does not end by itself is
// killed.
func (s *Server) Stop() {
	select {
	case <-s.ended:
	case <-time.After(serverPatience):
		_ = s.cmd.Process.Kill() // what it has forked ends with it
		<-s.ended
	}
	_ = s.said.Close() // it was only read
}

// maxWords is how much of a server's last words is told, in bytes.
const maxWords = 300

// Err tells the last words of a server that has ended; nil while it runs.
func (s *Server) Err() error {
	select {
	case <-s.ended:
	default:
		return nil
	}
	said, _ := io.ReadAll(io.NewSectionReader(s.said, 0, 1<<20)) // after Stop there are none
	said = bytes.TrimSpace(said[max(0, len(said)-maxWords):])
	return fmt.Errorf("virtiofsd has ended: %s", said)
}
