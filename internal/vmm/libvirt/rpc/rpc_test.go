package rpc

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fake is a libvirtd that answers each call by a function, for answers that a real one
// does not give.
type fake struct {
	t    *testing.T
	conn net.Conn
}

// dialFake connects to a libvirtd that answers the calls of Dial, and then by
// answer, until that returns false.
func dialFake(t *testing.T, handle func(Event) error, answer func(f *fake, h header, body []byte) bool) (*Client, error) {
	t.Helper()
	dir, err := os.MkdirTemp("", "rpc") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		conn, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		f := &fake{t, conn}
		for {
			h, body, err := receive(conn)
			if err != nil || !answer(f, h, body) {
				return
			}
		}
	}()
	t.Cleanup(func() { l.Close(); <-served })
	c, err := Dial(t.Context(), socket, handle)
	if err == nil {
		t.Cleanup(func() { c.Close() })
	}
	return c, err
}

func (f *fake) say(h header, body []byte) {
	f.raw(h.message(body))
}

func (f *fake) raw(b []byte) {
	if _, err := f.conn.Write(b); err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "broken pipe") {
		f.t.Error(err)
	}
}

func (f *fake) reply(h header, status uint32, body []byte) {
	h.kind, h.status = kindReply, status
	f.say(h, body)
}

// welcome answers what Dial asks.
func (f *fake) welcome(h header) bool {
	var body []byte
	switch h.procedure {
	case procAuthList:
		body = encode(int32(2), int32(2), authNone) // two methods: polkit and none
	case procOpen:
	default:
		return false
	}
	f.reply(h, statusOK, body)
	return true
}

func refusal(code int32, message string) []byte {
	const fromQEMU = int32(10) // VIR_FROM_QEMU
	if message == "" {
		return encode(code, fromQEMU, int32(0), int32(2))
	}
	return encode(code, fromQEMU, optional, message, int32(2))
}

func TestCalls(t *testing.T) {
	m := Domain{Name: "node1", uuid: [16]byte{1, 2, 3}, id: 7}
	c, err := dialFake(t, nil, func(f *fake, h header, body []byte) bool {
		d := decoder{rest: body}
		var answer []byte
		switch h.procedure {
		case procLookupByName:
			if name := d.string(); name != "node1" {
				f.reply(h, 1, refusal(CodeNoDomain, "no domain "+name))
				return true
			}
			answer = encode(m)
		case procGetXMLDesc:
			if got := d.domain(); got != m {
				t.Errorf("domain is %+v, want %+v", got, m)
			}
			f.reply(header{program, version, h.procedure, kindReply, h.serial + 100, statusOK}, statusOK, nil) // no call waits for it
			answer = encode("<domain/>")
		default:
			return f.welcome(h)
		}
		f.reply(h, statusOK, answer)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.Lookup(t.Context(), "node1")
	if err != nil || got != m || !got.Running() {
		t.Errorf("got %+v, %v; want %+v", got, err, m)
	}
	if text, err := c.XML(t.Context(), got); err != nil || text != "<domain/>" {
		t.Errorf("got %q, %v", text, err)
	}
	_, err = c.Lookup(t.Context(), "other")
	if e, ok := errors.AsType[*Error](err); !ok || e.Code != CodeNoDomain || err.Error() != "libvirt: no domain other" {
		t.Errorf("got %v, want a refusal", err)
	}
}

// The monitor's command goes to the program of libvirt's driver for QEMU, whose answer is text.
func TestOpenTray(t *testing.T) {
	m := Domain{Name: "node1", uuid: [16]byte{1, 2, 3}, id: 7}
	var answer string
	c, err := dialFake(t, nil, func(f *fake, h header, body []byte) bool {
		if h.program != ofQEMU {
			return f.welcome(h)
		}
		d := decoder{rest: body}
		if got := d.domain(); h.procedure != procMonitorCommand || got != m {
			t.Errorf("call %d for %+v", h.procedure, got)
		}
		if got, want := d.string(), `{"arguments":{"force":true,"id":"ua-x"},"execute":"blockdev-open-tray"}`; got != want {
			t.Errorf("command %s, want %s", got, want)
		}
		f.reply(h, statusOK, encode(answer))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ answer, want string }{
		{`{"return":{},"id":"libvirt-1"}`, ""},
		{`{"id":"libvirt-2","error":{"class":"DeviceNotFound","desc":"Device 'ua-x' not found"}}`, "open tray of ua-x: Device 'ua-x' not found"},
		{`{"return"`, "decode the answer of QEMU's monitor"},
	} {
		answer = tt.answer
		err := c.OpenTray(t.Context(), m, "ua-x")
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.answer, err, tt.want)
		}
	}
}

// When a connection fails, waiting and later calls return the cause.
func TestBadEnd(t *testing.T) {
	event := encode(int32(1), Domain{Name: "node1"})
	for _, tt := range []struct {
		name string
		say  func(f *fake, h header)
		want string
		gone bool
	}{
		{"closed", func(f *fake, _ header) { f.conn.Close() }, "libvirtd is gone", true},
		{"closed in mid-message", func(f *fake, _ header) { f.raw([]byte{0, 0, 1, 0, 1}); f.conn.Close() }, "libvirtd is gone", true},
		{"too short", func(f *fake, _ header) { f.raw(make([]byte, 28)) }, "message has 0 bytes", false},
		{"too long", func(f *fake, _ header) { f.raw([]byte(strings.Repeat("SSH-", 7))) }, "bytes, want 28 to", false},
		{"other program", func(f *fake, h header) { h.program = 1; f.say(h, nil) }, "program 0x1", false},
		{"a call", func(f *fake, h header) { f.say(h, nil) }, "kind 0", false},
		{"event cut off", func(f *fake, h header) {
			h.kind, h.procedure = kindEvent, procDeviceRemoved
			f.say(h, event)
		}, "decode libvirt's event 333: message is too short", false},
		{"event refused", func(f *fake, h header) {
			h.kind, h.procedure = kindEvent, procReboot
			f.say(h, event)
		}, "enough", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := dialFake(t, func(Event) error { return errors.New("enough") }, func(f *fake, h header, _ []byte) bool {
				if !f.welcome(h) {
					tt.say(f, h)
				}
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.Lookup(t.Context(), "node1")
			if !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), tt.want) || errors.Is(err, io.EOF) != tt.gone {
				t.Errorf("got %v, want ErrClosed with %q", err, tt.want)
			}
			if _, err := c.Lookup(t.Context(), "node1"); !errors.Is(err, ErrClosed) {
				t.Errorf("later call: got %v, want ErrClosed", err)
			}
			<-c.Done()
		})
	}
}

func TestBadReplies(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status uint32
		body   []byte
		want   string
	}{
		{"empty", 0, nil, "message is too short"},
		{"huge string", 0, []byte{0x7f, 0xff, 0xff, 0xff}, "message is too short"},
		{"negative string", 0, []byte{0xff, 0xff, 0xff, 0xff}, "message is too short"},
		{"empty error", 1, nil, "decode libvirt's error"},
		{"error without words", 1, refusal(1, ""), "libvirt: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c, err := dialFake(t, nil, func(f *fake, h header, _ []byte) bool {
				if !f.welcome(h) {
					f.reply(h, tt.status, tt.body)
				}
				return true
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.Lookup(t.Context(), "node1"); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
			if err := c.Err(); err != nil {
				t.Errorf("the connection has ended: %v", err)
			}
		})
	}
}

func TestAuthentication(t *testing.T) {
	_, err := dialFake(t, nil, func(f *fake, h header, _ []byte) bool {
		f.reply(h, statusOK, encode(int32(1), int32(1))) // one method: SASL
		return true
	})
	if err == nil || !strings.Contains(err.Error(), "be root") {
		t.Errorf("got %v, want advice", err)
	}
}

// A cancelled call does not disturb the next one.
func TestGiveUp(t *testing.T) {
	first := make(chan header, 1)
	c, err := dialFake(t, nil, func(f *fake, h header, _ []byte) bool {
		if f.welcome(h) {
			return true
		}
		select {
		case first <- h: // gets no answer until the next call comes
		default:
			f.reply(<-first, 1, refusal(1, "late"))
			f.reply(h, 1, refusal(2, "in time"))
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Lookup(ctx, "node1"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrClosed) {
		t.Errorf("got %v, want a deadline exceeded", err)
	}
	if _, err := c.Lookup(t.Context(), "node1"); err == nil || err.Error() != "libvirt: in time" {
		t.Errorf("got %v, want its own reply", err)
	}
	if _, err := c.Lookup(ctx, "node1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want a deadline exceeded", err)
	}
	if err := c.Err(); err != nil {
		t.Errorf("the connection has ended: %v", err)
	}
}

// Decoding any message ends, and does not read past its end.
func FuzzDecode(f *testing.F) {
	f.Add(refusal(1, "words"), uint32(procDeviceRemoved))
	f.Add([]byte{0, 0, 0, 1, 0, 0, 0, 5, 'n', 'o', 'd', 'e', '1', 0, 0, 0}, uint32(procLifecycle))
	f.Fuzz(func(_ *testing.T, body []byte, procedure uint32) {
		_ = parseError(body)
		c := &Client{handle: func(Event) error { return nil }}
		_ = c.dispatchEvent(procedure, &decoder{rest: body})
	})
}
