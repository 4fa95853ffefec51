package agent

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// mostSaid bounds what a server may send, in bytes.
const mostSaid = 4096

func (j *job) connect(o Connect) (Attempts, error) {
	attempts := make(Attempts, o.Times)
	if o.AtOnce {
		var all sync.WaitGroup
		for i := range attempts {
			all.Go(func() { attempts[i] = j.connectOnce(o, i) })
		}
		all.Wait()
		return attempts, nil
	}
	for i := range attempts {
		attempts[i] = j.connectOnce(o, i)
		if attempts[i].Code == Timeout {
			return attempts[:i+1], nil
		}
	}
	return attempts, nil
}

func (j *job) connectOnce(o Connect, i int) Attempt {
	begin := time.Now()
	a := Attempt{}
	err := func() error {
		c, err := j.dial(target{network: o.Network, address: o.Address, local: o.Local, device: o.Device,
			multipath: o.Multipath, fastOpen: o.FastOpen, patience: o.Patience})
		if err != nil {
			return err
		}
		defer j.closing(c)()
		a.Local, a.Peer = c.LocalAddr().String(), c.RemoteAddr().String()
		if o.Message == 0 {
			a.Said, err = j.listen(c)
			return err
		}
		return j.echoed(c, message(uint64(i), o.Message))
	}()
	a.Code, a.Took = codeOf(err), time.Since(begin)
	return a
}

// listen returns what the peer sends until it closes.
func (j *job) listen(c net.Conn) (string, error) {
	_ = c.SetReadDeadline(j.deadline()) // if this fails, so does the next call
	text, err := io.ReadAll(io.LimitReader(c, mostSaid))
	return string(text), err
}

// echoed sends a message and compares the answer.
func (j *job) echoed(c net.Conn, m []byte) error {
	_ = c.SetDeadline(j.deadline()) // if this fails, so does the next call
	if _, err := c.Write(m); err != nil {
		return err
	}
	return sameBack(c, m)
}

// sameBack reads as many bytes as m has from a stream, or one datagram, and compares them.
func sameBack(c net.Conn, m []byte) error {
	back := make([]byte, len(m)+1)
	var n int
	var err error
	if _, stream := c.(*net.TCPConn); stream {
		n, err = io.ReadFull(c, back[:len(m)])
	} else {
		n, err = c.Read(back)
	}
	if err != nil {
		return err
	}
	return compare(back[:n], m)
}

func compare(got, want []byte) error {
	if !bytes.Equal(got, want) {
		return mismatch{fmt.Sprintf("sent %d bytes; the %d that came back differ", len(want), len(got))}
	}
	return nil
}
