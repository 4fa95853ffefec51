package localhost

import (
	"fmt"
	"time"

	"unnest.io/unnest/internal/check"
	"unnest.io/unnest/internal/check/localhost/agent"
)

// deadPort has every fraction call an address without a server, first one fraction after
// the other, then all at the same time.
func (t *trial) deadPort(network string, times int) {
	address := t.newAddress(t.loopback)
	for _, f := range t.fractions {
		t.refused(f, network, address, times)
	}
	t.allRefused(network, address, times)
}

// refusedOnceStopped stops a server that all fractions reach. Its port must then refuse
// all of them.
func (t *trial) refusedOnceStopped(s *server) {
	t.reach(t.fractions, s)
	t.stop(&s.running)
	t.allRefused(t.tcp, s.address, 5)
}

func tcpLateServer(t *trial) {
	address := t.newAddress(t.loopback)
	t.allRefused(t.tcp, address, 5)
	t.reach(t.fractions, t.serve(t.fraction(2), t.loopback, agent.Serve{Network: t.tcp, Address: address, Kind: agent.Echo}))
}

// tcpMoves moves a server through all fractions. The client is always in the next one.
func tcpMoves(t *trial) {
	address := t.newAddress(t.loopback)
	for k := 1; k <= max(6, len(t.fractions)); k++ {
		check.Within(fmt.Sprintf("move %d", k), func() {
			s := t.serve(t.fraction(k), t.loopback, agent.Serve{Network: t.tcp, Address: address, Kind: agent.Echo})
			client := t.fraction(k + 1)
			t.reach([]*fraction{client}, s)
			t.stop(&s.running)
			t.refused(client, t.tcp, address, 1)
		})
	}
}

// serverInProcess starts a server in its own process, which stop kills.
func (t *trial) serverInProcess() *server {
	return t.serve(t.fraction(1), t.loopback, agent.Serve{Network: t.tcp, Address: t.newAddress(t.loopback), Kind: agent.Echo, Process: true})
}

// tcpKilled kills a server while clients wait for its answer.
func tcpKilled(t *trial) {
	s := t.serverInProcess()
	var clients []*running
	for _, f := range t.others(s.fraction) {
		c := t.holdOne(f, s)
		t.exchange(c, 1)
		clients = append(clients, c)
	}
	t.stop(&s.running)
	for _, c := range clients {
		end := do(t, c.fraction, agent.AwaitEnd{Handle: c.handle})
		if end.Code != agent.End && end.Code != "ECONNRESET" || end.Took > t.patience {
			check.Failf("%s: the server was killed; the client saw %s after %v", c.fraction, word(end.Code), end.Took.Round(time.Millisecond))
		}
	}
}

func tcpReset(t *trial) {
	s := t.tcpEcho()
	c := t.holdOne(t.fraction(2), s)
	t.exchange(c, 1)
	do(t, c.fraction, agent.Abort{Handle: c.handle})
	t.eventually(func() {
		seen := do(t, s.fraction, agent.Report{Handle: s.handle})
		if len(seen.Conns) != 1 || seen.Conns[0].End != "ECONNRESET" {
			check.Failf("the client reset its connection; the server saw %+v", seen.Conns)
		}
	})
}
