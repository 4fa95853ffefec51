package qmp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Client is one connection to one QEMU. It is safe for concurrent use. QEMU
// serves one connection per QMP socket at a time.
type Client struct {
	conn    net.Conn
	version Version
	greeted chan Version  // takes the version from the greeting
	met     bool          // the greeting has come; the reader's own
	writing chan struct{} // holds a token while a command is being written
	lastID  atomic.Uint64
	done    chan struct{} // closed when the connection has ended, err set before
	idle    chan struct{} // closed when the reader has returned

	mu      sync.Mutex
	pending map[uint64]chan<- message // commands sent and not answered
	subs    map[*Subscription]struct{}
	err     error // wraps ErrClosed, once the connection has ended
}

// maxSocketPath is what fits in sockaddr_un, without the final NUL.
const maxSocketPath = 107

// Dial connects to the QMP unix socket at path and negotiates capabilities.
// When ctx ends first, the connection is closed again.
func Dial(ctx context.Context, path string) (*Client, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("dial QMP socket %s: path has %d bytes, want at most %d", path, len(path), maxSocketPath)
	}
	conn, err := connect(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("dial QMP socket: %w", err)
	}
	c, err := New(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("dial QMP socket %s: %w", path, err)
	}
	return c, nil
}

// A queue of connections that is full is tried again after queuePause, until
// queuePatience is over.
const (
	queuePause    = 20 * time.Millisecond
	queuePatience = 2 * time.Second
)

// connect connects to a unix socket. QEMU's has room for one connection that waits,
// which may be that of a client that was killed, until QEMU finds out.
func connect(ctx context.Context, path string) (net.Conn, error) {
	var full error
	for end := time.Now().Add(queuePatience); ; {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if full != nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
			return nil, fmt.Errorf("%w: %w", err, full)
		}
		if !errors.Is(err, syscall.EAGAIN) || time.Now().After(end) {
			return conn, err
		}
		full = err
		select {
		case <-ctx.Done():
		case <-time.After(queuePause):
		}
	}
}

// New reads the greeting from conn and negotiates capabilities. It owns conn
// from then on, also when it returns an error.
func New(ctx context.Context, conn net.Conn) (*Client, error) {
	c := &Client{
		conn:    conn,
		greeted: make(chan Version, 1),
		writing: make(chan struct{}, 1),
		done:    make(chan struct{}),
		idle:    make(chan struct{}),
		pending: map[uint64]chan<- message{},
		subs:    map[*Subscription]struct{}{},
	}
	go c.read()
	if err := c.negotiate(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Client) negotiate(ctx context.Context) error {
	select {
	case c.version = <-c.greeted:
	case <-c.done:
		return fmt.Errorf("wait for QMP greeting: %w", c.err)
	case <-ctx.Done():
		return fmt.Errorf("wait for QMP greeting: %w (QEMU greets one client at a time: is another one connected?)", context.Cause(ctx))
	}
	return c.Execute(ctx, "qmp_capabilities", nil, nil)
}

// Version returns QEMU's version, as the greeting told it.
func (c *Client) Version() Version { return c.version }

// Done is closed when the connection has ended, by Close or by QEMU.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns why the connection has ended, wrapping ErrClosed, or nil while it
// is up.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection and waits for the reader's end. Commands and
// subscriptions that wait get an error wrapping ErrClosed. It always returns
// nil, and may be called again.
func (c *Client) Close() error {
	c.fail(errors.New("Close was called"))
	<-c.idle
	return nil
}

// Execute runs one command and waits for its reply. args becomes the command's
// arguments (nil: none), the reply is unmarshalled into result (nil: dropped).
//
// A refusal by QEMU is an *Error. When ctx ends, Execute returns its cause; the
// command may still take effect, its late reply is dropped, and the client goes
// on. Only a command that was cut off in the middle of its writing ends the
// connection. Events that QEMU sent before the reply are in every subscription
// when Execute returns.
func (c *Client) Execute(ctx context.Context, command string, args, result any) error {
	return c.roundTrip(ctx, command, args, result, nil)
}

// roundTrip runs one command, with fd (nil: none) attached to it.
func (c *Client) roundTrip(ctx context.Context, command string, args, result any, fd *os.File) error {
	id := c.lastID.Add(1)
	line, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
		ID        uint64 `json:"id"`
	}{command, args, id})
	if err != nil {
		return fmt.Errorf("encode arguments of qmp %s: %w", command, err)
	}
	reply, err := c.expect(id)
	if err == nil {
		defer c.forget(id)
		err = c.send(ctx, append(line, '\n'), fd)
	}
	var m message
	if err == nil {
		m, err = c.await(ctx, reply)
	}
	if err != nil {
		return fmt.Errorf("qmp %s: %w", command, err)
	}
	return m.result(command, result)
}

// result unmarshals a reply into v, or returns QEMU's refusal.
func (m *message) result(command string, v any) error {
	if m.Error != nil {
		return &Error{Class: m.Error.Class, Desc: m.Error.Desc, Command: command}
	}
	if v == nil {
		return nil
	}
	if err := json.Unmarshal(m.Return, v); err != nil {
		return fmt.Errorf("decode reply to qmp %s: %w", command, err)
	}
	return nil
}

// expect makes the reader keep the reply to id.
func (c *Client) expect(id uint64) (<-chan message, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	reply := make(chan message, 1) // the reader never waits for us
	c.pending[id] = reply
	return reply, nil
}

func (c *Client) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
}

// await waits for a reply. One that came before the end of the connection wins
// over that end.
func (c *Client) await(ctx context.Context, reply <-chan message) (message, error) {
	select {
	case m := <-reply:
		return m, nil
	case <-ctx.Done():
		return message{}, fmt.Errorf("wait for reply: %w", context.Cause(ctx))
	case <-c.done:
	}
	select {
	case m := <-reply:
		return m, nil
	default:
		return message{}, c.err
	}
}

// read hands out all that QEMU sends, until the connection ends.
func (c *Client) read() {
	defer close(c.idle)
	d := newDecoder(c.conn, MaxMessage)
	for {
		m, err := d.next()
		if err == nil {
			err = c.dispatch(m)
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

func (c *Client) dispatch(m message) error {
	switch {
	case m.Greeting != nil:
		if c.met {
			return errors.New("QEMU greeted twice")
		}
		c.met = true
		c.greeted <- m.version()
		return nil
	case m.Event != "":
		c.publish(m.event())
		return nil
	}
	id, err := m.replyID()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if reply, ok := c.pending[id]; ok { // else nobody waits for it any more
		delete(c.pending, id)
		reply <- m
	}
	return nil
}

// fail ends the connection for the given cause. Only the first call counts.
func (c *Client) fail(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	if peerGone(cause) {
		cause = fmt.Errorf("QEMU is gone: %w", io.EOF)
	}
	c.err = fmt.Errorf("%w: %w", ErrClosed, cause)
	close(c.done)
	_ = c.conn.Close() // nothing is left to be told to QEMU
}

// peerGone reports whether an error of the socket means that QEMU closed it.
// Which one comes depends on who notices first, the reader or a writer.
func peerGone(err error) bool {
	for _, gone := range []error{io.EOF, io.ErrClosedPipe, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(err, gone) {
			return true
		}
	}
	return false
}
