package antispoof

import (
	"bytes"
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// received counts the frames like this one, but for the number behind it, that a guest
// receives until there are none for a while.
func (n *network) received(guest string, frame []byte) (count int) {
	n.t.Helper()
	got := make([]byte, 2048)
	for {
		size, err := unix.Read(n.guest[guest], got)
		if errors.Is(err, unix.EAGAIN) {
			return count
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		n.check(err)
		if size == len(frame)+4 && bytes.Equal(got[:len(frame)], frame) {
			count++
		}
	}
}

// A port may send only so many frames that the bridge copies to all ports. Its other
// frames, and those of other ports, pass.
func TestFlood(t *testing.T) {
	inNetwork(t, func(n *network) {
		const limit, frames = 50, 1000
		table := open(n)
		n.check(table.Set(Port{"p2", mac2, addrs("10.0.0.2"), false, limit}))
		toAll := own1
		group := ether(net.HardwareAddr{1, 0, 0x5e, 1, 1, 1}, mac1, unix.ETH_P_IP, own1[14:])
		unicast := ether(mac2, mac1, unix.ETH_P_IP, own1[14:])
		others := ether(broadcast, mac2, unix.ETH_P_IP, ipv4(unix.IPPROTO_UDP, "10.0.0.2", "10.0.0.1", datagram(1, 2)))
		tests := []struct {
			name       string
			multicasts int
			frame      []byte
			limited    bool
		}{
			{"broadcast", limit, toAll, true},
			{"multicast", limit, group, true},
			{"unicast", limit, unicast, false},
			{"broadcast, with the default", 0, toAll, false},
			{"broadcast, without a limit", -1, toAll, false},
		}
		for _, tt := range tests {
			n.check(table.Set(Port{"p1", mac1, addrs("10.0.0.1"), false, tt.multicasts}))
			before, of, begin := n.drops(table)["flood"], dropsOf(n, table), time.Now()
			for range frames {
				n.send("g1", tt.frame)
			}
			got, drops := 0, uint64(0)
			for got+int(drops) < frames && time.Since(begin) < patience {
				got += n.received("g2", tt.frame)
				drops = n.drops(table)["flood"] - before
			}
			most := limit + int(time.Since(begin).Seconds()*limit) + 1
			if tt.limited && (got < limit || got > most) || !tt.limited && got != frames {
				t.Errorf("%s: %d of %d frames arrive, want at most %d: %t", tt.name, got, frames, most, tt.limited)
			}
			if drops != uint64(frames-got) || dropsOf(n, table)-of != drops {
				t.Errorf("%s: %d frames counted as dropped, %d of the port, want %d", tt.name, drops, dropsOf(n, table)-of, frames-got)
			}
			if sent := n.send("g2", others); !n.arrives("g1", sent, patience) {
				t.Errorf("%s: a broadcast of another port does not arrive", tt.name)
			}
		}
		n.restore(n.save())
		if after := dropsOf(n, table); after == 0 {
			t.Error("the drops of the port were not restored")
		}
		n.check(open(n).Set(Port{"p1", mac1, addrs("10.0.0.1"), false, limit}))
	})
}

func dropsOf(n *network, table *Table) uint64 {
	n.t.Helper()
	drops, err := table.DropsOf()
	n.check(err)
	if drops["p2"] != 0 {
		n.t.Errorf("frames of p2 were dropped: %v", drops)
	}
	return drops["p1"]
}
