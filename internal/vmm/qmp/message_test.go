package qmp

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestDecoderLimit(t *testing.T) {
	msg := `{"event": "` + strings.Repeat("x", 86) + `"}`
	if len(msg) != 99 {
		t.Fatalf("message has %d bytes", len(msg))
	}
	for limit, want := range map[int]error{99: nil, 98: errTooLong} {
		d := newDecoder(strings.NewReader(msg), limit)
		if _, err := d.next(); !errors.Is(err, want) {
			t.Errorf("limit %d: got error %v, want %v", limit, err, want)
		}
	}
	// The bound is for one message, not for the stream.
	d := newDecoder(iotest.OneByteReader(strings.NewReader(strings.Repeat(msg, 10))), 99)
	for i := range 10 {
		if _, err := d.next(); err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
	}
	if _, err := d.next(); !errors.Is(err, io.EOF) {
		t.Errorf("end: got error %v, want io.EOF", err)
	}
}

func TestErrorKinds(t *testing.T) {
	pending := &Error{Class: ClassGeneric, Desc: "Device nic1-1 is already in the process of unplug", Command: "device_del"}
	missing := &Error{Class: ClassDeviceNotFound, Desc: "Device 'nic1-1' not found", Command: "device_del"}
	for _, tt := range []struct {
		err               error
		pending, notFound bool
	}{
		{pending, true, false},
		{missing, false, true},
		{errors.Join(io.EOF, missing), false, true},
		{io.EOF, false, false},
		{nil, false, false},
	} {
		if got := IsUnplugPending(tt.err); got != tt.pending {
			t.Errorf("IsUnplugPending(%v) is %t", tt.err, got)
		}
		if got := IsNotFound(tt.err); got != tt.notFound {
			t.Errorf("IsNotFound(%v) is %t", tt.err, got)
		}
	}
}

// For any input the decoder ends with an error and returns only messages of exactly one
// kind. The sizes of reads make no difference.
func FuzzDecoder(f *testing.F) {
	for _, seed := range []string{
		greetingLine,
		`{"return": {}, "id": 1}{"return": [1, "x"], "id": 2}`,
		`{"error": {"class": "DeviceNotFound", "desc": "Device 'x' not found"}, "id": 18446744073709551615}`,
		`{"event": "DEVICE_DELETED", "data": {"device": "nic1-1"}, "timestamp": {"seconds": -1, "microseconds": -1}}`,
		"{\n \"return\": null,\n \"id\": null\n}\n",
		`{"return": {}, "id": {"a": 1}}`,
		`{"id": 1}`, `[]`, `{`, `{"return": "\ud800"}`, "\xff\xfe", "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		whole := drain(t, newDecoder(bytes.NewReader(in), 1<<16))
		bytewise := drain(t, newDecoder(iotest.OneByteReader(bytes.NewReader(in)), 1<<16))
		if whole != bytewise {
			t.Errorf("%d messages at once, %d byte by byte", whole, bytewise)
		}
	})
}

// drain decodes to the end and counts the messages.
func drain(t *testing.T, d *decoder) int {
	for n := 0; ; n++ {
		m, err := d.next()
		if err != nil {
			return n
		}
		switch {
		case m.Event != "":
			_ = Event{Data: m.Data}.Device()
		case m.Greeting != nil:
		default:
			if id, err := m.replyID(); err != nil && id != 0 {
				t.Errorf("id %d with error %v", id, err)
			}
			var v any
			if err := m.result("x", &v); (m.Error == nil) != (err == nil) {
				t.Errorf("reply with error %v gives error %v", m.Error, err)
			}
		}
	}
}
