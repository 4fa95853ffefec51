// Package loopback connects the loopback of a pod's fraction with those of the other
// fractions: the guest's side of Hostlo (Bacou et al. 2019, §4). The pod's lo stays,
// with everything that the kernel does for it; eBPF programs connect it to the
// segment's NIC. The one at lo's egress sends packets that no socket of this fraction
// accepts to the other fractions. The one at the NIC's ingress puts packets from
// other fractions into lo. A packet that a socket of this fraction accepts never
// leaves the guest.
//
// # Finding a port's owner
//
// To find a port's owner, the program asks every fraction. It sends a SYN that no
// listener here accepts to all others, and so a datagram. The kernel of each answers:
// with a SYN and ACK if there is a listener, with nothing if its backlog is full,
// otherwise with a refusal. The program counts refusals, and passes one on when all
// others have refused. So a port is refused at once if it has no listener, and never
// reset if it has one. The next SYN for the same address goes to the fraction that has
// accepted alone; if its listener has gone, the SYN comes back and is sent to all. A
// connection has its other end in one fraction, and only that one sends and receives
// its segments. A datagram goes to the fraction that has last sent from its
// destination, or to the only one that has not refused. If the server there has gone, the
// datagram comes back and is sent to all, so a UDP server may move under its clients.
//
// # Equal ports
//
// Every fraction has all ports for its clients, so clients in two fractions may have
// the same port and call the same server. The server's fraction sees both, and gives
// the second one another port, at which its kernel and the server see it: the program
// replaces the port in what comes from that client, and restores it in what goes to
// it, also in quoted packets. A client in the server's own fraction is no exception.
// Connections without such a conflict are not changed. All servers of a fraction see a
// UDP client at the same port, so an answer from another port than it has called
// reaches it, too. The server's fraction knows of a second client at the port from its
// first datagram on. Before, its socket may be a server's: it gets such answers for the
// first client, too. A second client in the server's fraction may get them in place
// of the first while it has the port.
//
// The sockets of a connection keep its other end (BPF_MAP_TYPE_SK_STORAGE), so an idle
// connection is never forgotten. The map hostlo_tcp serves handshakes and answers
// without a socket.
//
// Join sets the members of the segment. Later the NIC's program takes them from the
// reflector's frames: no process of ours runs in the guest. When a fraction leaves,
// connects that wait only for it are refused, connections with it are reset when they
// next send, and its UDP flows are removed.
//
// # The pod's own addresses
//
// A packet on lo may also be between the fraction's own addresses: the pod calls itself
// by its host name. If it begins a connection and no socket here accepts it, it is sent
// to the others with aliases, loopback addresses that stand for the own ones, and what
// comes for an alias gets the address again. So a server on any address accepts it, and
// one on loopback refuses it. IPv6 aliases are in a prefix that Join makes local.
//
// A packet from outside for an own address, which no socket here accepts, goes to the
// fraction that accepts it in the same way, with an alias for its sender, too. A program
// at the ingress of the pod's other interfaces sends it; the NIC's program sends the
// answers by the interface of the client. Join takes the addresses that there are.
//
// # Bind conflicts
//
// In an undivided pod the second bind to an address and port fails with EADDRINUSE.
// Here it fails only within a fraction. A hook at bind (cgroup/bind4, bind6,
// post_bind4, post_bind6) could fail it in other cases, but not correctly:
//
//   - The hook would need the other fractions' ports at that moment. It cannot ask:
//     programs at these hooks must not sleep, and have no helper that sends a frame.
//     So it would depend on a table.
//   - The table cannot be maintained without an agent. No hook can send a change, not
//     even the one at the release of a socket. The NIC's program could send the whole
//     table with each frame of the reflector, every few seconds. In between, two binds
//     could both succeed and, which is worse, a bind could fail after the former
//     server has gone: a server could not move.
//   - The hooks belong to cgroups. When a CNI plugin is called, the pod's containers
//     have no cgroups yet, and the plugin is not told which they will be.
//
// So both binds succeed. docs/hostlo.md says what follows for clients, and what is not shared.
package loopback

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/cni/podnic"
	"unnest.io/unnest/internal/hostapi/segment"
)

// Config is a fraction's configuration when it joins its segment.
type Config struct {
	Fraction   segment.Fraction // this one
	Members    segment.Set      // of the segment, with this one
	Generation uint32           // of Members; the reflector's frames bring later ones
	MTU        int              // of the NIC, in bytes; 0: segment.MTU
}

func (c Config) mtu() int { return cmp.Or(c.MTU, segment.MTU) }

// ErrNotJoined is wrapped when a pod's lo is not part of a segment.
var ErrNotJoined = errors.New("lo is not part of a segment")

// Join makes the pod's lo a part of the segment whose NIC is in the pod's network
// namespace under the given name, with the fraction's MAC. The pod may be running:
// its connections stay. If the pod is in a segment already, it leaves that first. Join
// also brings lo up, as some runtimes leave that to plugins. On an error it rolls
// everything else back.
func Join(pod ns.NetNS, nic string, c Config) error {
	if err := pod.Do(func(ns.NetNS) error { return join(nic, c) }); err != nil {
		return fmt.Errorf("join segment by %s as fraction %d: %w", nic, c.Fraction, err)
	}
	return nil
}

func join(nic string, c Config) error {
	if !c.Fraction.Valid() || !c.Members.Valid() || !c.Members.Has(c.Fraction) {
		return fmt.Errorf("members %s: want fractions from 1 to %d, with this one", c.Members, segment.MaxFractions)
	}
	if err := leave(nic); err != nil {
		return fmt.Errorf("leave former segment: %w", err)
	}
	link, err := findNIC(nic, c.Fraction)
	if err != nil {
		return err
	}
	if err := connect(link, c); err != nil {
		return errors.Join(err, leave(nic))
	}
	return nil
}

// connect begins with lo's program, whose map keeps the former settings for leave. The
// program changes nothing as long as it has no members.
func connect(nic netlink.Link, c Config) error {
	state := loopbackSegment{Generation: c.Generation, Fraction: uint32(c.Fraction), Nic: uint32(nic.Attrs().Index)}
	var err error
	if state.Former, err = readFormer(nic); err != nil {
		return err
	}
	programs, err := load(state)
	if err != nil {
		return err
	}
	defer programs.Close()
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	if err := attach(lo, programs.LeaveLo, netlink.HANDLE_MIN_EGRESS); err != nil {
		return err
	}
	if err := configure(nic, c.mtu()); err != nil {
		return err
	}
	state.Members = uint32(c.Members)
	if err := programs.HostloSegment.Put(uint32(0), state); err != nil {
		return fmt.Errorf("set the members: %w", err)
	}
	if err := attach(nic, programs.EnterNic, netlink.HANDLE_MIN_INGRESS); err != nil {
		return err
	}
	if err := openToOutside(nic, programs); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(nic); err != nil {
		return fmt.Errorf("bring %s up: %w", nic.Attrs().Name, err)
	}
	return nil
}

// findNIC returns the link of the given name, which must have the fraction's MAC.
func findNIC(name string, f segment.Fraction) (netlink.Link, error) {
	link, err := netlinksafe.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find link %s: %w", name, err)
	}
	if got, want := link.Attrs().HardwareAddr, segment.MAC(f); !bytes.Equal(got, want[:]) {
		return nil, fmt.Errorf("%s has the MAC %s: want fraction %d's, %s", name, got, f, want)
	}
	return link, nil
}

// Leave takes the pod's lo out of the segment, and undoes what Join has changed. It is
// not an error when the pod is in no segment, or the NIC has been unplugged.
// Connections with other fractions are reset when they next send.
func Leave(pod ns.NetNS, nic string) error {
	if err := pod.Do(func(ns.NetNS) error { return leave(nic) }); err != nil {
		return fmt.Errorf("leave segment by %s: %w", nic, err)
	}
	return nil
}

// leave detaches lo's program last, so that it can be repeated after an error.
func leave(nic string) error {
	link, err := podnic.FindLink(nic)
	if err != nil {
		return err
	}
	m, state, err := findMap(lo, netlink.HANDLE_MIN_EGRESS)
	if errors.Is(err, ErrNotJoined) && link != nil { // another process may have detached lo's program
		m, state, err = findMap(link, netlink.HANDLE_MIN_INGRESS)
	}
	if errors.Is(err, ErrNotJoined) {
		return nil
	}
	if err != nil {
		return err
	}
	defer m.Close()
	return disconnect(link, m, state)
}

// disconnect undoes connect. nic is nil if it has been unplugged.
func disconnect(nic netlink.Link, m *ebpf.Map, state loopbackSegment) error {
	if nic != nil {
		if err := detach(nic, netlink.HANDLE_MIN_INGRESS, state.Former.NicClsact != 0); err != nil {
			return err
		}
	}
	if err := closeToOutside(nic); err != nil {
		return err
	}
	state.Members = 0
	if err := m.Put(uint32(0), state); err != nil {
		return fmt.Errorf("clear the members: %w", err)
	}
	if err := restore(nic, state); err != nil {
		return err
	}
	return detach(lo, netlink.HANDLE_MIN_EGRESS, state.Former.LoClsact != 0)
}

// Check returns an error unless the pod's lo and the NIC are as Join with the same
// fraction leaves them. The members may have changed.
func Check(pod ns.NetNS, nic string, c Config) error {
	if err := pod.Do(func(ns.NetNS) error { return check(nic, c) }); err != nil {
		return fmt.Errorf("check segment by %s as fraction %d: %w", nic, c.Fraction, err)
	}
	return nil
}

func check(nic string, c Config) error {
	link, err := findNIC(nic, c.Fraction)
	if err != nil {
		return err
	}
	if err := podnic.Check("lo", nil, nil); err != nil {
		return err
	}
	m, state, err := findMap(lo, netlink.HANDLE_MIN_EGRESS)
	if err != nil {
		return err
	}
	defer m.Close()
	a := link.Attrs()
	if state.Fraction != uint32(c.Fraction) || state.Nic != uint32(a.Index) {
		return fmt.Errorf("lo belongs to fraction %d by link %d: want link %d", state.Fraction, state.Nic, a.Index)
	}
	if f, err := ours(link, netlink.HANDLE_MIN_INGRESS); err != nil || f == nil {
		return errors.Join(err, fmt.Errorf("%s lacks the segment's program at its ingress", nic))
	}
	if a.Flags&net.FlagUp == 0 || a.MTU != c.mtu() {
		return fmt.Errorf("%s has the flags %s and MTU %d: want it up, with MTU %d", nic, a.Flags, a.MTU, c.mtu())
	}
	return checkSettings(nic)
}

// Membership returns the members of the segment that the pod's lo knows. It wraps
// ErrNotJoined when lo is in no segment.
func Membership(pod ns.NetNS) (known segment.Membership, err error) {
	err = pod.Do(func(ns.NetNS) error {
		m, state, err := findMap(lo, netlink.HANDLE_MIN_EGRESS)
		if err != nil {
			return err
		}
		known = segment.Membership{Generation: state.Generation, Members: segment.Set(state.Members)}
		return m.Close()
	})
	if err != nil {
		return known, fmt.Errorf("read members: %w", err)
	}
	return known, nil
}
