package agent

import (
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc64"
	"io"
	"math/rand/v2"
	"net"

	"golang.org/x/sys/unix"
)

// transfers are the clients of the kinds of servers.
var transfers = map[Kind]func(*transferring) error{
	Echo:   (*transferring).echo,
	Tally:  (*transferring).tally,
	Greet:  (*transferring).greet,
	Source: (*transferring).source,
}

// transferring is a running transfer. It fails after no byte has moved for the job's limit.
type transferring struct {
	*job
	conn           *net.TCPConn
	size           int64
	sent, received *sum
	said           string
}

func (t *transferring) Write(p []byte) (int, error) {
	_ = t.conn.SetWriteDeadline(t.deadline()) // if this fails, so does the next call
	n, err := t.conn.Write(p)
	_, _ = t.sent.Write(p[:n]) // never fails
	return n, err
}

func (t *transferring) Read(p []byte) (int, error) {
	_ = t.conn.SetReadDeadline(t.deadline()) // if this fails, so does the next call
	n, err := t.conn.Read(p)
	_, _ = t.received.Write(p[:n]) // never fails
	return n, err
}

// send sends the stream of the requested size.
func (t *transferring) send() error {
	_, err := io.CopyBuffer(struct{ io.Writer }{t}, stream(uint64(t.size), t.size), make([]byte, chunk))
	return err
}

// receive reads at most so many bytes, or fewer if the stream ends before.
func (t *transferring) receive(most int64) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, io.LimitReader(struct{ io.Reader }{t}, most), make([]byte, chunk))
	return err
}

// echo sends and receives at the same time.
func (t *transferring) echo() error {
	sent := make(chan error, 1)
	go func() { sent <- t.send() }()
	err := t.receive(t.size)
	if err != nil || t.received.bytes < t.size {
		_ = t.conn.Close() // so that sending ends
	}
	if failed := <-sent; err == nil {
		err = failed
	}
	return err
}

func (t *transferring) tally() error {
	if err := t.send(); err != nil {
		return err
	}
	if err := t.conn.CloseWrite(); err != nil {
		return err
	}
	var err error
	t.said, err = t.listen(t.conn)
	return err
}

func (t *transferring) greet() (err error) {
	if t.said, err = t.listen(t.conn); err != nil {
		return err
	}
	return t.send()
}

func (t *transferring) source() error {
	if _, err := t.Write(binary.BigEndian.AppendUint64(nil, uint64(t.size))); err != nil {
		return err
	}
	return t.receive(t.size + 1)
}

// transfer leaves the comparison to the client of the agent.
func (j *job) transfer(o Transfer) (Transferred, error) {
	do, ok := transfers[o.Kind]
	if !ok {
		return Transferred{}, fmt.Errorf("unknown kind of transfer %q", o.Kind)
	}
	c, err := j.dial(target{network: o.Network, address: o.Address})
	if err != nil {
		return Transferred{}, err
	}
	defer j.closing(c)()
	t := &transferring{job: j, conn: c.(*net.TCPConn), size: o.Size, sent: newSum(), received: newSum()}
	if err := do(t); err != nil {
		return Transferred{}, fmt.Errorf("after %d bytes sent and %d received: %w", t.sent.bytes, t.received.bytes, err)
	}
	mss, err := segmentSize(t.conn)
	if err != nil {
		return Transferred{}, err
	}
	return Transferred{Sent: t.sent.bytes, SentSum: t.sent.Sum64(), Received: t.received.bytes,
		ReceivedSum: t.received.Sum64(), Said: t.said, MSS: mss}, nil
}

func segmentSize(c *net.TCPConn) (size int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	err = onFD(raw, func(fd int) error {
		size, err = unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG)
		return err
	})
	return size, err
}

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
