package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"
)

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
