package vlan

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/netdev/tc"
)

// Port is the port of one pod.
type Port struct {
	VLAN int // 1 to MaxVLAN
	MTU  int // bytes, without the tag; 0: the kernel's default

	// Ports fills these in, and Add ignores them.
	Name  string // of the outer end: PortName of the VLAN
	Alias string // of the outer end
}

// Trunk is the TAP of a guest's trunk NIC with its ports. It is not safe for
// concurrent use.
type Trunk struct {
	prefix string    // of the ports' names
	index  int       // of the TAP
	vlans  *ebpf.Map // VLAN -> index of the inner end
}

// Open makes a trunk of a TAP that is not on a bridge, and sets it up without ARP and
// IPv6. The names of the ports begin with prefix, which no other trunk may have. It
// has at most MaxPrefix bytes and does not end in a digit.
//
// Ports of an earlier Trunk of the TAP stay and lose no frame. Open deletes ports that
// are incomplete, or belong to an earlier TAP. After an error Open may be tried again.
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
		return nil, errors.New("TAP is on a bridge, which would receive the frames of all tenants: remove it from the bridge")
	}
	t.index = link.Attrs().Index
	if t.vlans, err = newVLANMap(); err != nil {
		return nil, err
	}
	if err := t.adopt(); err != nil {
		return nil, err
	}
	if err := tc.Silence(link); err != nil {
		return nil, err
	}
	if err := attach(link, outward(t.vlans)); err != nil { // before the TAP is up
		return nil, err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return nil, err
	}
	return t, nil
}

// adopt connects existing ports. The TAP's former program runs, with the former map,
// until Open replaces it.
func (t *Trunk) adopt() error {
	pairs, err := t.pairs()
	if err != nil {
		return err
	}
	for _, p := range pairs {
		if p.inner.Attrs().Alias == innerAlias(t.index) {
			err = t.connect(p.inner, p.vlan)
		} else {
			err = netlink.LinkDel(p.outer)
		}
		if err != nil {
			return fmt.Errorf("adopt port %s: %w", p.outer.Attrs().Name, err)
		}
	}
	return nil
}

// Add makes a port that is down, not on a bridge, and without an alias. The caller
// configures it and sets the alias last, so that a port with an alias is complete. It
// sets the port up only on a bridge: otherwise the pod's frames would reach the
// host's own network stack. When Add fails, it leaves no port, but an earlier port of
// the VLAN stays.
func (t *Trunk) Add(p Port) error {
	name := PortName(t.prefix, p.VLAN)
	if p.VLAN < 1 || p.VLAN > MaxVLAN {
		return fmt.Errorf("add port %s: VLAN %d: want 1 to %d", name, p.VLAN, MaxVLAN)
	}
	a := netlink.NewLinkAttrs()
	a.Name, a.MTU = name, p.MTU
	pair := netlink.NewVeth(a)
	pair.PeerName, pair.PeerMTU = innerName(name), uint32(p.MTU)
	if err := netlink.LinkAdd(pair); err != nil { // both ends are down
		return fmt.Errorf("add port %s with MTU %d: %w", name, p.MTU, err)
	}
	if err := t.complete(p.VLAN); err != nil {
		return fmt.Errorf("add port %s: %w", name, errors.Join(err, t.remove(p.VLAN)))
	}
	return nil
}

// complete makes a port of a new pair.
func (t *Trunk) complete(vlan int) error {
	name := PortName(t.prefix, vlan)
	inner, err := netlinksafe.LinkByName(innerName(name))
	if err != nil {
		return err
	}
	if err := netlink.LinkSetAlias(inner, innerAlias(t.index)); err != nil {
		return fmt.Errorf("set alias of %s: %w", inner.Attrs().Name, err)
	}
	if err := t.connect(inner, vlan); err != nil {
		return err
	}
	return tc.DisableIPv6(name)
}

// connect connects an inner end and the TAP in both directions, and sets it up.
func (t *Trunk) connect(inner netlink.Link, vlan int) error {
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
		return fmt.Errorf("set %s up: %w", inner.Attrs().Name, err)
	}
	return nil
}

// Delete deletes the port of a VLAN, if it exists.
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

// Ports lists the ports in the kernel, sorted by VLAN.
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

// Close closes the Trunk. Its ports work as long as the TAP exists.
func (t *Trunk) Close() error {
	if t.vlans == nil {
		return nil
	}
	return t.vlans.Close()
}
