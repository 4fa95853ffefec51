// Package rpc speaks libvirt's remote protocol with one libvirtd over its unix
// socket: single calls about domains, and their events. The protocol is
// described in libvirt's documentation ("libvirt RPC infrastructure internals")
// and defined by src/remote/remote_protocol.x, whose numbers and shapes libvirt
// keeps for ever: what was built for an old one works with every later one.
//
// What is attached where, and what an event means for a NIC, do not belong here.
package rpc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// ErrClosed is wrapped by every error that is due to the end of the connection.
var ErrClosed = errors.New("connection to libvirt closed")

// Error is libvirt's refusal of one call. The connection goes on.
type Error struct {
	Code    int    // virErrorNumber of virterror.h
	Message string // libvirt's own words
}

// Error gives libvirt's words.
func (e *Error) Error() string { return "libvirt: " + e.Message }

// CodeNoDomain is the code of the error for a domain that there is not
// (VIR_ERR_NO_DOMAIN).
const CodeNoDomain = 42

// Client is one connection to libvirtd. It is safe for concurrent use.
type Client struct {
	conn    net.Conn
	handle  func(Event) error
	writing chan struct{} // holds a token while a call is being written
	done    chan struct{} // closed when the connection has ended, err set before
	idle    chan struct{} // closed when the reader has returned

	mu      sync.Mutex
	serial  uint32
	pending map[uint32]chan<- reply // calls sent and not answered
	err     error                   // wraps ErrClosed, once the connection has ended
}

type reply struct {
	ok   bool // else body is an error
	body []byte
}

// header begins every message, after the message's length.
type header struct {
	program, version, procedure, kind, serial, status uint32
}

// message returns the whole message with a body.
func (h header) message(body []byte) []byte {
	m := binary.BigEndian.AppendUint32(nil, uint32(4+headerSize+len(body)))
	for _, word := range []uint32{h.program, h.version, h.procedure, h.kind, h.serial, h.status} {
		m = binary.BigEndian.AppendUint32(m, word)
	}
	return append(m, body...)
}

const (
	program    = 0x20008086
	version    = 1
	headerSize = 24
	maxMessage = 32 << 20 // with its length; libvirt's VIR_NET_MESSAGE_MAX

	kindCall  = 0
	kindReply = 1
	kindEvent = 2

	statusOK = 0
)

// Dial connects to libvirtd's unix socket and opens its driver for QEMU. handle
// is called with each event, in order, and must not wait; an error of it ends
// the connection with that error. When ctx ends first, the connection is closed
// again.
func Dial(ctx context.Context, socket string, handle func(Event) error) (*Client, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("dial libvirt's socket: %w", err)
	}
	c := &Client{
		conn: conn, handle: handle, writing: make(chan struct{}, 1),
		done: make(chan struct{}), idle: make(chan struct{}), pending: map[uint32]chan<- reply{},
	}
	go c.read()
	if err := c.open(ctx); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("dial libvirt's socket %s: %w", socket, err)
	}
	return c, nil
}

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns why the connection has ended, wrapping ErrClosed, or nil while it
// is up.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection and waits for the reader's end. It always returns
// nil, and may be called again.
func (c *Client) Close() error {
	c.fail(errors.New("Close was called"))
	<-c.idle
	return nil
}

// call makes one call and returns the body of its reply. A refusal is an *Error.
// When ctx ends, call returns its cause; the call may still take effect.
func (c *Client) call(ctx context.Context, procedure uint32, args encoder) (*decoder, error) {
	serial, answer, err := c.expect()
	if err != nil {
		return nil, err
	}
	defer c.forget(serial)
	if err := c.send(ctx, header{program, version, procedure, kindCall, serial, statusOK}, args); err != nil {
		return nil, err
	}
	r, err := c.await(ctx, answer)
	if err != nil {
		return nil, err
	}
	if !r.ok {
		return nil, parseError(r.body)
	}
	return &decoder{rest: r.body}, nil
}

func parseError(body []byte) error {
	d := decoder{rest: body}
	e := &Error{Code: int(d.int())}
	d.int() // which part of libvirt
	e.Message = d.optionalString()
	if d.err != nil {
		return fmt.Errorf("decode libvirt's error: %w", d.err)
	}
	return e
}

// expect makes the reader keep the reply to a new call.
func (c *Client) expect() (uint32, <-chan reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, nil, c.err
	}
	c.serial++
	answer := make(chan reply, 1) // the reader never waits for us
	c.pending[c.serial] = answer
	return c.serial, answer, nil
}

func (c *Client) forget(serial uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, serial)
}

// send writes one message, whole. A message that is cut off ends the connection.
func (c *Client) send(ctx context.Context, h header, body []byte) error {
	select {
	case c.writing <- struct{}{}:
	case <-c.done:
		return c.Err()
	case <-ctx.Done():
		return fmt.Errorf("wait to call libvirt: %w", context.Cause(ctx))
	}
	defer func() { <-c.writing }()
	if ctx.Err() != nil {
		return fmt.Errorf("wait to call libvirt: %w", context.Cause(ctx))
	}
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetWriteDeadline(time.Unix(1, 0)) })
	_, err := c.conn.Write(h.message(body))
	if !stop() && err == nil {
		err = context.Cause(ctx) // the deadline is or will be set: the connection is of no use
	}
	if err != nil {
		c.fail(fmt.Errorf("send call: %w", err))
		return c.Err()
	}
	return nil
}

// await waits for a reply. One that came before the end of the connection wins
// over that end.
func (c *Client) await(ctx context.Context, answer <-chan reply) (reply, error) {
	select {
	case r := <-answer:
		return r, nil
	case <-ctx.Done():
		return reply{}, fmt.Errorf("wait for libvirt's reply: %w", context.Cause(ctx))
	case <-c.done:
	}
	select {
	case r := <-answer:
		return r, nil
	default:
		return reply{}, c.Err()
	}
}

// read hands out all that libvirtd sends, until the connection ends.
func (c *Client) read() {
	defer close(c.idle)
	for {
		h, body, err := c.receive()
		if err == nil {
			err = c.dispatch(h, body)
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

func (c *Client) receive() (header, []byte, error) {
	var prefix [4 + headerSize]byte
	if _, err := io.ReadFull(c.conn, prefix[:]); err != nil {
		return header{}, nil, err
	}
	word := func(i int) uint32 { return binary.BigEndian.Uint32(prefix[4*i:]) }
	size := word(0)
	if size < uint32(len(prefix)) || size > maxMessage {
		return header{}, nil, fmt.Errorf("message has %d bytes, want %d to %d", size, len(prefix), maxMessage)
	}
	body := make([]byte, size-uint32(len(prefix)))
	_, err := io.ReadFull(c.conn, body)
	return header{word(1), word(2), word(3), word(4), word(5), word(6)}, body, err
}

func (c *Client) dispatch(h header, body []byte) error {
	if h.program != program || h.version != version {
		return fmt.Errorf("message of program %#x version %d, want %#x version %d", h.program, h.version, program, version)
	}
	switch h.kind {
	case kindEvent:
		return c.dispatchEvent(h.procedure, &decoder{rest: body})
	case kindReply:
		c.mu.Lock()
		defer c.mu.Unlock()
		if answer, ok := c.pending[h.serial]; ok { // else nobody waits for it any more
			delete(c.pending, h.serial)
			answer <- reply{ok: h.status == statusOK, body: body}
		}
		return nil
	}
	return fmt.Errorf("message of kind %d, which nothing of ours asks for", h.kind)
}

// fail ends the connection for the given cause. Only the first call counts.
func (c *Client) fail(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	for _, gone := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.EPIPE, syscall.ECONNRESET} {
		if errors.Is(cause, gone) {
			cause = fmt.Errorf("libvirtd is gone: %w", io.EOF)
			break
		}
	}
	c.err = fmt.Errorf("%w: %w", ErrClosed, cause)
	close(c.done)
	_ = c.conn.Close() // nothing is left to be told to libvirtd
}
