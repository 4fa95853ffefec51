package bridge

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// A tenant's datagrams that are never finished leave those of another tenant room: the first one of several fragments
// arrives.
func TestAttackUnfinishedFragments(t *testing.T) {
	inHost(t, func(h *host) {
		hostile, arrives := h.tenants()
		for wave := range byte(4) { // each takes 150 MB
			h.flood(hostile, 65000, []byte{0x08, 0}, func(id int) []byte { return firstFragment(uint16(id), 2+wave) })
			limited, changed, err := h.filter.ShareFragments(time.Now()) // as the daemon does each second
			if !limited || changed != (wave == 0) || err != nil {
				t.Errorf("after wave %d: limited %v, changed %v, %v", wave, limited, changed, err)
			}
		}
		// The share is 30 MB. How much of the first wave has expired depends on the machine.
		if used, err := unfinished(); err != nil || used > fragmentMemory*3/4 {
			t.Errorf("unfinished datagrams take %d bytes of %d, %v", used, fragmentMemory, err)
		}
		if !arrives("192.0.2.2:9000", 4000, 10) {
			t.Error("no datagram of another tenant arrives in several fragments")
		}
		if drops, err := h.filter.Drops(); err != nil || drops["fragments"] == 0 {
			t.Errorf("drops are %v; %v", drops, err)
		}
		for used := fragmentMemory; used >= crowdedMemory; time.Sleep(100 * time.Millisecond) {
			var err error
			used, err = unfinished()
			h.check(err)
		}
		if limited, changed, err := h.filter.ShareFragments(time.Now().Add(2 * calmTime)); limited || !changed || err != nil {
			t.Errorf("two minutes later: limited %v, changed %v, %v", limited, changed, err)
		}
	})
}

// Of IPv6 no more pass than fit into the memory. That is so at any time, so another tenant's datagrams pass also in the first second.
func TestAttackUnfinishedFragmentsOfIPv6(t *testing.T) {
	inHost(t, func(h *host) {
		hostile, arrives := h.tenants()
		if !arrives("[2001:db8::2]:9000", 100, 10) {
			t.Fatal("another tenant's datagrams do not arrive")
		}
		const sent = 260000
		begin := time.Now()
		h.flood(hostile, sent, []byte{0x86, 0xdd}, firstFragment6)
		took := time.Since(begin)
		if !arrives("[2001:db8::2]:9000", 4000, 1) {
			t.Error("a datagram of another tenant does not arrive in several fragments")
		}
		drops, err := h.filter.Drops()
		most := (took.Seconds()+1)*(fragmentRate6+commonRate6) + fragmentBurst6 + commonBurst6
		if passed := sent - float64(drops["fragments"]); err != nil || passed > most {
			t.Errorf("%.0f fragments have passed in %v, want %.0f; %v", passed, took, most, err)
		}
	})
}

// tenants makes the bridges of two tenants with a pod each, and a server outside. arrives says whether a datagram of the second
// pod arrives there within a second, in one of some tries: the kernel may drop one while it resolves the address.
func (h *host) tenants() (hostile netns.NsHandle, arrives func(to string, size, tries int) bool) {
	h.t.Helper()
	h.check(h.ensure([]Network{red, blue}))
	hostile = h.attach("r1", "red", []string{"10.1.0.2/16", "fd01::2/64"}, "10.1.0.1", "fd01::1")
	honest := h.attach("b1", "blue", []string{"10.2.0.2/16", "fd02::2/64"}, "10.2.0.1", "fd02::1")
	outside := h.attach("uplink", "", []string{"192.0.2.2/24", "2001:db8::2/64"}, "192.0.2.1", "2001:db8::1")
	h.address("uplink", "192.0.2.1/24", "2001:db8::1/64")
	var server net.PacketConn
	h.in(outside, func() {
		var err error
		server, err = net.ListenPacket("udp", "[::]:9000") // also IPv4
		h.check(err)
		h.t.Cleanup(func() { server.Close() })
	})
	return hostile, func(to string, size, tries int) (ok bool) {
		h.t.Helper()
		h.in(honest, func() {
			client, err := net.Dial("udp", to)
			h.check(err)
			defer client.Close()
			for ; tries > 0 && !ok; tries-- {
				_, err = client.Write(make([]byte, size))
				h.check(err)
				h.check(server.SetReadDeadline(time.Now().Add(time.Second)))
				for got := 0; !ok && err == nil; ok = got == size { // an earlier one may come late
					got, _, err = server.ReadFrom(make([]byte, 65536))
				}
				if !ok && !errors.Is(err, os.ErrDeadlineExceeded) {
					h.t.Fatal(err)
				}
			}
		})
		return ok
	}
}

// flood sends packets from a pod on the bridge red to the host.
func (h *host) flood(from netns.NsHandle, count int, etherType []byte, packet func(i int) []byte) {
	h.t.Helper()
	gateway := h.link("red").Attrs().HardwareAddr
	h.in(from, func() {
		nic := h.link("eth0").Attrs()
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		h.check(err)
		defer unix.Close(fd)
		h.check(unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: nic.Index}))
		for i := range count {
			h.check(unix.Send(fd, slices.Concat(gateway, nic.HardwareAddr, etherType, packet(i)), 0))
		}
	})
}

// Datagrams of several fragments that are finished pass at any rate.
func TestManyFragments(t *testing.T) {
	inHost(t, func(h *host) {
		h.check(h.ensure([]Network{red, blue}))
		pod := h.attach("b1", "blue", []string{"10.2.0.2/16"}, "10.2.0.1")
		outside := h.attach("uplink", "", []string{"192.0.2.2/24"}, "192.0.2.1")
		h.address("uplink", "192.0.2.1/24")
		h.in(outside, func() {
			server, err := net.ListenPacket("udp", "192.0.2.2:9000")
			h.check(err)
			t.Cleanup(func() { server.Close() })
			go func() {
				buffer := make([]byte, 65536)
				for {
					_, from, err := server.ReadFrom(buffer)
					if err != nil {
						return
					}
					_, _ = server.WriteTo(buffer[:1], from)
				}
			}()
		})
		answered := 0
		h.in(pod, func() {
			client, err := net.Dial("udp", "192.0.2.2:9000")
			h.check(err)
			defer client.Close()
			for range 1000 { // of 12 fragments
				_, err := client.Write(make([]byte, 16384))
				h.check(err)
				h.check(client.SetReadDeadline(time.Now().Add(time.Second)))
				if _, err := client.Read(make([]byte, 1)); err == nil {
					answered++
				}
			}
		})
		if limited, _, err := h.filter.ShareFragments(time.Now()); limited || err != nil {
			t.Errorf("limited %v, %v", limited, err)
		}
		if answered < 998 { // the kernel may drop one while it resolves the address
			t.Errorf("%d of 1000 datagrams are answered", answered)
		}
	})
}

// firstFragment is that of a datagram of the pod 10.1.0.2 to 192.0.2.host.
func firstFragment(id uint16, host byte) []byte {
	packet := slices.Concat([]byte{0x45, 0, 0x05, 0xdc}, binary.BigEndian.AppendUint16(nil, id), []byte{0x20, 0, 64, unix.IPPROTO_UDP, 0, 0},
		netip.MustParseAddr("10.1.0.2").AsSlice(), []byte{192, 0, 2, host})
	sum := uint32(0)
	for i := 0; i < len(packet); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(packet[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(packet[10:], ^uint16(sum))
	return append(packet, make([]byte, 1480)...)
}

// firstFragment6 is that of a datagram of the pod fd01::2 to 2001:db8::2.
func firstFragment6(id int) []byte {
	packet := slices.Concat([]byte{0x60, 0, 0, 0, 0x05, 0xb0, unix.IPPROTO_FRAGMENT, 64}, netip.MustParseAddr("fd01::2").AsSlice(), netip.MustParseAddr("2001:db8::2").AsSlice(),
		[]byte{unix.IPPROTO_UDP, 0, 0, 1}, binary.BigEndian.AppendUint32(nil, uint32(id)))
	return append(packet, make([]byte, 1448)...)
}
