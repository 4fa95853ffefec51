package machines

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/machines/sshhost"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/place"
	"unnest.io/unnest/internal/testbed/xen"
)

// XenHost is a Xen host that is up, with the domains of this run.
type XenHost struct {
	xen.Host
	Machine *machine.Machine
	domains []*xen.Domain // that were created so far, those of one name once
	Booted  bool          // this run has booted it
}

// The name of the Xen host that a run boots, and the prefix of the keys of Xen hosts.
const (
	XenNode = "xen"
	xenKey  = "xen "
)

// XenHost returns the Xen host of a configuration, and brings it up first if it is not up: the one
// that the configuration names, or a guest with Xen.
func (b *Set) XenHost(ctx context.Context, c stack.Configuration) (_ *XenHost, err error) {
	key := xenKey + c.Host
	if h := b.xens[key]; h != nil {
		return h, nil
	}
	bringUp := b.bootXen
	if c.Host != "" {
		bringUp = b.reachXen
	}
	h, err := bringUp(ctx, c)
	if err != nil {
		return nil, err
	}
	b.running[key] = h.Machine // Down leaves it
	name := XenNode
	if c.Host != "" {
		name = "ssh"
	}
	if h.Machine.Facts, h.Machine.Boot, err = machine.Describe(ctx, h.Dom0, name); err != nil {
		return nil, h.Machine.Explain(err)
	}
	h.Key = b.Fleet.Key()
	facts, err := h.Prepare(ctx)
	if err == nil && h.Reached && !h.Booted {
		err = b.routeTo(h)
	}
	if err == nil {
		err = h.SetImage(ctx, b.Images.Xen, b.Options.Progress.Phase)
	}
	if err != nil {
		return nil, h.Machine.Explain(err)
	}
	if !slices.Contains(b.facts.Guests, h.Machine.Facts) { // else it was restarted
		b.facts.Guests = append(b.facts.Guests, h.Machine.Facts)
	}
	b.FoundTool("xen", facts.Version)
	b.xens[key] = h
	return h, nil
}

// bootXen boots a guest with Xen, which has room for the domains of all configurations.
func (b *Set) bootXen(ctx context.Context, _ stack.Configuration) (*XenHost, error) {
	o, err := b.xenOptions()
	if err != nil {
		return nil, err
	}
	b.Options.Progress.Phase("boot the Xen host")
	node, err := b.launchNode(ctx, o)
	if err != nil {
		return nil, err
	}
	in, _, err := b.Fleet.Login(ctx, node)
	if err != nil {
		return nil, err
	}
	in.Patient()
	go func() { // nothing else ends the connections that go through it, those to the domains
		<-node.Done()
		_ = in.Close()
	}()
	b.Note("This run booted the Xen host itself, as a guest of QEMU with accelerator " + string(o.Accel) + ".")
	p := place.Within{Place: in, Env: []string{"LC_ALL=C"}, Name: in.String()}
	m := &machine.Machine{
		Place: p, Gone: node.Done(), Died: node.Err, Node: node, Address: node.TenantIP,
		Close: func() error { _ = in.Close(); return nil }, // the guest is killed anyway
	}
	h := &XenHost{Machine: m, Booted: true}
	h.Host = xen.Host{Dom0: p, Dial: in.Client().DialContext, Dir: sshhost.WorkPrefix + b.Lab.Name, Reached: true, Uplink: "eth0", Emulated: o.Accel == guest.TCG}
	return h, nil
}

// xenOptions are those of the guest with Xen. Dom0 has as many processors as the domain with most. With TCG
// and several processors, most domains with hardware virtualization die of a triple fault; with one
// processor none was seen to. So a guest with such domains has one.
func (b *Set) xenOptions() (fleet.Options, error) {
	o := fleet.Options{
		Name: XenNode, Image: b.Images.Xen, Accel: b.Options.Accel, VCPUs: 2, Memory: guest.XenMemory,
		Extras: func(netip.Addr) (fleet.Extras, error) { return fleet.Extras{Addresses: xen.Addresses()}, nil },
	}
	domains, single := map[string]bool{}, false
	for _, c := range b.Spec.Configurations {
		names := c.DomainNames()
		if c.Domains == nil {
			names = []string{c.Name}
		}
		for i, one := range c.Singles() {
			if !one.Stack.Xen() || one.Host != "" || domains[names[i]] {
				continue
			}
			domains[names[i]] = true
			size, err := b.Spec.Resources(one)
			if err != nil {
				return o, err
			}
			o.VCPUs, o.Memory = max(o.VCPUs, size.VCPUs), o.Memory+size.Memory+xenOverhead
			single = single || o.Accel == guest.TCG && KindOf(one.Stack) != xen.PV
		}
	}
	if single {
		o.VCPUs = 1
	}
	return o, nil
}

// xenOverhead is the memory that Xen and dom0 need for a domain.
const xenOverhead = 48 << 20

// reachXen logs in to a Xen host of the user's.
func (b *Set) reachXen(ctx context.Context, c stack.Configuration) (*XenHost, error) {
	r, m, err := sshhost.New(ctx, c, b.Lab.Name+".xen")
	if err != nil {
		return nil, err
	}
	b.Note(fmt.Sprintf("Unnest does not see what else runs on %s: noise there only widens the intervals.", c.Host))
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		return r.SSH.Client().DialContext(ctx, network, address)
	}
	return &XenHost{Machine: m, Host: xen.Host{Dom0: r.Place, Dial: dial, Dir: r.Dir, Reached: b.reaches(c)}}, nil
}

// routeTo gives this host a route to the domains of a Xen host of the user's, until the run ends.
func (b *Set) routeTo(h *XenHost) error {
	via, err := netip.ParseAddr(h.Machine.Address)
	if err != nil || !via.Is4() {
		return fmt.Errorf("its address %s is not an IPv4 address, and its domains have IPv4 only: name the host by an IPv4 address", h.Machine.Address)
	}
	return b.Lab.AddRoute(xen.Network(), via)
}
