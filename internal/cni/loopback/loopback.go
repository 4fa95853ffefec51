// Package loopback makes the loopback of a pod's fraction a part of the pod's: the
// guest's side of Hostlo (Bacou et al., section 4). The pod's lo stays, with all
// that the kernel does for it; two eBPF programs glue it to the segment's NIC. The
// one at lo's egress sends what no socket of this fraction takes to the others, the
// one at the NIC's ingress puts what comes from them into lo. Nothing that a socket
// of this fraction takes leaves the guest.
//
// # Who has the port
//
// Nobody needs to know. A SYN that is for no listener here is sent to all others,
// and so is a datagram. The kernel of each answers: with a SYN and ACK where
// somebody listens, with nothing where his backlog is full, else with a refusal.
// Refusals are counted, and one is heard when all others have sent theirs; so a
// port is refused at once where nobody listens, and never reset where somebody
// does. From then on a connection has a peer: the fraction that accepted, or whose
// range the client's port is from (segment.Ports). It alone is sent to, and heard.
// Datagrams go to the fraction that has last sent from there, or to the only one
// that has not refused them. A client that keeps its socket while a server of
// datagrams moves is refused once, at most.
//
// Who is in the segment comes with Join, and later in the reflector's frames, which
// the NIC's program takes itself: nothing of ours runs in the guest. When a fraction
// leaves, connects that wait for it alone are refused; connections with it are
// reset when they next send; its datagrams' flows are forgotten.
//
// # Bind conflicts
//
// In an undivided pod the second bind to an address and port fails with EADDRINUSE.
// Here it does so only within a fraction. A hook at bind (cgroup/bind4, bind6,
// post_bind4, post_bind6) could fail it, but not soundly:
//
//   - The hook would have to know the ports of the others at that moment. It cannot
//     ask: programs at these hooks have no helper that sends a frame, and none that
//     waits, as they must not sleep. So it would have to believe a table.
//   - The table cannot be kept without an agent. No hook, also not the one at the
//     release of a socket, can send a change. The NIC's program could send the whole
//     table whenever the reflector's frame comes by, every few seconds. For so long
//     two binds would both succeed, and, what is worse, a bind would fail where the
//     former server is gone: one that moves could not come up.
//   - The hooks belong to cgroups. When a CNI plugin is called, the pod's containers
//     have none yet, and it is not told which they will be.
//
// So both binds succeed. Clients in a fraction with such a server reach that one.
// Others' connections are with the one that accepts first, for as long as they
// last; their datagrams reach every one, and after the first answer its sender
// only. Two clients that bind the same port themselves may exist too, but only the
// first has a connection with a given server: the other is refused.
//
// # What is not shared
//
// Pings are answered in the fraction, and fragments (over IPv4 there are none;
// over IPv6 datagrams of more than 65,488 bytes are cut), raw sockets, SCTP,
// multicast, and sockets that are no network's stay there. SO_REUSEPORT balances
// within a fraction.
package loopback

import (
	"bytes"
	"errors"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"unnest/internal/hostapi/segment"
)

// Config is what a fraction is told of its segment when it joins.
type Config struct {
	Fraction   segment.Fraction // this one
	Members    segment.Set      // of the segment, this one among them
	Generation uint32           // of Members; the reflector's frames bring later ones
}

// ErrNotJoined is wrapped when a pod's lo is no part of a segment.
var ErrNotJoined = errors.New("lo is no part of a segment")

// Join makes the pod's lo a part of the segment whose NIC is in the pod's network
// namespace under the given name, with the fraction's MAC. The pod may be running:
// its connections go on. On an error all is as it was before. If the pod is in a
// segment already, it leaves that first.
func Join(pod ns.NetNS, nic string, c Config) error {
	if err := pod.Do(func(ns.NetNS) error { return join(nic, c) }); err != nil {
		return fmt.Errorf("join segment by %s as fraction %d: %w", nic, c.Fraction, err)
	}
	return nil
}

func join(nic string, c Config) error {
	if !c.Fraction.Valid() || !c.Members.Valid() || !c.Members.Has(c.Fraction) {
		return fmt.Errorf("members %s: want fractions 1 to %d, this one among them", c.Members, segment.MaxFractions)
	}
	if err := leave(nic); err != nil {
		return fmt.Errorf("leave former segment: %w", err)
	}
	link, err := findNIC(nic, c.Fraction)
	if err != nil {
		return err
	}
	if err := glue(link, c); err != nil {
		return errors.Join(err, leave(nic))
	}
	return nil
}

// glue begins with lo's program, which remembers for leave how all was, and lets
// everything stay here as long as it knows of no members.
func glue(nic netlink.Link, c Config) error {
	state, err := newState(nic, c)
	if err != nil {
		return err
	}
	programs, err := load(state)
	if err != nil {
		return err
	}
	defer programs.Close()
	if err := attach(lo, programs.LeaveLo, netlink.HANDLE_MIN_EGRESS); err != nil {
		return err
	}
	if err := adapt(nic, c.Fraction); err != nil {
		return err
	}
	state.Members = uint32(c.Members)
	if err := programs.HostloSegment.Put(uint32(0), state); err != nil {
		return fmt.Errorf("name the members: %w", err)
	}
	if err := attach(nic, programs.EnterNic, netlink.HANDLE_MIN_INGRESS); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(nic); err != nil {
		return fmt.Errorf("bring %s up: %w", nic.Attrs().Name, err)
	}
	return nil
}

// newState is the segment without members, with what Join is going to change.
func newState(nic netlink.Link, c Config) (loopbackSegment, error) {
	first, last := segment.Ports(1)
	s := loopbackSegment{
		Generation: c.Generation,
		Fraction:   uint32(c.Fraction),
		Nic:        uint32(nic.Attrs().Index),
		FirstPort:  first,
		Ports:      last - first + 1,
	}
	var err error
	if s.Former, err = remember(nic); err != nil {
		return s, fmt.Errorf("remember how it was: %w", err)
	}
	return s, nil
}

// findNIC returns the link of the given name, which has to be the fraction's.
func findNIC(name string, f segment.Fraction) (netlink.Link, error) {
	link, err := netlinksafe.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find link %s: %w", name, err)
	}
	if got, want := link.Attrs().HardwareAddr, segment.MAC(f); !bytes.Equal(got, want[:]) {
		return nil, fmt.Errorf("%s has the MAC %s, want fraction %d's, %s", name, got, f, want)
	}
	return link, nil
}

// Leave makes the pod's lo its own again, and leaves programs, settings and the NIC
// as Join has found them. That the pod is in no segment is no error, nor that the
// NIC is gone. Connections with other fractions are reset when they next send.
func Leave(pod ns.NetNS, nic string) error {
	if err := pod.Do(func(ns.NetNS) error { return leave(nic) }); err != nil {
		return fmt.Errorf("leave segment by %s: %w", nic, err)
	}
	return nil
}

// leave takes lo's program off last, so that it may be tried again after an error.
func leave(nic string) error {
	link, err := netlinksafe.LinkByName(nic)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		link, err = nil, nil
	}
	if err != nil {
		return fmt.Errorf("find link %s: %w", nic, err)
	}
	m, state, err := find(lo, netlink.HANDLE_MIN_EGRESS)
	if errors.Is(err, ErrNotJoined) && link != nil { // or somebody has taken it off
		m, state, err = find(link, netlink.HANDLE_MIN_INGRESS)
	}
	if errors.Is(err, ErrNotJoined) {
		return nil
	}
	if err != nil {
		return err
	}
	defer m.Close()
	return takeBack(link, m, state)
}

// takeBack undoes what Join has done. nic is nil if it is gone.
func takeBack(nic netlink.Link, m *ebpf.Map, state loopbackSegment) error {
	if nic != nil {
		if err := detach(nic, netlink.HANDLE_MIN_INGRESS, state.Former.NicClsact != 0); err != nil {
			return err
		}
	}
	state.Members = 0
	if err := m.Put(uint32(0), state); err != nil {
		return fmt.Errorf("forget the members: %w", err)
	}
	if err := restore(nic, state.Former); err != nil {
		return err
	}
	return detach(lo, netlink.HANDLE_MIN_EGRESS, state.Former.LoClsact != 0)
}

// Check returns an error unless the pod's lo and the NIC are as Join with the same
// configuration leaves them. Members may have come and gone.
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
	m, state, err := find(lo, netlink.HANDLE_MIN_EGRESS)
	if err != nil {
		return err
	}
	defer m.Close()
	a := link.Attrs()
	if state.Fraction != uint32(c.Fraction) || state.Nic != uint32(a.Index) {
		return fmt.Errorf("lo is fraction %d's by link %d: want link %d", state.Fraction, state.Nic, a.Index)
	}
	if f, err := ours(link, netlink.HANDLE_MIN_INGRESS); err != nil || f == nil {
		return errors.Join(err, fmt.Errorf("%s has no program of the segment at its ingress", nic))
	}
	if a.Flags&net.FlagUp == 0 || a.MTU != segment.MTU {
		return fmt.Errorf("%s has the flags %s and MTU %d: want it up, with %d", nic, a.Flags, a.MTU, segment.MTU)
	}
	return checkSettings(nic, c.Fraction)
}

// Membership is who is in the segment as the pod's lo knows it. It wraps
// ErrNotJoined when that is in none.
func Membership(pod ns.NetNS) (known segment.Membership, err error) {
	err = pod.Do(func(ns.NetNS) error {
		m, state, err := find(lo, netlink.HANDLE_MIN_EGRESS)
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
