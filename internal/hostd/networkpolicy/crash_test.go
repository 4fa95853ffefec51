package networkpolicy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"testing"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/policylimit"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/netdev/isolation"
	"unnest.io/unnest/internal/netdev/link"
	"unnest.io/unnest/internal/netdev/nft"
)

var errCrash = errors.New("the daemon crashes here")

// crashHost is a host whose daemon crashes before or after a step that changes the kernel or the disk.
// After each step, every NIC on a bridge has a policy that its pod may have then, or no
// connections. The same holds for the pods' service addresses.
type crashHost struct {
	*testing.T
	dir      string
	filter   map[portKey]isolation.Port
	links    map[string]link.Link
	full     bool // the disk
	policies *Policies

	now, next quota.Config // now: in force; next: what a change puts into force, a start when the daemon has taken the guests over

	steps, crashAt int
	after          bool     // crash after the step
	refuseAt       int      // the kernel refuses this change of the packet filter, counted from now; -1: has refused; 0: refuses none
	done           []string // the steps

	records map[string]attachment.Record     // of the pods that have or had the NICs, by NIC
	spoken  map[string]bool                  // tenants whose client has committed; pods of the others may do everything
	may     map[string]map[string][]podRules // what policies allow pods, by tenant and UID
	of      map[string][]netip.Addr          // service addresses that the daemon has given, by port
	own     []string                         // guests' own NICs that the daemon guards
	guard   map[string]map[netip.Addr]string // service addresses that guests may send from, by their own NICs
	live    map[netip.Addr]string            // service addresses of pods that run, with the pods' ports
	made    int                              // ports
	ended   int                              // attachments
}

const crashBridge = 1

func newCrashHost(t *testing.T, crashAt int, after bool) *crashHost {
	dir, err := os.MkdirTemp("/dev/shm", "crash") // where a sync takes no time
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &crashHost{
		T: t, dir: dir, crashAt: crashAt, after: after, filter: map[portKey]isolation.Port{}, may: map[string]map[string][]podRules{}, spoken: map[string]bool{},
		records: map[string]attachment.Record{}, guard: map[string]map[netip.Addr]string{}, live: map[netip.Addr]string{},
		links: map[string]link.Link{"br1": {Name: "br1", Index: crashBridge}},
	}
}

// step is one change of the kernel or the disk.
func (h *crashHost) step(what string, f func() error) error {
	h.Helper()
	h.steps++
	h.done = append(h.done, what)
	if h.steps == h.crashAt && !h.after {
		panic(errCrash)
	}
	err := f()
	h.check()
	if h.steps == h.crashAt && h.after {
		panic(errCrash)
	}
	return err
}

func (h *crashHost) check() {
	h.Helper()
	for name, l := range h.links {
		if r := h.records[name]; l.Master != 0 && !h.permits(r, h.filter[portKey{iface: name}], false) {
			h.fail(portKey{iface: name}, r)
		}
	}
	for a, name := range h.live {
		for tap, all := range h.guard {
			k := portKey{tap, a}
			if _, may := all[a]; may && !h.permits(h.records[name], h.filter[k], true) {
				h.fail(k, h.records[name])
			}
		}
	}
}

func (h *crashHost) fail(k portKey, r attachment.Record) {
	h.Helper()
	port, filtered := h.filter[k]
	h.Fatalf("crash at %d, after it %t: %v of pod %q on %s has %s (filtered %t), want closed or one of %v; after %q",
		h.crashAt, h.after, k, r.PodUID, r.Bridge, portText(port), filtered, h.may, h.done)
}

func portText(p isolation.Port) string {
	return fmt.Sprintf("ingress %+v egress %+v", p.Ingress, p.Egress)
}

// foreign returns the rules of a direction without those by which a pod connects to itself.
func foreign(d *isolation.Direction) []isolation.Rule {
	return slices.DeleteFunc(slices.Clone(d.Allow), func(r isolation.Rule) bool { return r.Peers[0].First.As4()[1] == 0 })
}

func sameDirection(a, b *isolation.Direction) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.EqualFunc(foreign(a), foreign(b), func(x, y isolation.Rule) bool { return reflect.DeepEqual(x, y) })
}

// permits reports whether the filter of a pod's port or service address may be this one: a policy of the pod's, closed, or none if the pod
// may do everything. A NIC needs no filter on a bridge that no tenant has, or a tenant without policies.
func (h *crashHost) permits(r attachment.Record, port isolation.Port, service bool) bool {
	nothing := &isolation.Direction{}
	rules := []podRules{{Ingress: nothing, Egress: nothing}}
	for _, c := range []quota.Config{h.now, h.next} {
		i := slices.IndexFunc(c.Tenants, func(t quota.Tenant) bool { return slices.Contains(t.AllBridges(), r.Bridge) })
		if i < 0 || c.Tenants[i].NetworkPolicy == "" {
			return true
		}
		t := c.Tenants[i]
		if t.NetworkPolicy == quota.PolicyOptional && (!h.spoken[t.Name] || r.PodUID == attachment.NoPod) {
			rules = append(rules, podRules{})
		}
		rules = append(rules, h.may[t.Name][r.PodUID]...)
	}
	return slices.ContainsFunc(rules, func(p podRules) bool {
		if service {
			p.Ingress = nil
			if p.Egress != nil { // answers only
				p.Ingress = nothing
			}
		}
		return sameDirection(port.Ingress, p.Ingress) && sameDirection(port.Egress, p.Egress)
	})
}

// crashes reports whether f ends by a crash.
func (h *crashHost) crashes(f func()) (crashed bool) {
	h.Helper()
	defer func() {
		if v := recover(); v != nil {
			if v != any(errCrash) {
				panic(v)
			}
			crashed = true
		}
	}()
	f()
	return false
}

// crashFilter is the packet filter of a crashHost.
type crashFilter struct{ *crashHost }

func (f crashFilter) Prepare(func(), ...isolation.Port) (func() error, error) {
	return func() error { return nil }, nil
}
func (f crashFilter) Watch(context.Context, func(nft.Generation, error)) error { return nil }

func (f crashFilter) Set(ports ...isolation.Port) error {
	return f.step("set", func() error {
		if f.refuses() {
			return errTooLong
		}
		maps.Copy(f.filter, byKey(ports))
		return nil
	})
}

func (f crashFilter) Remove(ports ...isolation.Port) error {
	if len(ports) == 0 {
		return nil
	}
	return f.step("remove", func() error {
		if f.refuses() {
			return errTooLong
		}
		for k := range byKey(ports) {
			delete(f.filter, k)
		}
		return nil
	})
}

func (h *crashHost) refuses() bool {
	if h.refuseAt > 0 {
		if h.refuseAt--; h.refuseAt == 0 {
			h.refuseAt = -1
			return true
		}
	}
	return false
}

// addresses returns which service addresses the packet filter limits, by guests' own NICs.
func (h *crashHost) addresses() (map[string][]netip.Addr, error) {
	all := map[string][]netip.Addr{}
	for k := range h.filter {
		if k.address.IsValid() {
			all[k.iface] = append(all[k.iface], k.address)
		}
	}
	return all, nil
}

// start starts a daemon with one tenant and its one bridge.
func (h *crashHost) start(mode string) {
	h.Helper()
	h.startWith(quota.Config{Tenants: []quota.Tenant{{Name: "shop", Bridge: "br1", NetworkPolicy: mode}}})
	h.now = h.next
}

// startWith starts a daemon, which takes over the NICs as it finds them.
func (h *crashHost) startWith(c quota.Config) {
	h.Helper()
	h.next = c
	p := New(h.dir, slog.New(slog.DiscardHandler))
	h.policies, h.of, h.own = p, map[string][]netip.Addr{}, nil
	for name, l := range h.links {
		if _, r, ok := attachment.ParseAlias(l.Alias); ok {
			h.of[name] = r.Services
		}
	}
	real, noSpace := p.disk, errors.New("no space left on device")
	p.disk = disk{
		func(path string, content func(io.Writer) error) error {
			return h.step("write", func() error {
				if h.full {
					return noSpace
				}
				return real.write(path, content)
			})
		},
		func(path string, size int64) error {
			return h.step("truncate", func() error { return real.truncate(path, size) })
		},
		func(from, to string) error { return h.step("rename", func() error { return real.rename(from, to) }) },
		func(path string) error { return h.step("delete", func() error { return real.remove(path) }) },
	}
	p.Open = func(ports []isolation.Port) (Filter, error) {
		return crashFilter{h}, h.step("open", func() error {
			h.filter = byKey(ports)
			return nil
		})
	}
	p.addresses, p.records = h.addresses, recordsOf(slices.Collect(maps.Values(h.links)))
	if _, err := p.Configure(c.Tenants); err != nil {
		h.Fatal(err)
	}
	for name, l := range h.links {
		if _, _, ok := attachment.ParseAlias(l.Alias); !ok && l.Master != 0 {
			h.disconnect(name)
		}
	}
}

func (h *crashHost) change(name string, f func(*link.Link)) {
	h.Helper()
	_ = h.step("link", func() error {
		l := h.links[name]
		f(&l)
		h.links[name] = l
		return nil
	})
}

// connect gives a pod a NIC.
func (h *crashHost) connect(name, uid string) {
	h.Helper()
	h.connectPod(name, attachment.Record{Bridge: "br1", PodUID: uid, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.9/16")}, Network: "pods"})
}

// connectPod connects a pod's NIC by the steps of package ports, in their order.
func (h *crashHost) connectPod(name string, r attachment.Record) {
	h.Helper()
	if l, ok := h.links[name]; !ok || l.Alias == attachment.EndedAlias { // the VMM has closed that one
		h.made++
		h.links[name] = link.Link{Name: name, Index: 1000 + h.made, Alias: attachment.WarmAlias}
	}
	h.records[name] = r
	if err := h.policies.Connect(nil, name, r); err != nil {
		h.Fatal(err)
	}
	if h.setServices(name, r.Services); len(r.Services) > 0 {
		if err := h.policies.Settle(nil, name); err != nil {
			h.Fatal(err)
		}
	}
	h.change(name, func(l *link.Link) { l.Master = h.links[r.Bridge].Index })
	h.change(name, func(l *link.Link) { l.Alias = attachment.Alias(attachment.Key{Owner: name, Name: "eth0"}, r) })
	for _, a := range r.Services {
		h.live[a] = name
	}
}

// disconnect ends an attachment by the steps of package ports, in their order: in turn those of Disconnect, Cut and Delete.
func (h *crashHost) disconnect(name string) {
	h.Helper()
	leave := func() { h.change(name, func(l *link.Link) { l.Master = 0 }) }
	switch h.ended++; h.ended % 3 {
	case 0:
		leave()
		h.setServices(name, nil)
		h.change(name, func(l *link.Link) { l.Alias = attachment.WarmAlias })
	case 1:
		h.setServices(name, nil)
		leave()
		h.change(name, func(l *link.Link) { l.Alias = attachment.EndedAlias })
	case 2:
		h.setServices(name, nil)
		_ = h.step("delete link", func() error {
			delete(h.links, name)
			return nil
		})
	}
	if err := h.policies.Disconnect(nil, name); err != nil {
		h.Fatal(err)
	}
	maps.DeleteFunc(h.live, func(_ netip.Addr, of string) bool { return of == name })
}

// setServices gives the pod at a port service addresses, as package ports does.
func (h *crashHost) setServices(port string, addresses []netip.Addr) {
	h.Helper()
	was := h.of[port]
	h.of[port] = addresses
	ending := map[netip.Addr]string{}
	for _, a := range was {
		ending[a] = port
	}
	for _, tap := range h.own {
		if stepsTAP[stepsGuest(port)] == tap && !slices.Equal(was, addresses) {
			h.guardServices(tap, ending)
		}
	}
}

func (h *crashHost) guardServices(tap string, ending map[netip.Addr]string) {
	h.Helper()
	pods := map[netip.Addr]string{}
	for port, all := range h.of {
		for _, a := range all {
			if stepsTAP[stepsGuest(port)] == tap {
				pods[a] = port
			}
		}
	}
	both := map[netip.Addr]string{}
	maps.Copy(both, ending)
	maps.Copy(both, pods)
	guard := func() error {
		h.guard[tap] = pods
		return nil
	}
	if err := errors.Join(h.policies.Speak(tap, both), h.step("guard", guard)); err != nil {
		h.Fatal(err)
	}
	if len(both) > len(pods) {
		if err := h.policies.Speak(tap, pods); err != nil {
			h.Fatal(err)
		}
	}
}

// guardOwn guards a guest's own NIC.
func (h *crashHost) guardOwn(tap string) {
	h.Helper()
	h.own = append(slices.DeleteFunc(h.own, func(o string) bool { return o == tap }), tap)
	h.guardServices(tap, nil)
}

// commit has a client send policies: of each pod, by its UID, how many addresses may connect to it.
func (h *crashHost) commit(peers map[string]int) {
	h.Helper()
	session, err := h.policies.Begin("shop")
	if err != nil {
		h.Fatal(err)
	}
	defer h.policies.End(session)
	staged := NewStaging(policylimit.MaxStreamMemory)
	for uid, n := range peers {
		p := &hostdpb.PodPolicy{Pod: "web/" + uid, Uid: uid, Ingress: &hostdpb.PolicyDirection{Allow: []*hostdpb.PolicyRule{{}}}, Egress: &hostdpb.PolicyDirection{}}
		for i := range n {
			p.Ingress.Allow[0].Peers = append(p.Ingress.Allow[0].Peers, fmt.Sprintf("10.1.0.%d/32", 2*i))
		}
		if err := staged.Add(&hostdpb.ApplyRequest{Pod: p}); err != nil {
			h.Fatal(err)
		}
	}
	if err := h.commitOf(session, staged); err != nil {
		h.Fatal(err)
	}
}

// commitOf commits what a client has said of pods with UIDs. If the commit fails, what was in force before stays so.
func (h *crashHost) commitOf(session *Session, staged *Staging) error {
	h.Helper()
	before, both, next := h.may[session.Tenant], map[string][]podRules{}, map[string][]podRules{}
	for uid, all := range before {
		both[uid] = slices.Clone(all)
	}
	for _, pod := range staged.pods {
		next[pod.UID] = []podRules{pod}
		both[pod.UID] = append(both[pod.UID], pod)
	}
	h.may[session.Tenant] = both
	if _, err := h.policies.Commit(session, staged); err != nil {
		h.may[session.Tenant] = before
		h.check()
		return err
	}
	h.spoken[session.Tenant], h.may[session.Tenant] = true, next // earlier policies must not come back
	h.check()
	t, _ := h.now.Tenant(session.Tenant)
	for name, l := range h.links {
		_, r, _ := attachment.ParseAlias(l.Alias)
		if all := next[r.PodUID]; len(all) > 0 && l.Master != 0 && slices.Contains(t.AllBridges(), r.Bridge) && !sameDirection(h.filter[portKey{iface: name}].Ingress, all[0].Ingress) {
			h.Fatalf("%s has %s after the commit, want %+v", name, portText(h.filter[portKey{iface: name}]), all[0].Ingress)
		}
	}
	return nil
}

// life is what may happen to policies.
func (h *crashHost) life() {
	h.start(quota.PolicyOptional)
	h.connect("p1", "uid-a")
	h.commit(map[string]int{"uid-a": 1, "uid-b": 2})
	h.connect("p2", "uid-b")
	h.connect("p3", "uid-c") // not named yet
	h.commit(map[string]int{"uid-a": 3, "uid-b": 2, "uid-c": 1})
	h.disconnect("p2")
	h.connect("p2", "uid-d")
	h.start(quota.PolicyOptional)
	h.commit(map[string]int{"uid-a": 2, "uid-c": 1, "uid-d": 4})
	h.full = true
	h.commit(map[string]int{"uid-a": 5, "uid-d": 1})
	h.start(quota.PolicyOptional)
	h.commit(map[string]int{"uid-a": 6, "uid-d": 1})
	h.full = false
	h.commit(map[string]int{"uid-a": 7, "uid-c": 2, "uid-d": 1})
	h.start(quota.PolicyRequired)
	h.disconnect("p1")
}

// A policy is in force, or its pods are closed, at every moment: after each step that changes the
// packet filter, a file or a NIC, after a crash before and after it, after each step of the daemon that
// starts then, and after another crash there. The client then puts all policies into force again.
func TestCrashAtEachStep(t *testing.T) {
	whole := newCrashHost(t, 0, false)
	whole.life()
	if whole.steps < 40 {
		t.Fatalf("%d steps: want those of all that happens", whole.steps)
	}
	second := 0
	for at := 1; at <= whole.steps; at++ {
		for _, after := range []bool{false, true} {
			for again := 0; ; again++ { // 0: no second crash
				h := newCrashHost(t, at, after)
				if !h.crashes(h.life) {
					t.Fatalf("no crash at step %d of %q", at, h.done)
				}
				h.steps, h.crashAt = 0, again
				crashed := h.crashes(func() { h.start(quota.PolicyOptional) })
				h.crashAt, h.full = 0, false
				if crashed {
					second++
					h.start(quota.PolicyOptional)
				}
				h.commit(map[string]int{"uid-a": 1, "uid-b": 1, "uid-c": 1, "uid-d": 1})
				if again > 0 && !crashed {
					break // the start has fewer steps
				}
			}
		}
	}
	t.Logf("%d steps, %d crashes, %d of which had a second one", whole.steps, 2*whole.steps, second)
}
