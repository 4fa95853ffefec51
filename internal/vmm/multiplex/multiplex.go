// Package multiplex runs concurrent requests over one connection to a
// hypervisor: requests do not interleave, and each reply goes to the request
// with its ID.
//
// How messages look, and events, belong to the protocols: packages qmp and
// libvirt/rpc.
package multiplex

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Conn is one connection, on which a reply is an R. It is safe for concurrent
// use.
type Conn[R any] struct {
	conn    net.Conn
	peer    string
	closed  error
	writing chan struct{} // holds a token while a request is written
	done    chan struct{} // closed when the connection has ended, after err is set
	idle    chan struct{} // closed when the reader has returned

	mu      sync.Mutex
	lastID  uint32
	pending map[uint32]chan<- R // requests that wait for their replies
	err     error
}

// New returns a connection that owns conn. peer names the other side in errors;
// errors due to the end of the connection wrap closed. Call Start next.
func New[R any](conn net.Conn, peer string, closed error) *Conn[R] {
	return &Conn[R]{
		conn: conn, peer: peer, closed: closed, writing: make(chan struct{}, 1),
		done: make(chan struct{}), idle: make(chan struct{}), pending: map[uint32]chan<- R{},
	}
}

// Start calls receive, which reads and handles one message, in a goroutine until
// it returns an error. The error ends the connection, and so does a panic.
func (c *Conn[R]) Start(receive func() error) {
	go func() {
		defer close(c.idle)
		for {
			if err := contain(receive); err != nil {
				c.fail(err)
				return
			}
		}
	}()
}

func contain(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// Done is closed when the connection has ended.
func (c *Conn[R]) Done() <-chan struct{} { return c.done }

// Err returns why the connection has ended, or nil while it is up.
func (c *Conn[R]) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection and waits until the reader has returned. It always
// returns nil, and may be called again.
func (c *Conn[R]) Close() error {
	c.fail(errors.New("Close was called"))
	<-c.idle
	return nil
}

// RoundTrip writes the request that encode returns for an ID, with the descriptor
// of file (nil: none) attached to its first byte, and waits for the reply.
//
// When ctx ends, RoundTrip returns its cause; the request may still take effect,
// and its late reply is dropped. The connection ends only if a part of the
// request has been written by then.
func (c *Conn[R]) RoundTrip(ctx context.Context, file *os.File, encode func(id uint32) ([]byte, error)) (R, error) {
	var none R
	id, reply, err := c.register()
	if err != nil {
		return none, err
	}
	defer c.unregister(id)
	request, err := encode(id)
	if err == nil {
		err = c.send(ctx, request, file)
	}
	if err != nil {
		return none, err
	}
	select {
	case r := <-reply:
		return r, nil
	case <-ctx.Done():
		return none, fmt.Errorf("wait for reply: %w", context.Cause(ctx))
	case <-c.done:
	}
	select {
	case r := <-reply: // it came before the connection ended
		return r, nil
	default:
		return none, c.Err()
	}
}

func (c *Conn[R]) register() (uint32, <-chan R, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, nil, c.err
	}
	c.lastID++
	reply := make(chan R, 1) // so that Deliver never waits
	c.pending[c.lastID] = reply
	return c.lastID, reply, nil
}

func (c *Conn[R]) unregister(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
}

// Deliver hands a reply to the request with the ID, if it still waits.
func (c *Conn[R]) Deliver(id uint32, r R) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if reply, ok := c.pending[id]; ok {
		delete(c.pending, id)
		reply <- r
	}
}

// send writes one request. It ends the connection if only a part was written.
func (c *Conn[R]) send(ctx context.Context, request []byte, file *os.File) error {
	select {
	case c.writing <- struct{}{}:
	case <-c.done:
		return c.Err()
	case <-ctx.Done():
		return fmt.Errorf("wait to send: %w", context.Cause(ctx))
	}
	defer func() { <-c.writing }()
	if ctx.Err() != nil { // both were ready
		return fmt.Errorf("wait to send: %w", context.Cause(ctx))
	}
	release := c.interruptible(ctx)
	n, err := c.write(request, file)
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
		return fmt.Errorf("send request: %w", context.Cause(ctx))
	case n == 0 && file != nil && !peerGone(err): // the descriptor is at fault
		return fmt.Errorf("attach descriptor: %w", err)
	case timedOut:
		err = fmt.Errorf("request cut off: %w", context.Cause(ctx))
	}
	c.fail(fmt.Errorf("send request: %w", err))
	return c.Err()
}

// interruptible makes writes fail once ctx has ended, until release is called.
func (c *Conn[R]) interruptible(ctx context.Context) (release func()) {
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

// write writes a request and returns how many bytes were written.
func (c *Conn[R]) write(request []byte, file *os.File) (int, error) {
	if file == nil {
		return c.conn.Write(request)
	}
	conn, ok := c.conn.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("connection is a %T: want a unix socket", c.conn)
	}
	n, err := writeFD(conn, request, file)
	if err != nil || n == len(request) {
		return n, err
	}
	rest, err := conn.Write(request[n:]) // a full socket took a part, with the descriptor
	return n + rest, err
}

// writeFD sends the descriptor with the request, or with its first part, in one
// sendmsg. Unlike (*os.File).Fd it keeps the file's blocking mode.
func writeFD(conn *net.UnixConn, request []byte, file *os.File) (n int, err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return 0, err
	}
	controlErr := raw.Control(func(fd uintptr) {
		n, _, err = conn.WriteMsgUnix(request, syscall.UnixRights(int(fd)), nil)
	})
	return n, errors.Join(controlErr, err)
}

// fail ends the connection. Only the cause of the first call counts.
func (c *Conn[R]) fail(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	if peerGone(cause) {
		cause = fmt.Errorf("%s is gone: %w", c.peer, io.EOF)
	}
	c.err = fmt.Errorf("%w: %w", c.closed, cause)
	close(c.done)
	_ = c.conn.Close()
}

// peerGone reports whether an error means that the other side has closed the
// connection. The error depends on who notices first, the reader or a writer.
func peerGone(err error) bool {
	return slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, syscall.EPIPE, syscall.ECONNRESET}, func(gone error) bool { return errors.Is(err, gone) })
}
