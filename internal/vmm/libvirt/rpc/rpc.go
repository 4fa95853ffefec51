// Package rpc speaks libvirt's remote protocol with one libvirtd over its unix
// socket: single calls about domains, and their events.
//
// The protocol is described in libvirt's documentation ("libvirt RPC
// infrastructure internals") and defined by src/remote/remote_protocol.x. libvirt
// never changes its numbers and types: a client for an old version works with every
// later one.
//
// What to attach where, and what an event means for a NIC, do not belong here.
package rpc

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"unnest.io/unnest/internal/vmm/multiplex"
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

// CodeNoDomain is the error code for a domain that does not exist
// (VIR_ERR_NO_DOMAIN).
const CodeNoDomain = 42

// Client is one connection to libvirtd. It is safe for concurrent use.
type Client struct {
	conn   *multiplex.Conn[reply]
	handle func(Event) error
}

type reply struct {
	ok   bool // else body is an error
	body []byte
}

// header begins every message, after the message's length.
type header struct {
	program, version, procedure, kind, serial, status uint32
}

func (h header) message(body []byte) []byte {
	m := binary.BigEndian.AppendUint32(nil, uint32(4+headerSize+len(body)))
	for _, word := range []uint32{h.program, h.version, h.procedure, h.kind, h.serial, h.status} {
		m = binary.BigEndian.AppendUint32(m, word)
	}
	return append(m, body...)
}

const (
	program    = 0x20008086 // REMOTE_PROGRAM
	ofQEMU     = 0x20008087 // QEMU_PROGRAM: what only libvirt's driver for QEMU has
	version    = 1
	headerSize = 24
	maxMessage = 32 << 20 // with its length; libvirt's VIR_NET_MESSAGE_MAX

	kindCall  = 0
	kindReply = 1
	kindEvent = 2

	statusOK = 0
)

// Dial connects to libvirtd's unix socket and opens its QEMU driver. It calls
// handle with each event, in order; handle must not wait, and its error ends the
// connection. When ctx ends first, Dial closes the connection again.
func Dial(ctx context.Context, socket string, handle func(Event) error) (*Client, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("dial libvirt's socket: %w", err)
	}
	c := &Client{conn: multiplex.New[reply](conn, "libvirtd", ErrClosed), handle: handle}
	c.conn.Start(func() error {
		h, body, err := receive(conn)
		if err != nil {
			return err
		}
		return c.dispatch(h, body)
	})
	if err := c.open(ctx); err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("dial libvirt's socket %s: %w", socket, err)
	}
	return c, nil
}

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.conn.Done() }

// Err returns why the connection has ended, wrapping ErrClosed, or nil while it
// is up.
func (c *Client) Err() error { return c.conn.Err() }

// Close ends the connection and waits until the reader has returned. It always
// returns nil, and may be called again.
func (c *Client) Close() error { return c.conn.Close() }

// call makes one call and returns the body of its reply. A refusal is an *Error.
// When ctx ends, call returns its cause; the call may still take effect.
func (c *Client) call(ctx context.Context, procedure uint32, args ...any) (*decoder, error) {
	return c.callProgram(ctx, program, procedure, args...)
}

func (c *Client) callProgram(ctx context.Context, program, procedure uint32, args ...any) (*decoder, error) {
	r, err := c.conn.RoundTrip(ctx, nil, func(serial uint32) ([]byte, error) {
		return header{program, version, procedure, kindCall, serial, statusOK}.message(encode(args...)), nil
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("call libvirt: %w", err)
	case !r.ok:
		return nil, parseError(r.body)
	}
	return &decoder{rest: r.body}, nil
}

func parseError(body []byte) error {
	d := decoder{rest: body}
	e := &Error{Code: int(d.int())}
	d.int() // the part of libvirt
	e.Message = d.optionalString()
	if d.err != nil {
		return fmt.Errorf("decode libvirt's error: %w", d.err)
	}
	return e
}

func receive(r io.Reader) (header, []byte, error) {
	var prefix [4 + headerSize]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return header{}, nil, err
	}
	word := func(i int) uint32 { return binary.BigEndian.Uint32(prefix[4*i:]) }
	size := word(0)
	if size < uint32(len(prefix)) || size > maxMessage {
		return header{}, nil, fmt.Errorf("message has %d bytes, want %d to %d", size, len(prefix), maxMessage)
	}
	body := make([]byte, size-uint32(len(prefix)))
	_, err := io.ReadFull(r, body)
	return header{word(1), word(2), word(3), word(4), word(5), word(6)}, body, err
}

func (c *Client) dispatch(h header, body []byte) error {
	if h.program != program && (h.program != ofQEMU || h.kind != kindReply) || h.version != version {
		return fmt.Errorf("message of program %#x version %d, want %#x version %d", h.program, h.version, program, version)
	}
	switch h.kind {
	case kindEvent:
		return c.dispatchEvent(h.procedure, &decoder{rest: body})
	case kindReply:
		c.conn.Deliver(h.serial, reply{ok: h.status == statusOK, body: body})
		return nil
	}
	return fmt.Errorf("message of kind %d, want a reply or an event", h.kind)
}

// optional precedes a value that could be missing.
const optional = int32(1)

// encode writes values in XDR (RFC 4506): big-endian words of four bytes. A value is
// an int32, a string or a Domain.
func encode(values ...any) []byte {
	var out []byte
	opaque := func(b []byte) {
		out = append(append(out, b...), make([]byte, padding(len(b)))...)
	}
	for _, v := range values {
		switch v := v.(type) {
		case int32:
			out = binary.BigEndian.AppendUint32(out, uint32(v))
		case string:
			out = binary.BigEndian.AppendUint32(out, uint32(len(v)))
			opaque([]byte(v))
		case Domain:
			out = append(out, encode(v.Name)...)
			opaque(v.uuid[:])
			out = append(out, encode(v.id)...)
		default:
			panic(fmt.Sprintf("encode a %T in XDR: want int32, string or Domain", v))
		}
	}
	return out
}

// padding returns how many bytes fill n bytes up to whole words.
func padding(n int) int { return -n & 3 }

var errShort = errors.New("message is too short")

// decoder takes values from the front of a message. After an error it returns
// zeros.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) bytes(n int) []byte {
	whole := n + padding(n)
	if d.err == nil && (n < 0 || whole > len(d.rest)) {
		d.err = fmt.Errorf("%w: want %d bytes, have %d", errShort, n, len(d.rest))
	}
	if d.err != nil {
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[whole:]
	return b
}

func (d *decoder) int() int32 {
	if b := d.bytes(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (d *decoder) string() string { return string(d.bytes(int(d.int()))) }

// optionalString returns "" for a missing string.
func (d *decoder) optionalString() string {
	if d.int() == 0 {
		return ""
	}
	return d.string()
}

func (d *decoder) domain() Domain {
	var m Domain
	m.Name = d.string()
	copy(m.uuid[:], d.bytes(len(m.uuid)))
	m.id = d.int()
	return m
}
