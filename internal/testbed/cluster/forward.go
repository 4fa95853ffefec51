package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/testbed/lab"
)

// ForwardCommand are the arguments of unnest for a process that calls Forward. The directory
// of the lab follows, by which the lab finds and ends it.
var ForwardCommand = []string{"cluster", "forward"}

// forwardAddress returns the address in the administrator's credentials, and an error unless a process listens there.
func (c *Cluster) forwardAddress() (string, error) {
	content, _ := os.ReadFile(c.Kubeconfig())
	_, rest, _ := strings.Cut(string(content), `"server": "https://`)
	address, _, _ := strings.Cut(rest, `"`)
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err == nil {
		err = conn.Close()
	}
	return address, err
}

// forwardAgain calls forward if its process has ended, and reports whether it runs again. Credentials stay as they are.
func (c *Cluster) forwardAgain() (bool, error) {
	address, err := c.forwardAddress()
	if !errors.Is(err, unix.ECONNREFUSED) {
		return false, err
	}
	listener, err := net.Listen("tcp", address)
	if err == nil {
		err = errors.Join(c.forward(listener), listener.Close())
	}
	return err == nil, err
}

// forward makes the API server reachable from this machine's own network namespace, on
// 127.0.0.1, by a process that has the listener and ends with the lab.
func (c *Cluster) forward(listener net.Listener) error {
	socket, err := listener.(*net.TCPListener).File()
	if err == nil {
		defer socket.Close()
		_, err = c.launch(component{name: "forward", program: c.options.Unnest, arguments: append(ForwardCommand, c.Lab.Dir), socket: socket})
	}
	if err != nil {
		return fmt.Errorf("forward to the API server: %w", err)
	}
	return nil
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
	err = accept(listener, func(from net.Conn) { pass(ctx, l, server, from) })
	return errors.Join(err, context.Cause(ctx))
}

// accept calls use with each connection, at the same time for all, until the listener is closed.
func accept(listener net.Listener, use func(net.Conn)) error {
	for {
		from, err := listener.Accept()
		switch {
		case err == nil:
			go use(from)
		case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE): // until clients end connections
			time.Sleep(100 * time.Millisecond)
		default:
			return err
		}
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
