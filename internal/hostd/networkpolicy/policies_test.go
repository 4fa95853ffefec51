package networkpolicy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/iprange"
	"unnest.io/unnest/internal/hostapi/policylimit"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/turns"
	"unnest.io/unnest/internal/netdev/isolation"
	"unnest.io/unnest/internal/netdev/nft"
)

// kernel is a packet filter that refuses what is larger than a transaction can be, or all.
type kernel struct {
	Filter
	mu    sync.Mutex
	ports map[string]isolation.Port
	down  bool
	wait  func(isolation.Port) // nil: it takes no time
	// refused is a port of which it takes no rules. "": it takes all.
	refused string
}

var errTooLong = errors.New("message too long")

func (k *kernel) open(ports []isolation.Port) (Filter, error) {
	earlier := k.ports
	k.ports = map[string]isolation.Port{}
	if err := k.Set(ports...); err != nil {
		k.ports = earlier
		return nil, err
	}
	return k, nil
}

func (k *kernel) Set(ports ...isolation.Port) error {
	bytes := 0
	for _, p := range ports {
		bytes += message(p, "", map[set]bool{})
	}
	named := slices.ContainsFunc(ports, func(p isolation.Port) bool { return p.Interface == k.refused })
	if k.down || named || bytes > policylimit.TransactionShare {
		return errTooLong
	}
	for _, p := range ports {
		if k.wait != nil {
			k.wait(p)
		}
		k.mu.Lock()
		k.ports[p.Interface] = p
		k.mu.Unlock()
	}
	return nil
}

func (k *kernel) Prepare(func(), ...isolation.Port) (func() error, error) {
	return func() error { return nil }, nil
}

func (k *kernel) Remove(ports ...isolation.Port) error {
	for _, p := range ports {
		delete(k.ports, p.Interface)
	}
	return nil
}

func (k *kernel) Watch(context.Context, func(nft.Generation, error)) error { return nil }

// bench has a daemon's policies of two tenants, with pods of which p1 to p3 are on the bridge br1,
// and q1 is on br2.
type bench struct {
	*testing.T
	dir      string
	kernel   *kernel
	policies *Policies
	write    error // of the disk
}

var benchPods = map[string]string{"p1": "10.0.0.1", "p2": "10.0.0.2", "p3": "10.0.0.3", "q1": "10.1.0.1"}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, dir: t.TempDir(), kernel: &kernel{}}
	b.start()
	return b
}

// start starts a daemon with what an earlier one has left, and connects the pods.
func (b *bench) start() {
	b.Helper()
	b.startWith(b.kernel.open)
}

func (b *bench) startWith(open func([]isolation.Port) (Filter, error)) {
	b.Helper()
	b.policies = New(b.dir, slog.New(slog.NewTextHandler(b.Output(), nil)))
	b.policies.Open = open
	write := b.policies.disk.write
	b.policies.disk.write = func(path string, content func(io.Writer) error) error {
		if b.write != nil {
			return b.write
		}
		return write(path, content)
	}
	b.policies.records = map[string]attachment.Record{}
	for iface := range benchPods { // as their aliases say
		b.policies.records[iface] = b.record(iface)
	}
	if _, err := b.policies.Configure([]quota.Tenant{
		{Name: "shop", Bridge: "br1", NetworkPolicy: quota.PolicyOptional}, {Name: "store", Bridge: "br2", NetworkPolicy: quota.PolicyOptional},
	}); err != nil {
		b.Fatalf("the daemon does not start: %v", err)
	}
}

func (b *bench) record(iface string) attachment.Record {
	bridge := map[byte]string{'p': "br1", 'q': "br2"}[iface[0]]
	return attachment.Record{Bridge: bridge, PodUID: attachment.NoPod, Addresses: []netip.Prefix{netip.MustParsePrefix(benchPods[iface] + "/16")}}
}

// commit sends pods as a client does.
func (b *bench) commit(tenant string, pods ...*hostdpb.PodPolicy) (Committed, error) {
	b.Helper()
	session, err := b.policies.Begin(tenant)
	if err != nil {
		b.Fatal(err)
	}
	defer b.policies.End(session)
	staged := NewStaging(policylimit.MaxStreamMemory)
	for _, p := range pods {
		if err := staged.Add(&hostdpb.ApplyRequest{Pod: p}); err != nil {
			return Committed{}, err
		}
	}
	return b.policies.Commit(session, staged)
}

// stage begins a session of the tenant shop, in which it says a pod.
func (b *bench) stage(p *hostdpb.PodPolicy) (*Session, *Staging) {
	b.Helper()
	session, err := b.policies.Begin("shop")
	if err != nil {
		b.Fatal(err)
	}
	staged := NewStaging(policylimit.MaxStreamMemory)
	if err := staged.Add(&hostdpb.ApplyRequest{Pod: p}); err != nil {
		b.Fatal(err)
	}
	return session, staged
}

func (b *bench) mustCommit(tenant string, pods ...*hostdpb.PodPolicy) Committed {
	b.Helper()
	c, err := b.commit(tenant, pods...)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// ingress returns the ranges that may connect to a port; -1: all.
func (b *bench) ingress(iface string) (n int) {
	d := b.kernel.ports[iface].Ingress
	if d == nil {
		return -1
	}
	for _, r := range d.Allow {
		n += len(r.Peers)
	}
	return n
}

func (b *bench) want(what string, want map[string]int) {
	b.Helper()
	for iface, n := range want {
		if got := b.ingress(iface); got != n {
			b.Errorf("%s: %s has %d ranges of peers, want %d", what, iface, got, n)
		}
	}
}

// podWith returns a policy of the pod at a port, with rules of one service and a number of
// ranges each.
func podWith(name, iface string, rules, ranges int) *hostdpb.PodPolicy {
	p := &hostdpb.PodPolicy{Pod: name, Addresses: []string{benchPods[iface]}, Ingress: &hostdpb.PolicyDirection{}}
	for i := range rules {
		r := &hostdpb.PolicyRule{Services: []*hostdpb.PolicyService{{Protocol: hostdpb.Protocol_PROTOCOL_TCP, First: uint32(i), Last: uint32(i)}}}
		for j := range ranges {
			r.Peers = append(r.Peers, fmt.Sprintf("fd00::%x:%x/128", i, 2*j))
		}
		p.Ingress.Allow = append(p.Ingress.Allow, r)
	}
	return p
}

// A namespace that takes more than there is room for is closed; the others, also those of the
// same tenant, have their policies, whatever the order.
func TestAttackBudgetOfPeers(t *testing.T) {
	b := newBench(t)
	c := b.mustCommit("shop", podWith("big/a", "p1", 12, 8000), podWith("small/a", "p2", 0, 0), podWith("small/b", "p3", 1, 2))
	b.mustCommit("store", podWith("other/a", "q1", 2, 3))
	want := map[string]int{"p1": 0, "p2": 0, "p3": 2, "q1": 6}
	b.want("committed", want)
	if !slices.Equal(c.Refused, []string{"big"}) {
		t.Errorf("refused %q, want big", c.Refused)
	}
	b.start()
	b.want("started again", want)
	c = b.mustCommit("shop", podWith("big/a", "p1", 1, 900), podWith("small/a", "p2", 0, 0), podWith("small/b", "p3", 1, 2))
	b.want("smaller", map[string]int{"p1": 900, "p2": 0, "p3": 2})
	if len(c.Refused) > 0 {
		t.Errorf("refused %q, want none", c.Refused)
	}
}

// What the kernel refuses is not on disk, and what is there and the kernel refuses, or cannot be
// read, does not keep the daemon from its start: the tenant's pods are closed until its client is back.
func TestAttackPersistedPolicies(t *testing.T) {
	b := newBench(t)
	b.mustCommit("shop", podWith("web/a", "p1", 1, 5))
	b.mustCommit("store", podWith("web/a", "q1", 1, 7))
	b.kernel.down = true
	if _, err := b.commit("shop", podWith("web/a", "p1", 1, 6)); !errors.Is(err, errTooLong) {
		t.Errorf("refused by the kernel: error %v", err)
	}
	b.kernel.down = false
	b.start()
	b.want("the refused commit", map[string]int{"p1": 5, "p2": -1, "q1": 7})

	closed := map[string]int{"p1": 0, "p2": 0, "p3": 0, "q1": 7}
	b.refuseAtStart()
	b.want("a record that the kernel refuses", closed)
	b.start()
	b.want("still without its client", closed)
	b.mustCommit("shop", podWith("web/a", "p1", 1, 5))
	b.want("its client is back", map[string]int{"p1": 5, "p2": -1})
	b.start()
	b.want("kept again", map[string]int{"p1": 5, "p2": -1})
}

// refuseAtStart starts a daemon whose kernel refuses what the tenant shop has.
func (b *bench) refuseAtStart() {
	b.Helper()
	b.startWith((&refusingShop{b.kernel}).open)
}

type refusingShop struct{ *kernel }

func (k *refusingShop) open(ports []isolation.Port) (Filter, error) {
	if err := k.refuse(ports); err != nil {
		return nil, err
	}
	_, err := k.kernel.open(ports)
	return k, err
}

func (k *refusingShop) refuse(ports []isolation.Port) error {
	if slices.ContainsFunc(ports, func(p isolation.Port) bool {
		return p.Interface == "p1" && p.Ingress != nil && len(p.Ingress.Allow) > 0
	}) {
		return errTooLong
	}
	return nil
}

func (k *refusingShop) Set(ports ...isolation.Port) error {
	if err := k.refuse(ports); err != nil {
		return err
	}
	return k.kernel.Set(ports...)
}

// On a full disk policies are in force. The next daemon does not take those of before for them:
// it closes the pods until the client is back.
func TestAttackFullDisk(t *testing.T) {
	b := newBench(t)
	b.mustCommit("shop", podWith("web/a", "p1", 1, 5))
	b.write = errors.New("no space left on device")
	b.mustCommit("shop", podWith("web/a", "p1", 0, 0))
	b.want("full disk", map[string]int{"p1": 0, "p2": -1})
	b.start()
	b.want("started on a full disk", map[string]int{"p1": 0, "p2": 0})
	b.mustCommit("store", podWith("web/a", "q1", 1, 7)) // has a record from its first start
	b.start()
	b.want("started again", map[string]int{"p1": 0, "p2": 0, "q1": 0})
	b.write = nil
	b.mustCommit("shop", podWith("web/a", "p1", 0, 0))
	b.start()
	b.want("with space", map[string]int{"p1": 0, "p2": -1})
	if left, err := filepath.Glob(filepath.Join(b.dir, "policies", "shop.json.*")); err != nil || len(left) > 0 {
		t.Errorf("left of the quarantine: %q, error %v", left, err)
	}
}

// A tenant's change costs nothing that grows with the policies of another.
func TestAttackOtherTenantsWork(t *testing.T) {
	b := newBench(t)
	b.mustCommit("shop", podWith("web/a", "p1", 3, 900))
	b.kernel.ports = map[string]isolation.Port{}
	if err := b.policies.Connect(nil, "q2", attachment.Record{Bridge: "br2"}); err != nil {
		t.Fatal(err)
	}
	if _, changed := b.kernel.ports["q2"]; len(b.kernel.ports) != 1 || !changed {
		t.Errorf("an ADD of store changes %v, want q2", b.kernel.ports)
	}
}

// While the kernel is busy with a tenant's change, other tenants change.
func TestAttackSlowChange(t *testing.T) {
	b := newBench(t)
	busy, proceed := make(chan bool), make(chan bool)
	b.kernel.wait = func(p isolation.Port) {
		if p.Interface == "p1" {
			busy <- true
			<-proceed
		}
	}
	done := make(chan error, 1)
	go func() {
		_, err := b.commit("shop", podWith("web/a", "p1", 1, 5))
		done <- err
	}()
	<-busy
	if err := b.policies.Connect(nil, "q2", attachment.Record{Bridge: "br2"}); err != nil {
		t.Error(err)
	}
	b.mustCommit("store", podWith("other/a", "q1", 2, 3))
	close(proceed)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// parts is a packet filter that prepares peers in parts of 500 ranges, between which another tenant is waiting.
type parts struct {
	*bench
	Filter
	prepared map[*iprange.Range]bool
	passed   int // changes of the other tenant
	largest  int // the most ranges in a change that nobody has prepared
}

// other has another tenant wait for its turn to connect a port.
func (p *parts) other() {
	go func() {
		turn := p.policies.Turns.Take("store", "")
		defer turn.Done()
		if err := p.policies.Connect(turn, "q1", p.record("q1")); err != nil {
			p.Error(err)
		}
		p.passed++
	}()
	synctest.Wait()
	time.Sleep(time.Millisecond)
}

func (p *parts) Prepare(between func(), ports ...isolation.Port) (func() error, error) {
	for _, port := range ports {
		for _, r := range (podRules{Ingress: port.Ingress}).rules() {
			for n := len(r.Peers); n > 0 && !p.prepared[&r.Peers[0]]; n -= 500 {
				p.other()
				between()
			}
			p.prepared[&r.Peers[0]] = true
		}
	}
	return func() error { return nil }, nil
}

func (p *parts) Set(ports ...isolation.Port) error {
	unprepared := 0
	for _, port := range ports {
		for _, r := range (podRules{Ingress: port.Ingress}).rules() {
			if !p.prepared[&r.Peers[0]] {
				unprepared += len(r.Peers)
			}
		}
	}
	p.largest = max(p.largest, unprepared)
	return p.Filter.Set(ports...)
}

// An ADD of a pod whose policy is there already has its peers come in parts, between which other tenants have turns.
func TestAttackLargePeersAtADD(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.policies.Turns = &turns.Turns{}
		if err := b.policies.Disconnect(nil, "p1"); err != nil {
			t.Fatal(err)
		}
		b.mustCommit("shop", podWith("web/a", "p1", 1, 8000))
		p := &parts{bench: b, Filter: b.kernel, prepared: map[*iprange.Range]bool{}}
		b.policies.table = p
		turn := b.policies.Turns.Take("shop", "")
		if err := b.policies.Connect(turn, "p1", b.record("p1")); err != nil {
			t.Fatal(err)
		}
		if p.largest > 500 || p.passed < 10 {
			t.Errorf("%d ranges come at once, and %d changes of another tenant pass", p.largest, p.passed)
		}
		turn.Done()
		b.want("connected", map[string]int{"p1": 8000})
	})
}

// Other tenants have turns between the changes of a commit.
func TestAttackCommitOfManyRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.policies.Turns = &turns.Turns{}
		p := &parts{bench: b, Filter: b.kernel}
		changes := 0
		b.kernel.wait = func(port isolation.Port) {
			if port.Interface[0] != 'p' {
				return
			}
			if changes++; changes == 3 && p.passed == 0 {
				t.Error("another tenant waits for the whole commit")
			}
			if changes == 1 {
				p.other()
			}
		}
		b.mustCommit("shop", podWith("a/a", "p1", 900, 1), podWith("a/b", "p2", 900, 1), podWith("a/c", "p3", 900, 1))
		b.want("committed", map[string]int{"p1": 900, "p2": 900, "p3": 900})
	})
}

// While a commit is under way, the service addresses of a pod take effect without the rest of the commit: all tenants wait for them. A
// call makes up for one that has failed.
func TestAttackServicesDuringCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.policies.Turns = &turns.Turns{}
		pods := map[netip.Addr]string{netip.MustParseAddr("10.0.9.9"): "p2"}
		changes, speaking := 0, false
		b.kernel.wait = func(port isolation.Port) {
			if speaking && port.Interface != "own" {
				t.Errorf("%s is filtered, too", port.Interface)
			}
			if changes++; changes == 1 {
				go func() {
					defer b.policies.Turns.Take("shop", "").Done()
					speaking = true
					b.kernel.refused = "own"
					if err := b.policies.Speak("own", pods); !errors.Is(err, errTooLong) {
						t.Errorf("got %v, want %v", err, errTooLong)
					}
					b.kernel.refused = ""
					if err := b.policies.Speak("own", pods); err != nil {
						t.Error(err)
					}
					if _, filtered := b.kernel.ports["own"]; !filtered || b.ingress("p3") != -1 {
						t.Errorf("the address is filtered: %t, another pod has %d ranges, want the address before the rest", filtered, b.ingress("p3"))
					}
					speaking = false
				}()
				synctest.Wait()
			}
		}
		b.mustCommit("shop", podWith("a/a", "p1", 900, 1), podWith("a/b", "p2", 900, 1), podWith("a/c", "p3", 900, 1))
		b.want("committed", map[string]int{"p3": 900})
	})
}

// A pod with more rules than fit into one change is closed; smaller ones of the tenant are not.
func TestAttackManyRules(t *testing.T) {
	b := newBench(t)
	large := podWith("big/a", "p1", policylimit.PodMessage/policylimit.RuleMessage+1, 1)
	c := b.mustCommit("shop", large, podWith("small/a", "p2", 800, 1), podWith("small/b", "p3", 800, 1))
	if !slices.Equal(c.Refused, []string{"big"}) {
		t.Errorf("refused %q, want big", c.Refused)
	}
	b.want("committed", map[string]int{"p1": 0, "p2": 800, "p3": 800})
}

// A tenant has as many sets of peers, which the kernel looks through at each change of others, as its share says. Few peers are
// no set.
func TestAttackManySets(t *testing.T) {
	b := newBench(t)
	pods := func(ranges int) []*hostdpb.PodPolicy {
		var all []*hostdpb.PodPolicy
		for i, iface := range []string{"p1", "p2", "p3"} {
			p := podWith(fmt.Sprintf("%s/%s", iface, iface), iface, 300, ranges)
			for _, r := range p.GetIngress().GetAllow() {
				r.Peers = append(r.Peers, fmt.Sprintf("fd01::%d/128", i))[1:]
			}
			all = append(all, p)
		}
		return all
	}
	c := b.mustCommit("shop", pods(9)...)
	sets := map[*iprange.Range]bool{}
	for _, p := range b.kernel.ports {
		for _, r := range (podRules{Ingress: p.Ingress}).rules() {
			sets[&r.Peers[0]] = true
		}
	}
	if most := policylimit.Share(2) / policylimit.SetMessage; len(sets) == 0 || len(sets) > most {
		t.Errorf("%d sets, refused %q, want up to %d", len(sets), c.Refused, most)
	}
	if c := b.mustCommit("shop", pods(3)...); len(c.Refused) > 0 {
		t.Errorf("without sets %q are refused", c.Refused)
	}
}

// Records of an earlier version have prefixes, next to each other too.
func TestReadsPrefixes(t *testing.T) {
	b := newBench(t)
	if err := os.WriteFile(path(b.dir, "shop"), []byte(`{"web/a":{"addresses":["10.0.0.1"],"ingress":{"Allow":[{"Peers":["10.2.0.0/24","10.2.1.0/24"],"Services":null}]}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	b.start()
	want := []iprange.Range{iprange.Of(netip.MustParsePrefix("10.2.0.0/23"))}
	if d := b.kernel.ports["p1"].Ingress; d == nil || len(d.Allow) != 1 || !slices.Equal(d.Allow[0].Peers, want) {
		t.Errorf("ingress is %+v, want %v", d, want)
	}
}

// The record of pods that share peers has these once, whatever the pods are, and one record is written at a time. The
// next daemon has them share their peers, too.
func TestAttackRecordOfSharedPeers(t *testing.T) {
	b := newBench(t)
	write := b.policies.disk.write
	b.policies.disk.write = func(path string, content func(io.Writer) error) error {
		if b.policies.writing.TryLock() {
			t.Error("another record can be written at the same time")
		}
		return write(path, content)
	}
	var pods []*hostdpb.PodPolicy
	for i, iface := range []string{"p1", "p2", "p3"} {
		p := podWith(fmt.Sprintf("web/%d", i), iface, 100, 1)
		for _, r := range p.GetIngress().GetAllow() {
			r.Peers = nil
			for j := range 1000 {
				r.Peers = append(r.Peers, fmt.Sprintf("fd00::%x/128", 2*j))
			}
		}
		pods = append(pods, p)
	}
	b.mustCommit("shop", pods...)
	want := map[string]int{"p1": 100000, "p2": 100000, "p3": 100000}
	b.want("committed", want)
	info, err := os.Stat(path(b.dir, "shop"))
	if err != nil || info.Size() > 100<<10 { // 30 KB of peers, and 50 bytes for each of 300 rules
		t.Errorf("the record has %d bytes, error %v", info.Size(), err)
	}
	b.start()
	b.want("started again", want)
	first := func(iface string) *iprange.Range { return &b.kernel.ports[iface].Ingress.Allow[7].Peers[0] }
	if first("p1") != first("p3") {
		t.Error("started again: the pods do not share peers")
	}
}

// After a configuration that the kernel refuses in part, the earlier one is in force.
func TestConfigureFails(t *testing.T) {
	b := newBench(t)
	b.want("optional", map[string]int{"p1": -1, "q1": -1})
	b.kernel.refused = "q1"
	if _, err := b.policies.Configure([]quota.Tenant{
		{Name: "shop", Bridge: "br1", NetworkPolicy: quota.PolicyRequired}, {Name: "store", Bridge: "br2", NetworkPolicy: quota.PolicyRequired},
	}); err == nil {
		t.Fatal("the kernel refuses it, and there is no error")
	}
	b.want("refused", map[string]int{"p1": -1, "q1": -1})
}

// preparing is a packet filter that a configuration changes while it prepares a commit.
type preparing struct {
	*kernel
	meanwhile func()
}

func (p preparing) Prepare(func(), ...isolation.Port) (func() error, error) {
	p.meanwhile()
	return func() error { return nil }, nil
}

// A commit of a tenant that a configuration removes meanwhile changes nothing, and the tenant's ports are filtered no
// more.
func TestCommitOfRemovedTenant(t *testing.T) {
	b := newBench(t)
	b.policies.table = preparing{b.kernel, func() {
		if _, err := b.policies.Configure([]quota.Tenant{{Name: "store", Bridge: "br2", NetworkPolicy: quota.PolicyOptional}}); err != nil {
			t.Error(err)
		}
	}}
	if _, err := b.commit("shop", podWith("web/a", "p1", 1, 1)); !errors.Is(err, errSuperseded) {
		t.Errorf("got %v, want %v", err, errSuperseded)
	}
	b.want("without shop", map[string]int{"q1": -1})
	if len(b.kernel.ports) != 1 {
		t.Errorf("filtered are %v, want q1", b.kernel.ports)
	}
	if _, err := b.policies.Configure(nil); err != nil || len(b.kernel.ports) > 0 {
		t.Errorf("without tenants filtered are %v, error %v, want none", b.kernel.ports, err)
	}
}

// Policies are enforced while a client is connected that has committed.
func TestState(t *testing.T) {
	b := newBench(t)
	want := func(tenant string, want hostdpb.PolicyState) {
		t.Helper()
		if got := b.policies.State(tenant); got != want {
			t.Errorf("tenant %s: got %s, want %s", tenant, got, want)
		}
	}
	want("other", hostdpb.PolicyState_POLICY_STATE_NONE)
	want("shop", hostdpb.PolicyState_POLICY_STATE_NO_CLIENT)
	session, err := b.policies.Begin("shop")
	if err != nil {
		t.Fatal(err)
	}
	want("shop", hostdpb.PolicyState_POLICY_STATE_NO_CLIENT)
	if _, err := b.policies.Commit(session, NewStaging(policylimit.MaxStreamMemory)); err != nil {
		t.Fatal(err)
	}
	want("shop", hostdpb.PolicyState_POLICY_STATE_ENFORCED)
	b.policies.End(session)
	want("shop", hostdpb.PolicyState_POLICY_STATE_NO_CLIENT)
	if got := (*Policies)(nil).State("shop"); got != hostdpb.PolicyState_POLICY_STATE_NONE {
		t.Errorf("without policies: got %s", got)
	}
}

// While the record of a tenant is written, other tenants have turns, and so have the tenant's own pods, whose changes of the
// packet filter do not wait for the disk.
func TestRecordTakesNoTurn(t *testing.T) {
	b := newBench(t)
	b.policies.Turns = &turns.Turns{}
	write := b.policies.disk.write
	writes := 0
	b.policies.disk.write = func(path string, content func(io.Writer) error) error {
		writes++
		passed := make(chan error, 1)
		go func() {
			b.policies.Turns.Take("store", "").Done()
			turn := b.policies.Turns.Take("shop", "")
			defer turn.Done()
			passed <- b.policies.Connect(turn, "p1", b.record("p1"))
		}()
		select {
		case err := <-passed:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Error("a pod of the tenant waits for the record")
		}
		return write(path, content)
	}
	b.mustCommit("shop", podWith("a", "p1", 1, 1))
	if writes != 1 {
		t.Errorf("%d records are written, want 1", writes)
	}
	b.policies.disk.write = func(string, func(io.Writer) error) error { return errTooLong }
	b.policies.disk.truncate = func(string, int64) error { return errTooLong }
	if _, err := b.commit("shop", podWith("a", "p1", 2, 1)); !errors.Is(err, errTooLong) {
		t.Errorf("without a record: got %v, want %v", err, errTooLong)
	}
	b.want("the policies before are in force again", map[string]int{"p1": 1})
	b.policies.Turns.Take("store", "").Done() // a commit that fails leaves no turn
}

// A pod without UID that ends while a commit that names it is under way is forgotten, also if the commit fails.
func TestPodEndsDuringCommit(t *testing.T) {
	b := newBench(t)
	session, staged := b.stage(podWith("a", "p1", 1, 1))
	end := func() {
		if err := b.policies.Disconnect(nil, "p1"); err != nil {
			t.Error(err)
		}
	}
	for _, failed := range []error{nil, errTooLong} {
		if _, err := b.policies.Commit(session, staged); err != nil {
			t.Fatal(err)
		}
		if b.ingress("p1") != 1 {
			t.Fatal("the pod has no policy")
		}
		if failed == nil {
			end()
		} else {
			b.policies.disk.write = func(string, func(io.Writer) error) error {
				end()
				return failed
			}
			b.policies.disk.truncate = func(string, int64) error { return failed }
		}
		if _, err := b.policies.Commit(session, staged); !errors.Is(err, failed) {
			t.Errorf("got %v, want %v", err, failed)
		}
		if err := b.policies.Connect(nil, "p1", b.record("p1")); err != nil {
			t.Fatal(err)
		}
		b.want("the next pod with the address", map[string]int{"p1": -1})
		session.TakeEnded(NewStaging(policylimit.MaxStreamMemory))
	}
}

// So is one that no commit before has named. A pod that is named after the end of a port has another one.
func TestNewPodEndsDuringCommit(t *testing.T) {
	b := newBench(t)
	session, staged := b.stage(podWith("a", "p1", 1, 1))
	b.policies.table = preparing{b.kernel, func() {
		if err := b.policies.Disconnect(nil, "p1"); err != nil {
			t.Error(err)
		}
	}}
	for _, want := range []int{-1, 1} {
		if _, err := b.policies.Commit(session, staged); err != nil {
			t.Fatal(err)
		}
		b.policies.table = b.kernel
		if err := b.policies.Connect(nil, "p1", b.record("p1")); err != nil {
			t.Fatal(err)
		}
		b.want("the next pod with the address", map[string]int{"p1": want})
		if ended := session.TakeEnded(staged); want < 0 && !slices.Equal(ended, []string{"a"}) {
			t.Errorf("the client is told that %q have ended, want a", ended)
		}
		if err := staged.Add(&hostdpb.ApplyRequest{Pod: podWith("a", "p1", 1, 1)}); err != nil {
			t.Fatal(err)
		}
	}
}

// A client that does not read, while the NICs of its pods end and others begin, loses its session: the daemon keeps no more for it. No pod
// gets the policy of one that has ended meanwhile, by a commit that it has sent before or by the undo of one. A new session is in step.
func TestClientDoesNotRead(t *testing.T) {
	disconnect := func(b *bench, iface string) {
		if err := b.policies.Disconnect(nil, iface); err != nil {
			b.Error(err)
		}
	}
	connect := func(b *bench, iface, uid string) {
		r := b.record(iface)
		r.PodUID = uid
		if err := b.policies.Connect(nil, iface, r); err != nil {
			b.Error(err)
		}
	}
	behind := map[string]func(b *bench, s *Session){
		"ends": func(b *bench, s *Session) {
			s.ended = append(s.ended, make([]endedPort, maxUntold-len(s.ended))...)
			disconnect(b, "p2")
			connect(b, "p2", attachment.NoPod)
		},
		"NICs": func(b *bench, s *Session) {
			for i := range maxUntold {
				s.owners[fmt.Sprint("uid-", i)] = true
			}
			connect(b, "p2", "uid-new")
		},
		"a newer session": func(b *bench, s *Session) {
			if _, err := b.policies.Begin("shop"); err != nil {
				b.Error(err)
			}
		},
	}
	for what, fallBehind := range behind {
		for _, during := range []bool{false, true} { // the commit
			b := newBench(t)
			session, staged := b.stage(podWith("a", "p1", 1, 1))
			if _, err := b.policies.Commit(session, staged); err != nil {
				t.Fatal(err)
			}
			lose := func() {
				fallBehind(b, session)
				disconnect(b, "p1")
			}
			if during {
				b.policies.disk.write = func(string, func(io.Writer) error) error { lose(); return errTooLong }
				b.policies.disk.truncate = func(string, int64) error { return errTooLong }
			} else {
				lose()
			}
			if _, err := b.policies.Commit(session, staged); err == nil || !during && !errors.Is(err, session.Err) {
				t.Errorf("%s, during the commit %t: the commit ends with %v", what, during, err)
			}
			select {
			case <-session.Over:
			default:
				t.Errorf("%s, during the commit %t: the session goes on", what, during)
			}
			disconnect(b, "p3")
			connect(b, "p1", attachment.NoPod)
			if n := b.ingress("p1"); n == 1 || during && n != 0 {
				t.Errorf("%s, during the commit %t: the next pod with the address has %d ranges of peers", what, during, n)
			}
			if what != "a newer session" {
				if len(session.ended) > 0 || len(session.owners) > 0 || b.policies.State("shop") != hostdpb.PolicyState_POLICY_STATE_NO_CLIENT {
					t.Errorf("%s: the session keeps %d ends and %d pods, state %v", what, len(session.ended), len(session.owners), b.policies.State("shop"))
				}
			}
			b.policies.disk = New(b.dir, nil).disk
			b.mustCommit("shop", podWith("next", "p1", 2, 1))
			b.want(what+": the next session", map[string]int{"p1": 2})
		}
	}
}

// A client may commit at once until its commits have had half a second of turns, and then has a five-hundredth of the time. It
// rests for ten seconds at most. Other tenants do not rest, and nobody does who is alone.
func TestCommitsRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newBench(t).policies
		rests := func(took, want time.Duration) {
			t.Helper()
			p.Rest("shop", took)
			if got := max(0, p.Rest("shop", 0)); got != want {
				t.Errorf("after %v: rests %v, want %v", took, got, want)
			}
			if rest := p.Rest("store", 0); rest > 0 {
				t.Errorf("another tenant rests %v", rest)
			}
		}
		for range 25 {
			rests(20*time.Millisecond, 0)
		}
		for range 10 {
			rests(20*time.Millisecond, 10*time.Second)
			time.Sleep(10 * time.Second)
		}
		rests(time.Minute, 10*time.Second)
		rests(time.Minute, 10*time.Second)
		time.Sleep(260 * time.Second)
		rests(500*time.Millisecond, 0)
		rests(2*time.Millisecond, time.Second)
		if _, err := p.Configure([]quota.Tenant{{Name: "shop", Bridge: "br1", NetworkPolicy: quota.PolicyOptional}}); err != nil {
			t.Fatal(err)
		}
		rests(time.Minute, 0)
	})
}
