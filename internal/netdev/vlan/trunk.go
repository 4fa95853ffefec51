// Package vlan is the host's side of trunk mode: pods that have no NIC of their
// own but a VLAN each on one NIC of the guest, the trunk. For every VLAN there is
// a port, which the caller plugs into the tenant's bridge; nothing of the trunk
// reaches anything else.
//
// A port is a veth. Its outer end is the caller's: what is done to a hot-plugged
// pod's TAP (bridge, filter, bandwidth, alias) is done to it. Its inner end is
// joined to the trunk's TAP by eBPF programs at the ingress of either, which put
// the VLAN tag on and take it off. So the kernel needs neither 802.1Q nor bridges
// with VLAN filtering, and a frame without the tag of a port is dropped before
// the host's network stack sees it. A frame has one tag: one with a second is
// dropped on its way out of the guest and into it.
//
// The TAP itself, who may have a port and what it may send do not belong here.
// All of it works on the network namespace of the calling thread.
package vlan

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"

	"unnest/internal/netdev/tc"
)

// Port is one pod's port.
type Port struct {
	VLAN int // 1 to MaxVLAN
	MTU  int // bytes, without the tag; 0: the kernel's default

	// As Ports finds them. Add does not set them.
	Name  string // of the outer end: PortName of the VLAN
	Alias string // of the outer end
}

// Trunk is the TAP of one guest's trunk NIC with its ports. Its methods are
// called one at a time.
type Trunk struct {
	prefix string    // of the ports' names
	index  int       // of the TAP
	vlans  *ebpf.Map // VLAN -> index of the inner end
}

// Open makes a TAP a trunk: up, without ARP and IPv6. The TAP is on no bridge.
// prefix begins the names of the ports: it is this trunk's alone, has at most
// MaxPrefix bytes and ends in no digit.
//
// Ports that are there already, because the trunk was open before, are kept and
// lose no frame. What is left of a port that was never complete, or was that of
// an earlier TAP, is removed. After an error the TAP is no trunk to rely on, and
// Open may be tried again.
func Open(tap, prefix string) (_ *Trunk, err error) {
	t := &Trunk{prefix: prefix}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open trunk %s: %w", tap, err), t.Close())
		}
	}()
	if err := checkPrefix(prefix); err != nil {
		return nil, err
	}
	link, err := netlinksafe.LinkByName(tap)
	if err != nil {
		return nil, err
	}
	if link.Attrs().MasterIndex != 0 {
		return nil, errors.New("the TAP is on a bridge, which would see every tenant's frames: take it off")
	}
	t.index = link.Attrs().Index
	if t.vlans, err = newVLANMap(); err != nil {
		return nil, err
	}
	if err := t.adopt(); err != nil {
		return nil, err
	}
	if err := t.prepare(link); err != nil {
		return nil, err
	}
	return t, nil
}

// adopt joins the ports that are there. The TAP's former program goes on, with
// the former map, until prepare replaces it.
func (t *Trunk) adopt() error {
	pairs, err := t.pairs()
	if err != nil {
		return err
	}
	for _, p := range pairs {
		if p.inner.Attrs().Alias == innerAlias(t.index) {
			err = t.join(p.inner, p.vlan)
		} else {
			err = netlink.LinkDel(p.outer)
		}
		if err != nil {
			return fmt.Errorf("adopt port %s: %w", p.outer.Attrs().Name, err)
		}
	}
	return nil
}

// prepare has the program in place before the TAP comes up.
func (t *Trunk) prepare(tap netlink.Link) error {
	if err := tc.Silence(tap); err != nil {
		return err
	}
	if err := attach(tap, outward(t.vlans)); err != nil {
		return err
	}
	return netlink.LinkSetUp(tap)
}

// Add makes a port that is down, on no bridge and without an alias. It is the
// caller's to do the rest, and to write the alias last: so a port that has one is
// complete. A port that is up is on a bridge: on none, what the pod sends would
// reach the host's own network stack. On an error there is no port, unless the
// VLAN had one before, which stays as it is.
func (t *Trunk) Add(p Port) error {
	name := PortName(t.prefix, p.VLAN)
	if p.VLAN < 1 || p.VLAN > MaxVLAN {
		return fmt.Errorf("add port %s: want a VLAN of 1 to %d", name, MaxVLAN)
	}
	if err := addPair(name, p.MTU); err != nil {
		return fmt.Errorf("add port %s with MTU %d: %w", name, p.MTU, err)
	}
	if err := t.complete(p.VLAN); err != nil {
		return fmt.Errorf("add port %s: %w", name, errors.Join(err, t.remove(p.VLAN)))
	}
	return nil
}

// addPair leaves both ends down.
func addPair(name string, mtu int) error {
	a := netlink.NewLinkAttrs()
	a.Name, a.MTU = name, mtu
	v := netlink.NewVeth(a)
	v.PeerName, v.PeerMTU = innerName(name), uint32(mtu)
	return netlink.LinkAdd(v)
}

// complete makes a new pair into a port.
func (t *Trunk) complete(vlan int) error {
	name := PortName(t.prefix, vlan)
	inner, err := netlinksafe.LinkByName(innerName(name))
	if err != nil {
		return err
	}
	if err := netlink.LinkSetAlias(inner, innerAlias(t.index)); err != nil {
		return fmt.Errorf("set alias of %s: %w", inner.Attrs().Name, err)
	}
	if err := t.join(inner, vlan); err != nil {
		return err
	}
	outer, err := netlinksafe.LinkByName(name)
	if err != nil {
		return err
	}
	return tc.DisableIPv6(outer)
}

// join joins an inner end and the TAP, in both directions, and brings it up. It
// may be joined already.
func (t *Trunk) join(inner netlink.Link, vlan int) error {
	if err := tc.Silence(inner); err != nil {
		return err
	}
	if err := attach(inner, inward(vlan, t.index)); err != nil {
		return err
	}
	if err := t.vlans.Put(uint32(vlan), uint32(inner.Attrs().Index)); err != nil {
		return fmt.Errorf("map VLAN %d: %w", vlan, err)
	}
	if err := netlink.LinkSetUp(inner); err != nil {
		return fmt.Errorf("bring up %s: %w", inner.Attrs().Name, err)
	}
	return nil
}

// Delete removes the port of a VLAN; that there is none is no error.
func (t *Trunk) Delete(vlan int) error {
	if vlan < 1 || vlan > MaxVLAN {
		return nil
	}
	if err := t.remove(vlan); err != nil {
		return fmt.Errorf("delete port %s: %w", PortName(t.prefix, vlan), err)
	}
	return nil
}

func (t *Trunk) remove(vlan int) error {
	if err := t.vlans.Put(uint32(vlan), uint32(0)); err != nil {
		return fmt.Errorf("unmap VLAN %d: %w", vlan, err)
	}
	outer, err := netlinksafe.LinkByName(PortName(t.prefix, vlan))
	if err == nil {
		err = netlink.LinkDel(outer) // the inner end goes with it
	}
	if missing(err) {
		return nil
	}
	return err
}

// Ports lists the ports by VLAN, as the kernel has them.
func (t *Trunk) Ports() ([]Port, error) {
	pairs, err := t.pairs()
	if err != nil {
		return nil, fmt.Errorf("list ports %s*: %w", t.prefix, err)
	}
	ports := make([]Port, len(pairs))
	for i, p := range pairs {
		a := p.outer.Attrs()
		ports[i] = Port{VLAN: p.vlan, MTU: a.MTU, Name: a.Name, Alias: a.Alias}
	}
	return ports, nil
}

// Close lets the trunk go. Its ports stay, and work as long as the TAP is there.
func (t *Trunk) Close() error {
	if t.vlans == nil {
		return nil
	}
	return t.vlans.Close()
}
