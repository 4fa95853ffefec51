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
// After each step, every NIC on a bridge has a policy that its pod may have then, or none of its
// connections.
type crashHost struct {
	*testing.T
	dir      string
	filter   map[string]isolation.Port
	links    map[string]link.Link
	full     bool // the disk
	policies *Policies

	steps, crashAt int
	after          bool     // crash after the step
	done           []string // the steps

	spoken bool                             // a client has committed: until then, pods may do everything
	may    map[string][]isolation.Direction // what pods may have by their policies, by UID
}

const crashBridge = 1

func newCrashHost(t *testing.T, crashAt int, after bool) *crashHost {
	dir, err := os.MkdirTemp("/dev/shm", "crash") // where a sync takes no time
	if err != nil {
		dir = t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &crashHost{
		T: t, dir: dir, crashAt: crashAt, after: after, filter: map[string]isolation.Port{}, may: map[string][]isolation.Direction{},
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
		if l.Master == 0 {
			continue
		}
		port, filtered := h.filter[name]
		closed := filtered && port.Ingress != nil && len(port.Ingress.Allow) == 0 && port.Egress != nil && len(port.Egress.Allow) == 0
		_, r, _ := attachment.ParseAlias(l.Alias)
		named := filtered && port.Ingress != nil && slices.ContainsFunc(h.may[r.PodUID], func(d isolation.Direction) bool { return reflect.DeepEqual(d.Allow, port.Ingress.Allow) })
		if !closed && !named && h.spoken {
			h.Fatalf("crash at %d, after it %t: %s of pod %q has %+v (filtered %t), want closed or one of %v; after %q", h.crashAt, h.after, name, r.PodUID, port.Ingress, filtered, h.may[r.PodUID], h.done)
		}
	}
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
		for _, p := range ports {
			f.filter[p.Interface] = p
		}
		return nil
	})
}

func (f crashFilter) Remove(ports ...isolation.Port) error {
	if len(ports) == 0 {
		return nil
	}
	return f.step("remove", func() error {
		for _, p := range ports {
			delete(f.filter, p.Interface)
		}
		return nil
	})
}

// start starts a daemon, which takes over the NICs as it finds them.
func (h *crashHost) start(mode string) {
	h.Helper()
	p := New(h.dir, slog.New(slog.DiscardHandler))
	h.policies = p
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
			h.filter = map[string]isolation.Port{}
			for _, port := range ports {
				h.filter[port.Interface] = port
			}
			return nil
		})
	}
	p.records = recordsOf(slices.Collect(maps.Values(h.links)))
	if _, err := p.Configure([]quota.Tenant{{Name: "shop", Bridge: "br1", NetworkPolicy: mode}}); err != nil {
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

// connect gives a pod a NIC, in the order of package ports.
func (h *crashHost) connect(name, uid string) {
	h.Helper()
	h.links[name] = link.Link{Name: name, Index: 1 + len(h.links), Alias: attachment.WarmAlias}
	r := attachment.Record{Bridge: "br1", PodUID: uid, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.9/16")}, Network: "pods"}
	if err := h.policies.Connect(nil, name, r); err != nil {
		h.Fatal(err)
	}
	if h.spoken { // until the alias says whose it is, it may be what its pod's policy says
		h.may[""] = h.may[uid]
	}
	h.change(name, func(l *link.Link) { l.Master = crashBridge })
	h.change(name, func(l *link.Link) { l.Alias = attachment.Alias(attachment.Key{Owner: name, Name: "eth0"}, r) })
}

func (h *crashHost) disconnect(name string) {
	h.Helper()
	h.change(name, func(l *link.Link) { l.Master = 0 })
	h.change(name, func(l *link.Link) { l.Alias = attachment.WarmAlias })
	if err := h.policies.Disconnect(nil, name); err != nil {
		h.Fatal(err)
	}
}

// commit has a client send policies: of each pod, by its UID, how many addresses may connect to it.
func (h *crashHost) commit(peers map[string]int) {
	h.Helper()
	session, err := h.policies.Begin("shop")
	if err != nil {
		h.Fatal(err)
	}
	defer h.policies.End(session)
	staged, next := NewStaging(policylimit.MaxStreamMemory), map[string][]isolation.Direction{}
	for uid, n := range peers {
		p := &hostdpb.PodPolicy{Pod: "web/" + uid, Uid: uid, Ingress: &hostdpb.PolicyDirection{Allow: []*hostdpb.PolicyRule{{}}}, Egress: &hostdpb.PolicyDirection{}}
		for i := range n {
			p.Ingress.Allow[0].Peers = append(p.Ingress.Allow[0].Peers, fmt.Sprintf("10.1.0.%d/32", 2*i))
		}
		if err := staged.Add(&hostdpb.ApplyRequest{Pod: p}); err != nil {
			h.Fatal(err)
		}
		next[uid] = []isolation.Direction{*staged.pods["web/"+uid].Ingress}
	}
	for uid, all := range next {
		h.may[uid] = append(h.may[uid], all...)
	}
	if _, err := h.policies.Commit(session, staged); err != nil {
		h.Fatal(err)
	}
	h.spoken, h.may = true, next // what was said before must not come back
	for uid, all := range next {
		for name, l := range h.links {
			if _, r, _ := attachment.ParseAlias(l.Alias); r.PodUID == uid && l.Master != 0 && !reflect.DeepEqual(*h.filter[name].Ingress, all[0]) {
				h.Fatalf("%s has %+v after the commit, want %+v", name, h.filter[name].Ingress, all[0])
			}
		}
	}
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
