package agent

import (
	"encoding/binary"
	"hash"
	"hash/crc64"
	"io"
	"math/rand/v2"
)

var table = crc64.MakeTable(crc64.ECMA)

// sum counts the bytes written to it and computes their checksum.
type sum struct {
	hash.Hash64
	bytes int64
}

func newSum() *sum { return &sum{Hash64: crc64.New(table)} }

func (s *sum) Write(p []byte) (int, error) {
	s.bytes += int64(len(p))
	return s.Hash64.Write(p)
}

// stream returns size pseudo-random bytes, which depend only on the seed.
func stream(seed uint64, size int64) io.Reader {
	var key [32]byte
	binary.BigEndian.PutUint64(key[:], seed)
	return io.LimitReader(rand.NewChaCha8(key), size)
}

// message returns a short stream.
func message(seed uint64, size int) []byte {
	m := make([]byte, size)
	_, _ = io.ReadFull(stream(seed, int64(size)), m) // never fails
	return m
}

// StreamSum returns the checksum of a stream that Source sends.
func StreamSum(size int64) uint64 {
	s := newSum()
	_, _ = io.Copy(s, stream(uint64(size), size)) // never fails
	return s.Sum64()
}
