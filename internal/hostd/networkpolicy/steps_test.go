package networkpolicy

import (
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/ipam"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/seedtest"
	"unnest.io/unnest/internal/netdev/isolation"
	"unnest.io/unnest/internal/netdev/link"
)

// stepsTenants have a guest each, with an own NIC and ports for pods; stepsFurther are bridges each of which one of them may have.
var (
	stepsTenants = []string{"shop", "store"}
	stepsTAP     = map[string]string{"shop": "s1", "store": "t1"}
	stepsFurther = []string{"br3", "br4", "br5"}
)

// stepsGuest returns the tenant of the guest that has a port.
func stepsGuest(iface string) string {
	return map[byte]string{'p': "shop", 'q': "store"}[iface[0]]
}

// stepsHost is a crashHost with operations that the test draws.
type stepsHost struct {
	*crashHost
	random  *rand.Rand
	file    quota.Config // hostd.yaml
	clients map[string]*stepsClient
	uids    int
}

// stepsClient is a policy client, with what the daemon has told it.
type stepsClient struct {
	session *Session
	staged  *Staging
	ranges  *hostdpb.AddressRanges
	pods    map[string]*hostdpb.AttachedPod
}

func (h *stepsHost) maybe(one int) bool { return h.random.IntN(one) == 0 }

// draw draws a configuration.
func (h *stepsHost) draw() quota.Config {
	c := quota.Config{Listen: netip.MustParseAddrPort("127.0.0.1:7443")}
	further := slices.Clone(stepsFurther)
	h.random.Shuffle(len(further), func(i, j int) { further[i], further[j] = further[j], further[i] })
	for i, name := range []string{"plain", "shop", "store"} {
		t := quota.Tenant{
			Name: name, Bridge: fmt.Sprint("br", i), MTU: 1400, Limits: quota.DefaultLimits,
			Ranges: []ipam.Range{{Subnet: netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/24", i+1))}},
		}
		t.NetworkPolicy = []string{quota.PolicyOptional, quota.PolicyOptional, quota.PolicyRequired, ""}[h.random.IntN(4-i%2)]
		if name == "plain" {
			t.NetworkPolicy = ""
		}
		for len(further) > 0 && h.maybe(2) {
			t.Bridges, further = append(t.Bridges, further[0]), further[1:]
		}
		for _, r := range []*[]netip.Prefix{&t.PodRanges, &t.NodeRanges} {
			if h.maybe(2) {
				*r = []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", 200+h.random.IntN(8)))}
			}
		}
		t.Limits.NICs = h.random.IntN(9)
		if name == "plain" && h.maybe(2) {
			continue
		}
		c.Tenants = append(c.Tenants, t)
	}
	return c
}

// attached returns the ports of pods.
func (h *stepsHost) attached() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(h.links)) {
		if _, _, ok := attachment.ParseAlias(h.links[name].Alias); ok {
			all = append(all, name)
		}
	}
	return all
}

// operation draws an operation and executes it.
func (h *stepsHost) operation() {
	tenant := stepsTenants[h.random.IntN(len(stepsTenants))]
	client := h.clients[tenant]
	switch h.random.IntN(9) {
	case 0, 1:
		name := fmt.Sprint(string("pq"[slices.Index(stepsTenants, tenant)]), 1+h.random.IntN(4))
		if slices.Contains(h.attached(), name) {
			return
		}
		t, _ := h.now.Tenant(tenant)
		h.uids++
		r := attachment.Record{Bridge: t.AllBridges()[h.random.IntN(len(t.AllBridges()))], PodUID: fmt.Sprint("uid-", h.uids), Network: "pods"}
		if h.maybe(6) {
			r.PodUID = attachment.NoPod
		}
		r.Addresses = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, name[0], name[1]}), 16)}
		if t.NetworkPolicy != "" && h.maybe(2) {
			r.Services = []netip.Addr{netip.AddrFrom4([4]byte{10, 0, name[0] + 100, name[1]})}
		}
		h.done = append(h.done, fmt.Sprintf("[connect %s %s %s]", name, r.Bridge, r.PodUID))
		h.connectPod(name, r)
	case 2:
		if all := h.attached(); len(all) > 0 {
			name := all[h.random.IntN(len(all))]
			h.done = append(h.done, "[disconnect "+name+"]")
			h.disconnect(name)
		}
	case 3:
		h.done = append(h.done, "[begin "+tenant+"]")
		h.beginClient(tenant)
		if client != nil { // the new client supersedes this one, which commits once more
			if _, err := h.policies.Commit(client.session, client.staged); err != errSuperseded { //nolint:errorlint // never wrapped
				h.Fatalf("commit of a superseded client: %v", err)
			}
			h.policies.End(client.session)
		}
	case 4, 5:
		if client != nil {
			h.done = append(h.done, "[commit "+tenant+"]")
			h.say(client)
			if h.maybe(6) {
				h.refuseAt = 1 + h.random.IntN(2)
			}
			err := h.commitOf(client.session, client.staged)
			if (err != nil) != (h.refuseAt < 0) {
				h.Fatalf("commit: %v, although the kernel has refused it: %t; after %q", err, h.refuseAt < 0, h.done)
			}
			if err != nil { // the client's stream ends
				h.policies.End(client.session)
				delete(h.clients, tenant)
			}
		}
	case 6:
		if client != nil {
			h.done = append(h.done, "[end "+tenant+"]")
			h.policies.End(client.session)
			delete(h.clients, tenant)
		}
	case 7:
		h.reload(h.draw(), h.maybe(4))
	case 8:
		switch h.random.IntN(3) {
		case 0:
			h.full = !h.full
		case 1:
			h.begin()
		}
	}
}

// beginClient begins the session of a client, if the tenant may have one.
func (h *stepsHost) beginClient(tenant string) {
	h.Helper()
	session, err := h.policies.Begin(tenant)
	if t, _ := h.now.Tenant(tenant); (err == nil) != (t.NetworkPolicy != "") {
		h.Fatalf("a client of %s begins: %v", tenant, err)
	}
	if err == nil {
		h.clients[tenant] = &stepsClient{session, NewStaging(h.policies.StreamMemory()), nil, map[string]*hostdpb.AttachedPod{}}
	}
}

// say has a client say which connections some pods may have.
func (h *stepsHost) say(client *stepsClient) {
	uids := []string{fmt.Sprint("uid-", h.uids+1)} // the next pod
	for _, name := range h.attached() {
		_, r, _ := attachment.ParseAlias(h.links[name].Alias)
		uids = append(uids, r.PodUID)
	}
	for _, uid := range uids {
		r := &hostdpb.ApplyRequest{Remove: "web/" + uid}
		if uid == attachment.NoPod || h.maybe(4) {
			continue
		}
		if !h.maybe(6) {
			direction := func() *hostdpb.PolicyDirection {
				if h.maybe(5) {
					return nil
				}
				rule := &hostdpb.PolicyRule{}
				for i := range 1 + h.random.IntN(3) {
					rule.Peers = append(rule.Peers, fmt.Sprintf("10.99.%d.%d/32", h.random.IntN(200), 2*i))
				}
				return &hostdpb.PolicyDirection{Allow: []*hostdpb.PolicyRule{rule}}
			}
			r = &hostdpb.ApplyRequest{Pod: &hostdpb.PodPolicy{Pod: "web/" + uid, Uid: uid, Ingress: direction(), Egress: direction()}}
		}
		if err := client.staged.Add(r); err != nil {
			h.Fatal(err)
		}
	}
}

// reload has the daemon read another hostd.yaml. The steps are in the order of package daemon.
func (h *stepsHost) reload(file quota.Config, refused bool) {
	h.file = file
	next, _, err := h.now.Reload(h.file)
	h.done = append(h.done, fmt.Sprintf("[reload %v]", stepsBridges(next)))
	if err != nil {
		return
	}
	h.next = next
	before := h.now
	if refused {
		h.refuseAt = 1 + h.random.IntN(3)
	}
	_, err = h.policies.Configure(next.Tenants)
	refused = h.refuseAt < 0
	h.refuseAt = 0
	if (err != nil) != refused {
		h.Fatalf("reload: %v, although the kernel has refused it: %t; after %q", err, refused, h.done)
	}
	if err != nil {
		h.next = h.now
		return
	}
	h.now = next
	for _, t := range next.Tenants {
		h.policies.NodesChanged(t.Name)
	}
	for _, name := range stepsTenants { // the runs of their guests begin anew
		was, _ := before.Tenant(name)
		if now, _ := next.Tenant(name); !slices.Equal(was.Bridges, now.Bridges) {
			h.takeOver(name)
		}
	}
}

func stepsBridges(c quota.Config) (all []string) {
	for _, t := range c.Tenants {
		all = append(all, fmt.Sprintf("%s=%s%s", t.Name, t.NetworkPolicy, t.AllBridges()))
	}
	return all
}

// begin starts a daemon, with the configuration of the file.
func (h *stepsHost) begin() {
	h.done = append(h.done, fmt.Sprintf("[start %v]", stepsBridges(h.file)))
	h.clients = map[string]*stepsClient{}
	h.startWith(h.file)
	for _, i := range h.random.Perm(len(stepsTenants)) {
		h.takeOver(stepsTenants[i])
	}
	h.now = h.next
}

// takeOver has the run of a tenant's guest take over the NICs and addresses that exist.
func (h *stepsHost) takeOver(tenant string) {
	h.guardOwn(stepsTAP[tenant])
	for _, name := range h.attached() {
		if stepsGuest(name) == tenant {
			_, r, _ := attachment.ParseAlias(h.links[name].Alias)
			h.connectPod(name, r)
		}
	}
	for a, name := range h.live {
		if stepsGuest(name) == tenant && !slices.Contains(h.attached(), name) {
			delete(h.live, a)
		}
	}
}

// fresh returns the packet filter that a daemon would have that starts now. It changes nothing.
func (h *stepsHost) fresh() (all map[portKey]isolation.Port) {
	p := New(h.dir, slog.New(slog.DiscardHandler))
	p.disk = disk{
		func(string, func(io.Writer) error) error { return nil }, func(string, int64) error { return nil },
		func(string, string) error { return nil }, func(string) error { return nil },
	}
	p.Open = func(ports []isolation.Port) (Filter, error) {
		all = byKey(ports)
		return crashFilter{h.crashHost}, nil
	}
	p.addresses, p.records = h.addresses, recordsOf(slices.Collect(maps.Values(h.links)))
	if _, err := p.Configure(h.now.Tenants); err != nil {
		h.Fatal(err)
	}
	return all
}

// settled checks what holds after an operation has ended: the filter is that of a daemon that starts now, unless such a daemon
// does not know a pod, and the clients know all pods that exist.
func (h *stepsHost) settled() {
	h.Helper()
	fresh := h.fresh()
	for k, port := range h.filter {
		want, ok := fresh[k]
		if closedPort := want.Egress != nil && len(foreign(want.Egress)) == 0; !ok || !closedPort && !reflect.DeepEqual(port, want) && !h.unkept() {
			h.Fatalf("%v has %s, with a daemon that starts now %s (%t); after %q", k, portText(port), portText(want), ok, h.done)
		}
	}
	for k, want := range fresh {
		if _, ok := h.filter[k]; !ok {
			h.Fatalf("%v has no filter, with a daemon that starts now %s; after %q", k, portText(want), h.done)
		}
	}
	for tenant, c := range h.clients {
		select {
		case <-c.session.Wake:
			c.session.TakeEnded(c.staged)
			if told := h.policies.TakeOwnership(c.session); told != nil {
				if told.GetRanges() != nil {
					c.ranges = told.GetRanges()
				}
				for _, p := range told.GetPods() {
					c.pods[p.GetUid()] = p
					if len(p.GetAddresses()) == 0 {
						delete(c.pods, p.GetUid())
					}
				}
			}
		default:
		}
		t, _ := h.now.Tenant(tenant)
		if got, want := fmt.Sprint(c.ranges.GetPods(), c.ranges.GetNodes()), fmt.Sprint(t.PodRanges, t.NodeRanges); got != want {
			h.Fatalf("the client of %s knows the ranges %s, want %s; after %q", tenant, got, want, h.done)
		}
		want := map[string]string{}
		for _, name := range h.attached() {
			_, r, _ := attachment.ParseAlias(h.links[name].Alias)
			if r.PodUID != attachment.NoPod && slices.Contains(t.AllBridges(), r.Bridge) {
				want[r.PodUID] = fmt.Sprint(r.Addrs())
			}
		}
		got := map[string]string{}
		for uid, p := range c.pods {
			got[uid] = fmt.Sprint(p.GetAddresses())
		}
		if !maps.Equal(got, want) {
			h.Fatalf("the client of %s knows the pods %v, want %v; after %q", tenant, got, want, h.done)
		}
	}
}

func (h *stepsHost) unkept() bool {
	return slices.ContainsFunc(h.now.Tenants, func(t quota.Tenant) bool {
		s := h.policies.Status(t.Name)
		return s != nil && s.Unkept != ""
	})
}

func newStepsHost(t *testing.T, seed uint64) *stepsHost {
	h := &stepsHost{crashHost: newCrashHost(t, 0, false), random: rand.New(rand.NewPCG(seed, 0)), clients: map[string]*stepsClient{}}
	for i, name := range append([]string{"br0", "br1", "br2"}, stepsFurther...) {
		h.links[name] = link.Link{Name: name, Index: 100 + i}
	}
	return h
}

// TestSteps found this: after a reload that gives a pod's bridge to another tenant, nothing filtered the pod's service address, and nobody told the first tenant's
// client that the pod was no longer there.
func TestBridgeOfAnotherTenant(t *testing.T) {
	for _, c := range []struct {
		port     string
		from, to int
	}{{"p1", 1, 2}, {"q1", 2, 1}} { // in the order of names, and against it
		h := newStepsHost(t, 0)
		file := h.draw()
		for len(file.Tenants) < 3 {
			file = h.draw()
		}
		configure := func(owner int) quota.Config {
			next := file
			next.Tenants = slices.Clone(file.Tenants)
			for i := range next.Tenants {
				next.Tenants[i].Bridges = nil
			}
			next.Tenants[1].NetworkPolicy, next.Tenants[2].NetworkPolicy = quota.PolicyRequired, quota.PolicyRequired
			next.Tenants[owner].Bridges = []string{"br5"}
			return next
		}
		h.file = configure(c.from)
		h.now = h.file
		h.begin()
		h.beginClient(stepsGuest(c.port))
		h.connectPod(c.port, attachment.Record{
			Bridge: "br5", PodUID: "uid", Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/16")}, Services: []netip.Addr{netip.MustParseAddr("10.0.1.1")}, Network: "pods",
		})
		h.settled()
		h.reload(configure(c.from), false)
		if told := h.policies.TakeOwnership(h.clients[stepsGuest(c.port)].session); len(told.GetPods()) > 0 {
			t.Errorf("after a reload that changes nothing, the client is told %v", told)
		}
		h.reload(configure(c.to), false)
		h.settled()
	}
}

// The test draws operations. As in TestCrashAtEachStep, after each step policies are in force, or their pods are closed. Clients come, go and supersede
// others. The daemon reads a changed hostd.yaml. Service addresses come and go with their pods. Disk and kernel refuse, and daemons crash, at steps that the test draws.
func TestSteps(t *testing.T) {
	seedtest.Each(t, 200, func(t *testing.T, seed uint64) int {
		h := newStepsHost(t, seed)
		h.file = h.draw()
		h.now = h.file
		operations := 0
		for next := h.begin; operations < 40; operations++ {
			h.steps, h.crashAt, h.refuseAt = 0, 0, 0
			if h.maybe(3) {
				h.crashAt, h.after = 1+h.random.IntN(8), h.maybe(2)
			}
			if h.crashes(next) {
				h.done = append(h.done, "[crash]")
				next = h.begin
				continue
			}
			h.settled()
			next = h.operation
		}
		return operations
	})
}
