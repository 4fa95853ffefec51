package bridge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/antispoof"
	"unnest.io/unnest/internal/netdev/tap"
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

// A guest writes fragments into its TAP. None passes in a frame larger than any link's, or larger than the fragment. Other fragments count by
// their size, so they take no more memory than their bridge's share. Rules that nft has saved and restored do the same.
func TestAttackLargeFragments(t *testing.T) {
	inHost(t, func(h *host) {
		_, arrives := h.tenants()
		guard, err := antispoof.Open()
		h.check(err)
		defer guard.Close()
		mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
		h.check(guard.Set(antispoof.Port{Interface: "t1", MAC: mac, Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.2"), netip.MustParseAddr("fd01::2")}}))
		guest, err := tap.Open(tap.Device{Name: "t1", Bridge: "red", MTU: 1500})
		h.check(err)
		defer guest.Close()
		gateway := h.link("red").Attrs().HardwareAddr
		write := func(count int, etherType []byte, apart uint16, packet func(id int) []byte) {
			header := make([]byte, 10) // struct virtio_net_hdr
			binary.NativeEndian.PutUint16(header[2:], apart)
			for id := range count {
				_, err := guest.Write(slices.Concat(header, gateway, mac, etherType, packet(id)))
				h.check(err)
			}
		}
		dropped := func() uint64 {
			one, err := guard.Drops()
			h.check(err)
			two, err := h.filter.Drops()
			h.check(err)
			return one["fragment"] + two["fragments"]
		}
		used := func() int {
			bytes, err := unfinished()
			h.check(err)
			return bytes
		}
		wave := byte(1) // a new wave has new datagrams
		four := func(size, frame int) func(int) []byte {
			return func(id int) []byte { return padded(fragment4(uint16(id), wave, size), frame) }
		}
		six := func(size, frame int, field uint16) func(int) []byte {
			return func(id int) []byte { return padded(fragment6(id, size, field), frame) }
		}
		isIPv4, isIPv6 := []byte{0x08, 0}, []byte{0x86, 0xdd}
		h.filter.crowded = time.Now() // those of IPv4 are limited, as after an attack
		limited, _, err := h.filter.ShareFragments(time.Now())
		if h.check(err); !limited {
			t.Fatal("fragments of IPv4 are not limited")
		}
		for _, to := range []string{"192.0.2.2:9000", "[2001:db8::2]:9000"} {
			if !arrives(to, 29422, 10) {
				t.Fatalf("no datagram of another tenant arrives at %s", to)
			}
			write(6000, isIPv4, 0, four(62000, 62000))
			write(6000, isIPv6, 0, six(62000, 62000, 1))
			if !arrives(to, 29422, 1) {
				t.Errorf("a datagram of another tenant does not arrive at %s", to)
			}
		}
		saved := h.nft("", "list", "ruleset")
		h.nft("flush ruleset\n"+saved, "-f", "-")
		if got := h.nft("", "list", "ruleset"); fixed(got) != fixed(saved) {
			t.Errorf("restored rules differ: (-saved +restored)\n%s", cmp.Diff(fixed(saved), fixed(got)))
		}
		const burst = 700 // of each limit; the rates are too low to add to it
		saved = regexp.MustCompile(`limit rate over \d+/second burst \d+ packets`).ReplaceAllString(saved, fmt.Sprint("limit rate over 1/hour burst ", burst, " packets"))
		for _, c := range []struct {
			name      string
			etherType []byte
			apart     uint16 // bytes that the guest says are headers
			packet    func(id int) []byte
			passes    int
		}{
			{"IPv4 of 1,500 bytes", isIPv4, 0, four(1500, 1500), burst},
			{"IPv4 of 1,501 bytes", isIPv4, 0, four(1501, 1501), burst / 2},
			{"IPv4 of 4,000 bytes", isIPv4, 0, four(4000, 4000), burst / 4},                   // they take 8 KB
			{"IPv4 of 4,572 bytes, with 475 apart", isIPv4, 475, four(4572, 4572), burst / 4}, // 8 KB and 1 KB
			{"IPv4 of 9,216 bytes", isIPv4, 0, four(9216, 9216), burst / 9},
			{"IPv4 of 9,216 bytes, with 1,023 apart", isIPv4, 1023, four(9216, 9216), burst / 9},
			{"IPv4 of 9,217 bytes", isIPv4, 0, four(9217, 9217), 0},
			{"IPv4 of 65,535 bytes", isIPv4, 0, four(65535, 65535), 0},
			{"IPv4 of 100 bytes in 1,500", isIPv4, 0, four(100, 1500), burst},
			{"IPv4 of 100 bytes in 1,501", isIPv4, 0, four(100, 1501), 0},
			{"IPv4 of 8,000 bytes in 9,000", isIPv4, 0, four(8000, 9000), 0},
			{"IPv6 of 1,496 bytes", isIPv6, 0, six(1496, 1496, 1), 2 * burst}, // the bridge's own and the common
			{"IPv6 of 1,496 bytes, last", isIPv6, 0, six(1496, 1496, 1448), 2 * burst},
			{"IPv6 of 1,504 bytes", isIPv6, 0, six(1504, 1504, 1), burst},
			{"IPv6 of 9,216 bytes", isIPv6, 0, six(9216, 9216, 1), 2 * burst / 9},
			{"IPv6 of 9,216 bytes, last", isIPv6, 0, six(9216, 9216, 1448), 2 * burst / 9},
			{"IPv6 of 9,224 bytes", isIPv6, 0, six(9224, 9224, 1), 0},
			{"IPv6 of 9,224 bytes, last", isIPv6, 0, six(9224, 9224, 1448), 0},
			{"IPv6 of 100 bytes in 1,501, last", isIPv6, 0, six(100, 1501, 1448), 0},
			{"IPv6 of 8,000 bytes in 9,000", isIPv6, 0, six(8000, 9000, 1), 0},
		} {
			h.nft("flush ruleset\n"+saved, "-f", "-")
			wave++
			const sent = 2000
			before, memory := dropped(), used()
			write(sent, c.etherType, c.apart, c.packet)
			if passed := sent - int(dropped()-before); passed != c.passes {
				t.Errorf("%s: %d pass, want %d", c.name, passed, c.passes)
			}
			if now := used(); now-memory > burst*2500 {
				t.Errorf("%s: they take %d bytes of the memory for unfinished datagrams, want up to %d", c.name, now-memory, burst*2500)
			}
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
func firstFragment(id uint16, host byte) []byte { return fragment4(id, host, 1500) }

// fragment4 is firstFragment of size bytes.
func fragment4(id uint16, host byte, size int) []byte {
	packet := slices.Concat([]byte{0x45, 0}, binary.BigEndian.AppendUint16(nil, uint16(size)), binary.BigEndian.AppendUint16(nil, id), []byte{0x20, 0, 64, unix.IPPROTO_UDP, 0, 0},
		netip.MustParseAddr("10.1.0.2").AsSlice(), []byte{192, 0, 2, host})
	sum := uint32(0)
	for i := 0; i < len(packet); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(packet[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(packet[10:], ^uint16(sum))
	return padded(packet, size)
}

// firstFragment6 is that of a datagram of the pod fd01::2 to 2001:db8::2.
func firstFragment6(id int) []byte { return fragment6(id, 1496, 1) }

// fragment6 is a fragment of such a datagram, of size bytes. field has the offset and the flag.
func fragment6(id, size int, field uint16) []byte {
	packet := slices.Concat([]byte{0x60, 0, 0, 0}, binary.BigEndian.AppendUint16(nil, uint16(size-40)), []byte{unix.IPPROTO_FRAGMENT, 64},
		netip.MustParseAddr("fd01::2").AsSlice(), netip.MustParseAddr("2001:db8::2").AsSlice(),
		[]byte{unix.IPPROTO_UDP, 0}, binary.BigEndian.AppendUint16(nil, field), binary.BigEndian.AppendUint32(nil, uint32(id)))
	return padded(packet, size)
}

// padded fills a packet up to size bytes.
func padded(packet []byte, size int) []byte { return append(packet, make([]byte, size-len(packet))...) }
