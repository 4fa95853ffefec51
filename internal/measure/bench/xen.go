package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/stack"
	"unnest/internal/testbed/fleet"
	"unnest/internal/testbed/guest"
	"unnest/internal/testbed/place"
	"unnest/internal/testbed/xen"
)

// xenHost is a Xen host that is up, with the domains of this run.
type xenHost struct {
	xen.Host
	dom0    *machine
	domains []*xen.Domain // that were created so far, those of one name once
	own     bool          // this run has booted it
}

// The name of the Xen host that a run boots, and the prefix of the keys of Xen hosts.
const (
	xenNode = "xen"
	xenKey  = "xen "
)

// xenHost returns the Xen host of a configuration, and brings it up first if it is not up: the one
// that the configuration names, or a guest with Xen.
func (b *Bench) xenHost(ctx context.Context, c stack.Configuration) (_ *xenHost, err error) {
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
	b.running[key] = h.dom0 // Down leaves it
	name := xenNode
	if c.Host != "" {
		name = "ssh"
	}
	if h.dom0.facts, h.dom0.boot, err = describeMachine(ctx, h.Dom0, name); err != nil {
		return nil, h.dom0.explain(err)
	}
	h.Key = b.fleet.Key()
	facts, err := h.Prepare(ctx)
	if err == nil && h.Reached && !h.own {
		err = b.routeTo(h)
	}
	if err == nil {
		err = h.SetImage(ctx, b.images.xen, b.options.Progress.Phase)
	}
	if err != nil {
		return nil, h.dom0.explain(err)
	}
	if !slices.Contains(b.facts.Guests, h.dom0.facts) { // else it was restarted
		b.facts.Guests = append(b.facts.Guests, h.dom0.facts)
	}
	b.facts.Tools["xen"] = facts.Version
	b.xens[key] = h
	return h, nil
}

// bootXen boots a guest with Xen, which has room for the domains of all configurations.
func (b *Bench) bootXen(ctx context.Context, _ stack.Configuration) (*xenHost, error) {
	o, err := b.xenOptions()
	if err != nil {
		return nil, err
	}
	b.options.Progress.Phase("boot the Xen host")
	node, err := b.fleet.Launch(ctx, o)
	if err != nil {
		return nil, err
	}
	b.nodes = append(b.nodes, node)
	in, _, err := b.fleet.Login(ctx, node)
	if err != nil {
		return nil, err
	}
	in.Patient()
	go func() { // nothing else ends the connections that go through it, those to the domains
		<-node.Done()
		_ = in.Close()
	}()
	b.note("This run booted the Xen host itself, as a guest of QEMU with accelerator " + string(o.Accel) + ".")
	p := place.Within{Place: in, Env: []string{"LC_ALL=C"}, Name: in.String()}
	m := &machine{
		place: p, gone: node.Done(), died: node.Err, node: node, address: node.TenantIP,
		close: func() error { _ = in.Close(); return nil }, // the guest is killed anyway
	}
	h := &xenHost{dom0: m, own: true}
	h.Host = xen.Host{Dom0: p, Dial: in.Client().DialContext, Dir: workOnRemotes + b.lab.Name, Reached: true, Uplink: "eth0", Emulated: o.Accel == guest.TCG}
	return h, nil
}

// xenOptions are those of the guest with Xen. Dom0 has as many processors as the domain with most. With TCG
// and several processors, most domains with hardware virtualization die of a triple fault; with one
// processor none was seen to. So a guest with such domains has one.
func (b *Bench) xenOptions() (fleet.Options, error) {
	o := fleet.Options{
		Name: xenNode, Image: b.images.xen, Accel: b.options.Accel, VCPUs: 2, Memory: guest.XenMemory,
		Extras: func(netip.Addr) (fleet.Extras, error) { return fleet.Extras{Addresses: xen.Addresses()}, nil },
	}
	domains, single := map[string]bool{}, false
	for _, c := range b.spec.Configurations {
		names := c.DomainNames()
		if c.Domains == nil {
			names = []string{c.Name}
		}
		for i, one := range c.Singles() {
			if !one.Stack.Xen() || one.Host != "" || domains[names[i]] {
				continue
			}
			domains[names[i]] = true
			size, err := b.spec.Resources(one)
			if err != nil {
				return o, err
			}
			o.VCPUs, o.Memory = max(o.VCPUs, size.VCPUs), o.Memory+size.Memory+xenOverhead
			single = single || o.Accel == guest.TCG && kindOf(one.Stack) != xen.PV
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
func (b *Bench) reachXen(ctx context.Context, c stack.Configuration) (*xenHost, error) {
	r, m, err := newRemote(ctx, c, b.lab.Name+".xen")
	if err != nil {
		return nil, err
	}
	b.note(fmt.Sprintf("Unnest does not see what else runs on %s: noise there only widens the intervals.", c.Host))
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		return r.ssh.Client().DialContext(ctx, network, address)
	}
	return &xenHost{dom0: m, Host: xen.Host{Dom0: r.place, Dial: dial, Dir: r.dir, Reached: b.reaches(c)}}, nil
}

// reaches reports whether a load generator on this host loads a configuration. That of a workload does.
func (b *Bench) reaches(c stack.Configuration) bool {
	return c.Drive == stack.Remote || slices.ContainsFunc(b.spec.Cases, func(k experiment.Case) bool { return k.Local == nil && k.Probe == "" })
}

// routeTo gives this host a route to the domains of a Xen host of the user's, until the run ends.
func (b *Bench) routeTo(h *xenHost) error {
	via, err := netip.ParseAddr(h.dom0.address)
	if err != nil || !via.Is4() {
		return fmt.Errorf("its address %s is not an IPv4 address, and its domains have IPv4 only: name the host by an IPv4 address", h.dom0.address)
	}
	return b.lab.AddRoute(xen.Network(), via)
}

// checkXenHosts refuses a second Xen host of the user's if load generators on this host load the domains of both: domains
// have the same addresses on every Xen host.
func (b *Bench) checkXenHosts(c stack.Configuration) error {
	reached := func(c stack.Configuration) bool { return c.Stack.Xen() && c.Host != "" && b.reaches(c) }
	for _, other := range b.spec.Configurations {
		if other.Host != c.Host && reached(c) && reached(other) {
			return fmt.Errorf("domains at %s and %s: clients reach those of one Xen host at a time: write the others into another file", c.Host, other.Host)
		}
	}
	return nil
}

// xenDomain creates the domain of a configuration on its Xen host.
func (b *Bench) xenDomain(ctx context.Context, c stack.Configuration) (*machine, error) {
	h, err := b.xenHost(ctx, c)
	if err != nil {
		return nil, err
	}
	size, err := b.spec.Resources(c)
	if err != nil {
		return nil, err
	}
	config := xen.Config{Name: containerName(c), Kind: kindOf(c.Stack), VCPUs: size.VCPUs, Memory: size.Memory}
	return h.bringUp(ctx, config, b.options.Progress)
}

// kindOf is the kind of the domain of a stack.
func kindOf(s stack.Stack) xen.Kind { return xen.Kind(strings.TrimPrefix(string(s[0]), "xen-")) }

// has reports whether a domain was created on the host.
func (h *xenHost) has(d *xen.Domain) bool { return slices.Contains(h.domains, d) }

// create creates a domain. If there was one of its name, it gets the number of that one.
func (h *xenHost) create(ctx context.Context, c xen.Config) (*xen.Domain, error) {
	i := slices.IndexFunc(h.domains, func(d *xen.Domain) bool { return d.Name == c.Name })
	if c.Number = i + 1; i < 0 {
		c.Number = len(h.domains) + 1
	}
	d, err := h.Create(ctx, c)
	if err != nil {
		return nil, h.dom0.explain(err)
	}
	if i < 0 {
		h.domains = append(h.domains, d)
	} else {
		h.domains[i] = d
	}
	return d, nil
}

// creations is how often a run creates a domain that is gone before it is ready, and how often it tries
// to start a configuration. On two emulated processors, 4 of 15 PVH and HVM domains were gone that early.
const creations = 4

// bringUp creates a domain and logs in to it. If the domain is gone before, it creates it again.
func (h *xenHost) bringUp(ctx context.Context, c xen.Config, progress experiment.Progress) (*machine, error) {
	for n := 1; ; n++ {
		progress.Phase("create domain " + c.Name)
		m, err := h.tryBringUp(ctx, c)
		if !errors.Is(err, xen.ErrGone) || n == creations {
			return m, err
		}
		progress.Phase(err.Error())
	}
}

func (h *xenHost) tryBringUp(ctx context.Context, c xen.Config) (*machine, error) {
	d, err := h.create(ctx, c)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeoutCause(ctx, domainTimeout, fmt.Errorf("it is not ready after %v", domainTimeout))
	defer cancel()
	in, err := d.Login(limited)
	if err != nil {
		if err = h.dom0.explain(err); errors.Is(err, xen.ErrGone) {
			err = errors.Join(err, d.Destroy(ctx)) // its files, for the next one
		}
		return nil, err
	}
	m := &machine{
		domain: d,
		place:  place.Within{Place: in, Env: []string{"LC_ALL=C", "HOME=/tmp"}, Name: in.String()},
		work:   "/var/lib/unnest/work", gone: in.Done(),
		died: func() error {
			if !in.Lost() {
				return nil
			}
			ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
			defer cancel()
			if err := h.dom0.explain(d.Err(ctx)); err != nil {
				return err
			}
			return fmt.Errorf("domain %s no longer answers", c.Name)
		},
	}
	watched, stop := context.WithCancel(context.Background())
	m.close = func() error { // the domain is destroyed with the others
		stop()
		_ = in.Close()
		return nil
	}
	go func() {
		ctx, done := whileAlive(watched, h.dom0)
		defer done()
		if d.Watch(ctx) == nil || ctx.Err() != nil {
			_ = in.Close() // a connection does not notice that the machine is gone
		}
	}()
	if h.Reached {
		m.address = d.Address
	}
	return m, nil
}

// domainTimeout is how long a domain may take until it is ready. In an emulated Xen host it takes
// half a minute, and on a machine that is busy with other things seven minutes were seen.
const domainTimeout = 15 * time.Minute
