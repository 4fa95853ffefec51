package localhost

import (
	"fmt"

	"unnest/internal/check/localhost/agent"
)

// bulk moves a stream from a client to a server and back.
func (t *trial) bulk(client, serving *fraction, size int64) error {
	s, err := t.tcpServer(serving, agent.Echo)
	if err != nil {
		return err
	}
	moved, err := do(t, client, agent.Transfer{Network: t.tcp, Address: s.address, Kind: agent.Echo, Size: size})
	if err != nil {
		return err
	}
	if moved.Sent != size || moved.Received != size || moved.SentSum != moved.ReceivedSum {
		return fmt.Errorf("%s: sent %d of %d bytes with sum %x, and %d with sum %x came back",
			client, moved.Sent, size, moved.SentSum, moved.Received, moved.ReceivedSum)
	}
	return nil
}

func tcpBulkRing(t *trial) error {
	return each(t.fractions, func(f *fraction) error { return t.bulk(f, t.fraction(f.number+1), 4<<20) })
}

// tcpStaysInside compares what has left by other interfaces before and after bulk,
// which is more than anything else that may be going on.
func tcpStaysInside(t *trial) error {
	const size = 16 << 20
	f := t.fraction(2)
	before, err := do(t, f, agent.Traffic{})
	if err != nil {
		return err
	}
	if err := t.bulk(f, f, size); err != nil {
		return err
	}
	after, err := do(t, f, agent.Traffic{})
	if err != nil {
		return err
	}
	if left := after.Bytes - before.Bytes; left > size/16 {
		return fmt.Errorf("%s: while %d bytes went to a server of its own, %d left by interfaces other than lo", f, size, left)
	}
	return nil
}

// tcpSegments looks at what both ends have agreed on: lo allows 64 KiB, of which the
// kernel may take half a window.
func tcpSegments(t *trial) error {
	const least = 16 << 10
	s, err := t.tcpServer(t.fraction(1), agent.Echo)
	if err != nil {
		return err
	}
	moved, err := do(t, t.fraction(2), agent.Transfer{Network: t.tcp, Address: s.address, Kind: agent.Echo, Size: 4 << 20})
	if err != nil {
		return err
	}
	if moved.MSS <= least {
		return fmt.Errorf("segments between fractions have %d bytes at most, want more than %d", moved.MSS, least)
	}
	return nil
}

const large = 8 << 20

// tcpLargeRequest sends a large request; the server answers when it has all.
func tcpLargeRequest(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Tally)
	if err != nil {
		return err
	}
	moved, err := do(t, t.fraction(2), agent.Transfer{Network: t.tcp, Address: s.address, Kind: agent.Tally, Size: large})
	if err != nil {
		return err
	}
	if want := agent.TallyText(large, moved.SentSum); moved.Sent != large || moved.Said != want {
		return fmt.Errorf("the server got %q, want %q", moved.Said, want)
	}
	return nil
}

func tcpLargeResponse(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Source)
	if err != nil {
		return err
	}
	moved, err := do(t, t.fraction(2), agent.Transfer{Network: t.tcp, Address: s.address, Kind: agent.Source, Size: large})
	if err != nil {
		return err
	}
	if moved.Received != large || moved.ReceivedSum != agent.StreamSum(large) {
		return fmt.Errorf("of a response of %d bytes %d came, with sum %x; want %x", large, moved.Received, moved.ReceivedSum, agent.StreamSum(large))
	}
	return nil
}

// tcpServerHalfCloses has the client see the end of what the server says before it
// sends anything.
func tcpServerHalfCloses(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Greet)
	if err != nil {
		return err
	}
	moved, err := do(t, t.fraction(2), agent.Transfer{Network: t.tcp, Address: s.address, Kind: agent.Greet, Size: large})
	if err != nil {
		return err
	}
	if moved.Said != s.fraction.String() {
		return fmt.Errorf("the server said %q, want %q", moved.Said, s.fraction)
	}
	return t.eventually(func() error {
		seen, err := do(t, s.fraction, agent.Report{Handle: s.handle})
		if err != nil {
			return err
		}
		if len(seen.Conns) != 1 || seen.Conns[0].Received != large || seen.Conns[0].Sum != moved.SentSum || seen.Conns[0].End != agent.End {
			return fmt.Errorf("after %d bytes with sum %x and the end, the server saw %+v", large, moved.SentSum, seen.Conns)
		}
		return nil
	})
}

func tcpUrgent(t *trial) error {
	s, err := t.tcpServer(t.fraction(1), agent.Echo)
	if err != nil {
		return err
	}
	c, err := t.holdOne(t.fraction(2), s)
	if err != nil {
		return err
	}
	attempts, err := do(t, c.fraction, agent.Exchange{Handle: c.handle, Times: 5, Size: 1001, Urgent: true})
	if err != nil {
		return err
	}
	return t.all(c.fraction, "exchange messages with an urgent byte", attempts, "")
}
