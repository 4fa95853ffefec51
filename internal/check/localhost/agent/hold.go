package agent

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// sockets are kept open until they are stopped.
type sockets[S io.Closer] []S

func (all sockets[S]) stop() error {
	var first error
	for _, s := range all {
		if err := s.Close(); first == nil && !errors.Is(err, net.ErrClosed) {
			first = err
		}
	}
	return first
}

type held = sockets[net.Conn]

// most is how many connections are opened at the same time.
const most = 500

func (j *job) hold(o Hold) (Held, error) {
	var conns held
	var mu sync.Mutex
	var all errgroup.Group
	all.SetLimit(1)
	if o.AtOnce {
		all.SetLimit(most)
	}
	for i := range o.Times {
		all.Go(func() error {
			c, err := j.dial(target{network: o.Network, address: o.Address, local: o.Local})
			if err != nil {
				return fmt.Errorf("connection %d of %d: %w", i+1, o.Times, err)
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			if !o.AtOnce {
				return nil
			}
			// The kernel accepts faster than a slow server does: after some thousands its backlog
			// would be full, and clients would give up, on any loopback.
			return j.echoed(c, message(uint64(i), 1))
		})
	}
	if err := all.Wait(); err != nil {
		_ = conns.stop()
		return Held{}, err
	}
	answer := Held{Handle: j.keep(conns)}
	for _, c := range conns {
		answer.Locals = append(answer.Locals, c.LocalAddr().String())
	}
	return answer, nil
}

func (j *job) exchange(o Exchange) (Attempts, error) {
	conns, err := find[held](j.agent, o.Handle)
	if err != nil {
		return nil, err
	}
	var attempts Attempts
	for i, c := range conns {
		for k := range o.Times {
			begin := time.Now()
			m := message(uint64(i*o.Times+k), o.Size)
			if o.Urgent {
				err = j.echoedUrgently(c, m)
			} else {
				err = j.echoed(c, m)
			}
			attempts = append(attempts, Attempt{Code: codeOf(err), Took: time.Since(begin),
				Local: c.LocalAddr().String(), Peer: c.RemoteAddr().String()})
			if codeOf(err) == Timeout {
				return attempts, nil
			}
		}
	}
	return attempts, nil
}

// echoedUrgently sends the middle byte as urgent data.
func (j *job) echoedUrgently(c net.Conn, m []byte) error {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return errors.New("only TCP has urgent data")
	}
	_ = c.SetDeadline(j.deadline()) // if this fails, so does the next call
	middle := len(m) / 2
	if _, err := c.Write(m[:middle]); err != nil {
		return err
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return err
	}
	if err := onFD(raw, func(fd int) error {
		return unix.Send(fd, m[middle:middle+1], unix.MSG_OOB)
	}); err != nil {
		return err
	}
	if _, err := c.Write(m[middle+1:]); err != nil {
		return err
	}
	return sameBack(c, m)
}

func (j *job) awaitEnd(o AwaitEnd) (Attempt, error) {
	conns, err := find[held](j.agent, o.Handle)
	if err != nil {
		return Attempt{}, err
	}
	begin := time.Now()
	_ = conns[0].SetReadDeadline(j.deadline()) // if this fails, so does the next call
	_, err = conns[0].Read(make([]byte, 1))
	if err == nil {
		err = mismatch{"the connection has not ended: more data arrived"}
	}
	return Attempt{Code: codeOf(err), Took: time.Since(begin)}, nil
}

func (j *job) abort(o Abort) (Nothing, error) {
	conns, err := find[held](j.agent, o.Handle)
	if err != nil {
		return Nothing{}, err
	}
	for _, c := range conns {
		tcp, ok := c.(*net.TCPConn)
		if !ok {
			return Nothing{}, errors.New("only TCP connections can be reset")
		}
		if err := tcp.SetLinger(0); err != nil {
			return Nothing{}, err
		}
	}
	return Nothing{}, conns.stop()
}
