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
	"time"

	"golang.org/x/sys/unix"
)

// Server is a process that serves one volume to one guest by virtiofs.
type Server struct {
	Program Program

	dir    string // of the volume
	cmd    *exec.Cmd
	output *os.File // its output: a file, which outlives this process
	ended  chan struct{}
}

// Serve starts a virtiofsd for a volume's directory. It also returns the VMM's end of
// the connection, which the caller closes when the VMM has its own copy. The server
// lives as long as the connection: it outlives this process, but not the VMM. It never
// waits for a VMM, because it is connected from the start. Its files are limited to
// maxFiles, and the other resources by start, which starts the command.
func Serve(dir string, start func(*exec.Cmd) error) (_ *Server, vmm *os.File, err error) {
	program, err := FindProgram()
	if err != nil {
		return nil, nil, err
	}
	arguments, err := program.arguments(dir, fileLimit())
	if err != nil {
		return nil, nil, fmt.Errorf("serve volume %s: %w", dir, err)
	}
	listener, vmm, err := connected()
	if err != nil {
		return nil, nil, fmt.Errorf("serve volume %s: %w", dir, err)
	}
	defer listener.Close()
	fd, err := unix.MemfdCreate("virtiofsd", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("serve volume %s: %w", dir, err), vmm.Close())
	}
	s := &Server{Program: program, dir: dir, output: os.NewFile(uintptr(fd), "virtiofsd"), ended: make(chan struct{})}
	s.cmd = exec.Command(program.Path, arguments...)
	s.cmd.ExtraFiles = []*os.File{listener} // descriptor 3
	s.cmd.Stderr = s.output
	s.cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := start(s.cmd); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("serve volume %s: %w", dir, err), vmm.Close(), s.output.Close())
	}
	go func() {
		_ = s.cmd.Wait() // fails also when the VMM hangs up
		close(s.ended)
	}()
	return s, vmm, nil
}

// maxFiles is the most files that a guest can have open, or know the names of, in one
// volume: virtiofsd has a descriptor for each. They take some 1.5 KiB of the host's memory.
const maxFiles = 1 << 18

// fileLimit is maxFiles, or less if this process may not have as many.
func fileLimit() uint64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return maxFiles
	}
	return min(maxFiles, l.Max)
}

// connected returns a listening unix socket and a connection that waits to be
// accepted. No one else can connect: the socket's file was in a private directory and
// is deleted.
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

// stopTimeout is the time in which a server ends once its VMM has hung up.
const stopTimeout = 2 * time.Second

// Stop waits for the end of a server whose VMM has hung up, and kills it after
// stopTimeout.
func (s *Server) Stop() {
	select {
	case <-s.ended:
	case <-time.After(stopTimeout):
		_ = s.cmd.Process.Kill() // its child ends with it
		<-s.ended
	}
	_ = s.output.Close()
}

// maxOutput is how much of a server's last output Err returns, in bytes.
const maxOutput = 300

// Err returns the last output of a server that has ended, or nil while it runs.
func (s *Server) Err() error {
	select {
	case <-s.ended:
	default:
		return nil
	}
	out, _ := io.ReadAll(io.NewSectionReader(s.output, 0, 1<<20)) // empty after Stop
	out = bytes.TrimSpace(out[max(0, len(out)-maxOutput):])
	return fmt.Errorf("virtiofsd of %s has ended: %s", s.dir, out)
}
