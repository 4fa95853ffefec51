package qmp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

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
