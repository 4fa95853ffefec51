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
	"syscall"
	"time"

	"unnest.io/unnest/internal/vmm/multiplex"
)

// Client is one connection to one QEMU. It is safe for concurrent use. QEMU
// serves one connection per QMP socket at a time.
type Client struct {
	conn    *multiplex.Conn[message]
	socket  net.Conn
	greeted chan struct{} // closed by the reader when the greeting has come
	met     bool          // greeted is closed; used by the reader only

	mu   sync.Mutex
	subs map[*Subscription]struct{}
}

// maxSocketPath is the capacity of sockaddr_un, without the final NUL.
const maxSocketPath = 107

// Dial connects to the QMP unix socket at path and negotiates capabilities. When
// ctx ends first, it closes the connection again.
func Dial(ctx context.Context, path string) (*Client, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("dial QMP socket %s: path has %d bytes: want at most %d", path, len(path), maxSocketPath)
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

// When the socket's queue is full, connect tries again every retryPause for at
// most retryTime.
const (
	retryPause = 20 * time.Millisecond
	retryTime  = 2 * time.Second
)

// connect connects to a unix socket. QEMU's queue has room for one connection,
// which may still be that of a client that was killed.
func connect(ctx context.Context, path string) (net.Conn, error) {
	var full error
	for end := time.Now().Add(retryTime); ; {
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
		case <-time.After(retryPause):
		}
	}
}

// New reads the greeting from conn and negotiates capabilities. It owns conn
// from then on, also when it returns an error.
func New(ctx context.Context, conn net.Conn) (*Client, error) {
	c := &Client{
		conn:    multiplex.New[message](conn, "QEMU", ErrClosed),
		socket:  conn,
		greeted: make(chan struct{}),
		subs:    map[*Subscription]struct{}{},
	}
	d := newDecoder(conn, MaxMessage)
	c.conn.Start(func() error {
		m, err := d.next()
		if err != nil {
			return err
		}
		return c.dispatch(m)
	})
	if err := c.negotiate(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Client) negotiate(ctx context.Context) error {
	select {
	case <-c.greeted:
	case <-c.Done():
		return fmt.Errorf("wait for QMP greeting: %w", c.Err())
	case <-ctx.Done():
		return fmt.Errorf("wait for QMP greeting: %w (QEMU greets one client at a time: is another one connected?)", context.Cause(ctx))
	}
	return c.Execute(ctx, "qmp_capabilities", nil, nil)
}

// Done is closed when the connection has ended, by Close or by QEMU.
func (c *Client) Done() <-chan struct{} { return c.conn.Done() }

// Err returns why the connection has ended, wrapping ErrClosed, or nil while it
// is up.
func (c *Client) Err() error { return c.conn.Err() }

// Close ends the connection and waits until the reader has returned. Commands and
// subscriptions that wait get an error wrapping ErrClosed. It always returns nil,
// and may be called again.
func (c *Client) Close() error { return c.conn.Close() }

// Execute runs one command and waits for its reply. args becomes the command's
// arguments (nil: none); the reply is unmarshalled into result (nil: dropped).
//
// A refusal by QEMU is an *Error. When ctx ends, Execute returns its cause; the
// command may still take effect, and its late reply is dropped. The connection
// ends only if a part of the command has been written by then. When Execute
// returns, every subscription has the events that QEMU sent before the reply.
func (c *Client) Execute(ctx context.Context, command string, args, result any) error {
	return c.execute(ctx, command, args, result, nil)
}

// execute attaches the descriptor of file (nil: none) to the command.
func (c *Client) execute(ctx context.Context, command string, args, result any, file *os.File) error {
	m, err := c.conn.RoundTrip(ctx, file, func(id uint32) ([]byte, error) {
		line, err := json.Marshal(struct {
			Execute   string `json:"execute"`
			Arguments any    `json:"arguments,omitempty"`
			ID        uint32 `json:"id"`
		}{command, args, id})
		if err != nil {
			return nil, fmt.Errorf("encode arguments: %w", err)
		}
		return append(line, '\n'), nil
	})
	if err != nil {
		return fmt.Errorf("qmp %s: %w", command, err)
	}
	return m.result(command, result)
}

func (c *Client) dispatch(m message) error {
	switch {
	case m.Greeting != nil:
		if c.met {
			return errors.New("QEMU greeted twice")
		}
		c.met = true
		close(c.greeted)
		return nil
	case m.Event != "":
		c.publish(Event{Name: m.Event, Data: m.Data, Time: time.Unix(m.Timestamp.Seconds, m.Timestamp.Microseconds*1000)})
		return nil
	}
	id, err := m.replyID()
	if err != nil {
		return err
	}
	c.conn.Deliver(id, m)
	return nil
}

// BlockDrive is a drive of the guest.
type BlockDrive struct {
	TrayOpen bool
	Medium   string // name of the block node in the drive; "": empty
}

// BlockDrive returns the drive of the device with an ID. ok is false if there is none.
func (c *Client) BlockDrive(ctx context.Context, id string) (d BlockDrive, ok bool, err error) {
	var all []struct {
		QDev     string `json:"qdev"`
		TrayOpen bool   `json:"tray_open"`
		Inserted struct {
			Node string `json:"node-name"`
		} `json:"inserted"`
	}
	if err := c.Execute(ctx, "query-block", nil, &all); err != nil {
		return d, false, fmt.Errorf("list drives: %w", err)
	}
	for _, b := range all {
		if b.QDev == id {
			return BlockDrive{b.TrayOpen, b.Inserted.Node}, true, nil
		}
	}
	return d, false, nil
}

// BlockNodes lists the names of the block nodes.
func (c *Client) BlockNodes(ctx context.Context) ([]string, error) {
	var found []struct {
		Node string `json:"node-name"`
	}
	if err := c.Execute(ctx, "query-named-block-nodes", map[string]any{"flat": true}, &found); err != nil {
		return nil, fmt.Errorf("list block nodes: %w", err)
	}
	var all []string
	for _, f := range found {
		all = append(all, f.Node)
	}
	return all, nil
}

// OpenTray opens the tray of a drive, also one that the guest has locked.
func (c *Client) OpenTray(ctx context.Context, id string) error {
	return c.Execute(ctx, "blockdev-open-tray", map[string]any{"id": id, "force": true}, nil)
}

// NetdevAdd creates a network backend. args are those of netdev_add, with "type"
// and "id".
func (c *Client) NetdevAdd(ctx context.Context, args map[string]any) error {
	return c.Execute(ctx, "netdev_add", args, nil)
}

// NetdevDel deletes the network backend with the ID. If a NIC still uses it, the
// NIC's link goes down; QEMU 10 closes the backend's files only with the NIC.
func (c *Client) NetdevDel(ctx context.Context, id string) error {
	return c.Execute(ctx, "netdev_del", map[string]any{"id": id}, nil)
}

// DeviceAdd plugs a device. args are those of device_add, with "driver" and "id",
// and on a pcie-root-port "addr": "0": without it QEMU accepts a second device on
// an occupied port, where no guest can see it.
func (c *Client) DeviceAdd(ctx context.Context, args map[string]any) error {
	return c.Execute(ctx, "device_add", args, nil)
}

// DeviceDel asks the guest to release the device with the ID, and does not wait
// until it has. The event DEVICE_DELETED ends the unplug; it depends on the guest
// and may never come. A repeated DeviceDel may fail: see IsUnplugPending and
// IsNotFound.
func (c *Client) DeviceDel(ctx context.Context, id string) error {
	return c.Execute(ctx, "device_del", map[string]any{"id": id}, nil)
}

// MaxMessage is the longest message accepted from QEMU, in bytes. A longer one
// ends the connection. The largest reply in use (query-qmp-schema) has 200 kB.
const MaxMessage = 64 << 20

// message is a greeting, a reply or an event.
type message struct {
	Greeting *struct{} `json:"QMP"`
	ID       json.RawMessage
	Return   json.RawMessage
	Error    *struct{ Class, Desc string }
	Event    string
	Data     json.RawMessage
	// Timestamp is when QEMU sent an event, by the host's clock.
	Timestamp struct{ Seconds, Microseconds int64 }
}

// check returns an error unless m is exactly one kind of message.
func (m *message) check() error {
	kinds := 0
	for _, is := range []bool{m.Greeting != nil, m.Return != nil, m.Error != nil, m.Event != ""} {
		if is {
			kinds++
		}
	}
	if kinds != 1 {
		return fmt.Errorf("message is %d of greeting, return, error and event: want exactly one", kinds)
	}
	return nil
}

// replyID returns the ID of a reply. Every command carries one, so a reply without
// an ID answers something that QEMU could not read.
func (m *message) replyID() (uint32, error) {
	var id *uint32
	if err := json.Unmarshal(m.ID, &id); err == nil && id != nil {
		return *id, nil
	}
	if m.Error != nil {
		return 0, fmt.Errorf("QEMU refused unreadable input: %s", m.Error.Desc)
	}
	return 0, fmt.Errorf("reply has id %q: want a number", m.ID)
}

// result unmarshals a reply into v (nil: drops it), or returns QEMU's refusal.
func (m *message) result(command string, v any) error {
	switch {
	case m.Error != nil:
		return &Error{Class: m.Error.Class, Desc: m.Error.Desc, Command: command}
	case v == nil:
		return nil
	}
	if err := json.Unmarshal(m.Return, v); err != nil {
		return fmt.Errorf("decode reply to qmp %s: %w", command, err)
	}
	return nil
}

// decoder splits a stream into messages, which may span lines (QEMU's pretty=on).
type decoder struct {
	limited io.LimitedReader
	limit   int64
	json    *json.Decoder
}

// newDecoder returns a decoder that reads at most limit bytes for one message, in
// addition to what it has read ahead.
func newDecoder(r io.Reader, limit int) *decoder {
	d := &decoder{limit: int64(limit), limited: io.LimitedReader{R: r}}
	d.json = json.NewDecoder(&d.limited)
	return d
}

var errTooLong = fmt.Errorf("message is longer than %d MiB", MaxMessage>>20)

// next returns the next message. Any error is final. At the end of the stream,
// between or within messages, the error wraps io.EOF.
func (d *decoder) next() (message, error) {
	d.limited.N = d.limit
	var m message
	err := d.json.Decode(&m)
	switch {
	case err == nil:
		return m, m.check()
	case d.limited.N == 0:
		return m, errTooLong
	case errors.Is(err, io.ErrUnexpectedEOF):
		return m, fmt.Errorf("message is cut off: %w", io.EOF)
	case errors.Is(err, io.EOF):
		return m, err
	}
	return m, fmt.Errorf("decode QMP message: %w", err)
}
