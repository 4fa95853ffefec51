package localhost

import (
	"time"

	"unnest.io/unnest/internal/check"
	"unnest.io/unnest/internal/check/localhost/agent"
)

func tcpChurn(t *trial) {
	s := t.tcpEcho()
	t.eachConnects(t.fractions, agent.Connect{Network: t.tcp, Address: s.address, Times: t.size(300, 100_000/len(t.fractions)), Message: 200})
}

func tcpThousands(t *trial) { t.holdMany(t.size(2000, 10_000)/len(t.fractions), true) }

// tcpThousandsRefused calls a port that nobody has more often at once than a limit on
// broadcasts might allow.
func tcpThousandsRefused(t *trial) {
	address := t.newAddress(t.loopback)
	for _, f := range t.fractions {
		attempts := do(t, f, agent.Connect{Network: t.tcp, Address: address, Times: t.size(2500, 10_000), AtOnce: true, Message: 1})
		t.allEnd(f, "connect to a dead port", attempts, refusal)
	}
}

func tcpSimultaneous(t *trial) {
	s := t.tcpEcho()
	t.eachConnects(t.fractions, agent.Connect{Network: t.tcp, Address: s.address, Times: 64, AtOnce: true, Message: 200})
}

// fullServer starts a server that accepts nothing. Its backlog of 0 holds one connection,
// which a client has made.
func (t *trial) fullServer() *server {
	s := t.tcpServer(t.fraction(1), agent.Mute)
	t.holdOne(t.fraction(2), s)
	return s
}

// tcpFullBacklog checks that clients time out, and are not refused, while the backlog is
// full.
func tcpFullBacklog(t *trial) {
	s := t.fullServer()
	each(t.fractions, func(f *fraction) {
		attempts := do(t, f, agent.Connect{Network: t.tcp, Address: s.address, Times: 3, AtOnce: true, Message: 1, Patience: 2 * t.patience})
		t.allEnd(f, "connect to a server with a full backlog", attempts, agent.Timeout)
	})
}

// tcpLateAccept has the server accept while more clients wait than its backlog holds.
func tcpLateAccept(t *trial) {
	s := t.fullServer()
	check.Each(2, func(i int) {
		if i == 0 {
			time.Sleep(t.patience / 2) // until the clients wait
			do(t, s.fraction, agent.Resume{Handle: s.handle})
			return
		}
		t.eachConnects(t.fractions, agent.Connect{Network: t.tcp, Address: s.address, Times: 3, AtOnce: true, Message: 5})
	})
}

// tcpSideBySide holds a connection from every fraction to every fraction.
func tcpSideBySide(t *trial) {
	var held []*running
	for _, f := range t.fractions {
		s := t.tcpServer(f, agent.Echo)
		for _, client := range t.fractions {
			held = append(held, t.holdOne(client, s))
		}
	}
	for range 2 {
		for _, c := range held {
			t.exchange(c, 1)
		}
	}
}
