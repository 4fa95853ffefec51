package localhost

import (
	"unnest.io/unnest/internal/check"
	"unnest.io/unnest/internal/check/localhost/agent"
)

// transfer moves a stream between a client and a server of a kind.
func (t *trial) transfer(client, serving *fraction, kind agent.Kind, size int64) (*server, agent.Transferred) {
	s := t.tcpServer(serving, kind)
	return s, do(t, client, agent.Transfer{Network: t.tcp, Address: s.address, Kind: kind, Size: size})
}

// bulk sends a stream from a client to a server and back.
func (t *trial) bulk(client, serving *fraction, size int64) agent.Transferred {
	_, moved := t.transfer(client, serving, agent.Echo, size)
	if moved.Sent != size || moved.Received != size || moved.SentSum != moved.ReceivedSum {
		check.Failf("%s: sent %d of %d bytes with checksum %x, received %d with checksum %x",
			client, moved.Sent, size, moved.SentSum, moved.Received, moved.ReceivedSum)
	}
	return moved
}

func tcpBulkRing(t *trial) {
	each(t.fractions, func(f *fraction) { t.bulk(f, t.fraction(f.number+1), 4<<20) })
}

// tcpStaysInside compares the traffic of other interfaces before and after a bulk
// transfer, which is larger than any other traffic.
func tcpStaysInside(t *trial) {
	const size = 16 << 20
	f := t.fraction(2)
	before := do(t, f, agent.Traffic{})
	t.bulk(f, f, size)
	after := do(t, f, agent.Traffic{})
	if sent := after.Bytes - before.Bytes; sent > size/16 {
		check.Failf("%s: while %d bytes went to its own server, %d bytes left by interfaces other than lo", f, size, sent)
	}
}

// tcpSegments checks the segment size that both ends have negotiated. lo allows 64 KiB, of
// which the kernel may use half a window.
func tcpSegments(t *trial) {
	const least = 16 << 10
	if moved := t.bulk(t.fraction(2), t.fraction(1), 4<<20); moved.MSS <= least {
		check.Failf("segments between fractions have at most %d bytes, want more than %d", moved.MSS, least)
	}
}

const large = 8 << 20

// tcpLargeRequest sends a large request. The server answers after it has all of it.
func tcpLargeRequest(t *trial) {
	_, moved := t.transfer(t.fraction(2), t.fraction(1), agent.Tally, large)
	if want := agent.TallyText(large, moved.SentSum); moved.Sent != large || moved.Said != want {
		check.Failf("the server received %q, want %q", moved.Said, want)
	}
}

func tcpLargeResponse(t *trial) {
	_, moved := t.transfer(t.fraction(2), t.fraction(1), agent.Source, large)
	if want := agent.StreamSum(large); moved.Received != large || moved.ReceivedSum != want {
		check.Failf("received %d bytes with checksum %x, want %d with %x", moved.Received, moved.ReceivedSum, large, want)
	}
}

// tcpServerHalfCloses has the server close its direction before the client sends.
func tcpServerHalfCloses(t *trial) {
	s, moved := t.transfer(t.fraction(2), t.fraction(1), agent.Greet, large)
	if moved.Said != s.fraction.String() {
		check.Failf("the server sent %q, want %q", moved.Said, s.fraction)
	}
	t.eventually(func() {
		seen := do(t, s.fraction, agent.Report{Handle: s.handle})
		if len(seen.Conns) != 1 || seen.Conns[0].Received != large || seen.Conns[0].Sum != moved.SentSum || seen.Conns[0].End != agent.End {
			check.Failf("the client sent %d bytes with checksum %x and closed; the server saw %+v", large, moved.SentSum, seen.Conns)
		}
	})
}

func tcpUrgent(t *trial) {
	c := t.holdOne(t.fraction(2), t.tcpEcho())
	attempts := do(t, c.fraction, agent.Exchange{Handle: c.handle, Times: 5, Size: 1001, Urgent: true})
	t.allEnd(c.fraction, "exchange messages with an urgent byte", attempts, success)
}
