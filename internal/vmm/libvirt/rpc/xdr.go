package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// encoder appends values in XDR (RFC 4506): big-endian words of four bytes.
type encoder []byte

func (e *encoder) int(v int32) { *e = binary.BigEndian.AppendUint32(*e, uint32(v)) }

// bytes appends opaque data of a length that both sides know.
func (e *encoder) bytes(b []byte) {
	*e = append(*e, b...)
	*e = append(*e, make([]byte, padding(len(b)))...)
}

func (e *encoder) string(s string) {
	e.int(int32(len(s)))
	e.bytes([]byte(s))
}

// optional announces a value that could be missing.
func (e *encoder) optional() { e.int(1) }

func (e *encoder) domain(d Domain) {
	e.string(d.Name)
	e.bytes(d.uuid[:])
	e.int(d.id)
}

// padding is what fills n bytes up to whole words.
func padding(n int) int { return -n & 3 }

var errShort = errors.New("message is too short")

// decoder takes values from the front of a message. After the first error it
// returns zeros.
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

// optionalString is empty when there is none.
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
