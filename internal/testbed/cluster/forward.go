package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/testbed/lab"
)

// ForwardCommand are the arguments of unnest for a process that calls Forward. The directory
// of the lab follows, by which the lab finds and ends it.
var ForwardCommand = []string{"cluster", "forward"}

// forward makes the API server reachable from this machine's own network namespace, on
// 127.0.0.1, by a process that has the listener and ends with the lab, and writes the administrator's credentials.
func (c *Cluster) forward(listener net.Listener) error {
	socket, err := listener.(*net.TCPListener).File()
	if err != nil {
		return fmt.Errorf("forward to the API server: %w", err)
	}
	defer socket.Close()
	log, err := os.Create(c.path("forward.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(c.options.Unnest, append(ForwardCommand, c.Lab.Dir)...)
	cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = []*os.File{socket}, log, log
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("forward to the API server: %w", err)
	}
	go func() { _ = cmd.Wait() }() // no zombie
	return c.writeKubeconfig("admin.conf", "https://"+listener.Addr().String(), "admin", administrators)
}

// Forward passes connections to the socket with descriptor 3 on to the API server, until ctx
// ends.
func Forward(ctx context.Context) error {
	l, err := lab.View(LabName)
	if err != nil {
		return err
	}
	families, err := readFamilies(l)
	if err != nil {
		return err
	}
	server := familiesOf(families)[0].server()
	socket := os.NewFile(3, "listener")
	listener, err := net.FileListener(socket)
	if err != nil {
		return fmt.Errorf("listen on descriptor 3: %w", err)
	}
	defer socket.Close()
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	for {
		from, err := listener.Accept()
		if err != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		go pass(ctx, l, server, from)
	}
}

// pass connects from with the server, and closes it when both directions have ended.
func pass(ctx context.Context, l *lab.Lab, server string, from net.Conn) {
	defer from.Close()
	to, err := l.Dial(ctx, "tcp", server)
	if err != nil {
		return // the client sees that the connection ends
	}
	defer to.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		join(to, from)
	}()
	join(from, to)
	<-done
}

// join copies until from ends, and tells that to to.
func join(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
