package costing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/plan/catalogue"
	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/fleet"
	"unnest.io/unnest/internal/plan/pack"
	"unnest.io/unnest/internal/plan/summary"
	"unnest.io/unnest/internal/plan/synthetic"
	"unnest.io/unnest/internal/plan/trace"
)

func TestAll(t *testing.T) {
	items := slices.Values(slices.Collect(func(yield func(int) bool) {
		for i := range 100 {
			if !yield(i) {
				return
			}
		}
	}))
	counted := 0
	all, err := All(t.Context(), items, func(i int) (int, error) { return i * i, nil }, func(n int) { counted = n })
	if err != nil || len(all) != 100 || all[9] != 81 || counted != 100 {
		t.Errorf("%d results, %v, counted %d", len(all), err, counted)
	}
	// The first item that fails is named, whichever fails first, and no more items are taken.
	var taken atomic.Int64
	_, err = All(t.Context(), items, func(i int) (int, error) {
		taken.Add(1)
		if i == 3 {
			time.Sleep(10 * time.Millisecond)
		}
		if i >= 3 {
			return 0, fmt.Errorf("item %d", i)
		}
		return 0, nil
	}, nil)
	if err == nil || err.Error() != "item 3" || taken.Load() == 100 {
		t.Errorf("error %v after %d items, want item 3", err, taken.Load())
	}
	// The end of the context abandons work that runs.
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped, hold := errors.New("stopped"), make(chan struct{})
	defer close(hold)
	if _, err = All(ctx, items, func(int) (int, error) { cancel(stopped); <-hold; return 0, nil }, nil); !errors.Is(err, stopped) {
		t.Errorf("error %v, want %v", err, stopped)
	}
}

func node(name, model string, vcpu, gib int64) cluster.Node {
	return cluster.Node{Name: name, Model: model, Provider: "aws:///x", Capacity: cluster.Resources{CPU: vcpu * cluster.VCPU, Memory: gib << 30}}
}

// What is on sale for nodes follows from their models, the catalogues and the models that are named.
func TestOnSale(t *testing.T) {
	own := catalogue.Table{Name: "own.csv", CSV: []byte("model,vcpu,memory,price,pods\nbig,2,8 GiB,0.1,\n")}
	for _, tt := range []struct {
		name  string
		nodes []cluster.Node
		offer catalogue.Offer
		want  string // catalogues, number of models, model of the first node
		err   string
	}{
		{"families of the nodes", []cluster.Node{node("a", "m6i.large", 2, 8), node("b", "r6i.large", 2, 16)}, catalogue.Offer{}, "[m6i r6i] 18 m6i.large []", ""},
		{"and of models", []cluster.Node{node("a", "m6i.large", 2, 8)}, catalogue.Offer{Models: []string{"c6i.large"}}, "[c6i m6i] 18 m6i.large []", ""},
		{"a catalogue", []cluster.Node{node("a", "", 2, 8)}, catalogue.Offer{Catalogues: []catalogue.Table{own}}, "[own.csv] 1 big [1 nodes without the label", ""},
		{"sizes", []cluster.Node{node("a", "", 2, 8), node("b", "", 4, 8)}, catalogue.Offer{Prices: catalogue.Prices{VCPU: 20_000_000, GiB: 2_500_000}}, "[the sizes of the nodes] 2 2vcpu-8.00gib []", ""},
		{"no model and no price", []cluster.Node{node("a", "", 2, 8)}, catalogue.Offer{}, "", "node a has no label"},
		{"unknown models", []cluster.Node{node("a", "z9.large", 2, 8)}, catalogue.Offer{}, "", "no built-in catalogue has prices of z9.large"},
		{"a model that is not sold", []cluster.Node{node("a", "m6i.large", 2, 8)}, catalogue.Offer{Models: []string{"m6i.tiny"}}, "", `model "m6i.tiny" is not in the catalogue`},
	} {
		m, err := onSale(tt.nodes, tt.offer)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: error %v, want %q", tt.name, err, tt.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if got := fmt.Sprintf("%v %d %s %v", m.catalogues, len(m.models), m.nodes[0].Model, m.remarks); !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

var twoModels = cluster.Catalogue{
	{Name: "small", Size: cluster.Resources{CPU: 2 * cluster.VCPU, Memory: 8 << 30}, Price: 100},
	{Name: "large", Size: cluster.Resources{CPU: 4 * cluster.VCPU, Memory: 16 << 30}, Price: 200},
}

// withHuge has a VM for pods of 6 vCPUs, too.
var withHuge = cluster.Catalogue{twoModels[0], {Name: "huge", Size: cluster.Resources{CPU: 8 * cluster.VCPU, Memory: 32 << 30}, Price: 1000}}

// outcome is a plan with so many VMs of the first model.
func outcome(cost int64, vms int) pack.Outcome {
	o := pack.Outcome{Cost: cost}
	for range vms {
		o.Plan.VMs = append(o.Plan.VMs, cluster.VM{})
	}
	return o
}

// A pool changes only for what costs less, by enough: to whole pods first, to split pods if that is
// cheaper still.
func TestCheaper(t *testing.T) {
	now := summary.PoolPlan{Packed: 300, Split: 300, PackedVMs: map[string]int{"large": 1}, SplitVMs: map[string]int{"large": 1}}
	for _, tt := range []struct {
		whole, best          int64
		least, packed, split summary.Dollars
		left                 bool
	}{
		{400, 400, 0, 300, 300, false}, {200, 200, 0, 200, 200, false}, {200, 100, 0, 200, 100, false}, {400, 100, 0, 300, 100, false}, {300, 300, 0, 300, 300, false},
		{200, 200, 100, 200, 200, false}, {200, 200, 101, 300, 300, true}, {200, 150, 100, 200, 200, true}, {250, 150, 100, 300, 150, true}, {300, 300, 50, 300, 300, false},
	} {
		got := now
		if left := cheaper(&got, pack.Comparison{Whole: outcome(tt.whole, 2), Best: outcome(tt.best, 1)}, twoModels, tt.least); left != tt.left {
			t.Errorf("whole %d, best %d, at least %s: left out %v", tt.whole, tt.best, tt.least, left)
		}
		if got.Packed != tt.packed || got.Split != tt.split {
			t.Errorf("whole %d, best %d: pays %s packed and %s split, want %s and %s", tt.whole, tt.best, got.Packed, got.Split, tt.packed, tt.split)
		}
		if changed := cmp.Diff(now.SplitVMs, got.SplitVMs) != ""; changed != (tt.split < 300) {
			t.Errorf("whole %d, best %d: VMs %v", tt.whole, tt.best, got.SplitVMs)
		}
	}
}

// Containers are planned in bundles only where none needs a place of its own.
func TestBundled(t *testing.T) {
	for _, tt := range []struct {
		s    Setting
		want int
	}{{Setting{}, mostSingle}, {Setting{Scheme: "best"}, 0}, {Setting{Today: &Today{}}, 0}} {
		if got := tt.s.packing(cluster.User{}).Bundle; got != tt.want {
			t.Errorf("%+v: bundle %d, want %d", tt.s, got, tt.want)
		}
	}
}

func users() []cluster.User {
	container := func(name string, vcpu int64) cluster.Container {
		return cluster.Container{Name: name, Request: cluster.Resources{CPU: vcpu * cluster.VCPU, Memory: vcpu << 30}}
	}
	origin := &cluster.Origin{Namespace: "shop", Name: "web"}
	return []cluster.User{
		{Name: "bob", Pods: []cluster.Pod{{Name: "p", Containers: []cluster.Container{container("a", 2)}}}},
		{Name: "ann", Pods: []cluster.Pod{{Name: "shop/web", Origin: origin, Containers: []cluster.Container{container("a", 2), container("b", 2), container("c", 2)}}}},
	}
}

// Plans come by name, with the split pods of the scheme that is kept.
func TestPlans(t *testing.T) {
	for scheme, want := range map[string]int{"": 0, "best": 1, "whole": 0} {
		s := Setting{Models: withHuge, Scheme: scheme}
		all, err := s.Plans(t.Context(), slices.Values(users()), nil)
		if err != nil {
			t.Fatal(err)
		}
		rows, split, pools := Parts(all)
		if rows[0].Name != "ann" || rows[0].Cost.Best != 300 || rows[0].Cost.Whole != 1000 || rows[1].Cost.Best != 100 || len(split) != want || len(pools) != 0 {
			t.Errorf("%q: %+v, %d split pods, %d pools", scheme, rows, len(split), len(pools))
		}
	}
	full := users()
	full[0].PerVM = cluster.PerVM{Request: cluster.Resources{CPU: 9 * cluster.VCPU}}
	if _, err := (Setting{Models: twoModels}).Plans(t.Context(), slices.Values(full), nil); err == nil || !strings.Contains(err.Error(), "user bob: no VM of the catalogue has room for what runs on every VM") {
		t.Errorf("no room: error %v", err)
	}
	if _, err := (Setting{Models: twoModels, OwnDaemons: true}).Plans(t.Context(), slices.Values(full), nil); err != nil {
		t.Errorf("own DaemonSets: %v", err)
	}
}

// A user, or a namespace, can be explained.
func TestExplain(t *testing.T) {
	s := Setting{Models: withHuge}
	for _, name := range []string{"ann", "shop"} {
		e, err := s.Explain(t.Context(), slices.Values(users()), name)
		if err != nil || e.Plans.User.Name != name || len(e.Plans.User.Pods) != 1 || e.Bound != 300 {
			t.Errorf("%s: %+v, bound %d, %v", name, e.Plans.User, e.Bound, err)
		}
	}
	if _, err := s.Explain(t.Context(), slices.Values(users()), "eve"); err == nil || err.Error() != "explain eve: the trace has no such user: want one such as ann, bob" {
		t.Errorf("error %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := s.Explain(ended, slices.Values(users()), "ann"); !errors.Is(err, context.Canceled) {
		t.Errorf("when the context has ended: error %v", err)
	}
	if _, err := s.Explain(t.Context(), slices.Values([]cluster.User(nil)), "eve"); err == nil || err.Error() != "explain eve: the trace has no users" {
		t.Errorf("error %v", err)
	}
}

// Costs over time, and rates of pods that are there at once, that cannot be added up are refused.
func TestReplaysThatOverflow(t *testing.T) {
	pod := users()[0].Pods[0]
	for _, tt := range []struct {
		hours  time.Duration
		stays  int
		price  int64
		refuse bool
	}{{1, 1, 1e17, false}, {250, 1, 1e17, true}, {0, 30, 1e17, false}, {0, 90, 1e17, true}, {250, 90, 1e14, false}} {
		h := cluster.History{User: "ann"}
		for i := range tt.stays {
			p := pod
			p.Name = fmt.Sprint(i)
			h.Stays = append(h.Stays, cluster.Stay{Pod: p, To: tt.hours*time.Hour + time.Second})
		}
		s := Setting{Models: cluster.Catalogue{{Name: "dear", Size: twoModels[0].Size, Price: tt.price}}}
		all, err := s.Replays(t.Context(), []cluster.History{h}, Replayed{To: 1000 * time.Hour}, nil)
		if refused := err != nil && strings.Contains(err.Error(), "cannot be added up: correct the prices of the catalogue"); refused != tt.refuse || err == nil && all[0].Plans[0].Cost < summary.Dollars(tt.price/3600) {
			t.Errorf("%+v: %v, %+v", tt, err, all)
		}
	}
}

// Without catalogues and models, no VM is larger than the largest of today.
func TestLimited(t *testing.T) {
	c := fleet.Cluster{Nodes: []cluster.Node{node("a", "m6i.large", 2, 8)}}
	for _, tt := range []struct {
		offer catalogue.Offer
		want  bool
	}{{catalogue.Offer{}, true}, {catalogue.Offer{Models: []string{"m6i.4xlarge"}}, false}, {catalogue.Offer{Catalogues: []catalogue.Table{{Name: "m6i"}}}, false}} {
		today, err := NewToday(c, nil, tt.offer)
		if err != nil {
			t.Fatal(err)
		}
		s := today.Summary(nil)
		if s.Largest != tt.want || s.Reserved != "eks" || s.Provider != "aws" || slices.ContainsFunc(today.Models, func(m cluster.Model) bool { return m.Name == "m6i.4xlarge" }) == tt.want {
			t.Errorf("%+v: limited %v, reserved %s, provider %s, models %d", tt.offer, s.Largest, s.Reserved, s.Provider, len(today.Models))
		}
	}
}

// A pool that is not planned has no bound: that of the pods without those left out is none of theirs.
func TestNoBoundOfAPoolThatStays(t *testing.T) {
	today := &Today{pools: map[string]fleet.Pool{"a": {User: cluster.User{Name: "a"}, Now: 500}}}
	for _, tt := range []struct {
		left []pack.Left
		want summary.Dollars
	}{{nil, 300}, {[]pack.Left{{Pod: "x", Reason: "is large"}}, 0}} {
		if c := today.pool(pack.Comparison{User: cluster.User{Name: "a"}, Left: tt.left, Whole: pack.Outcome{Cost: 400}, Best: pack.Outcome{Cost: 400}}, 300); c.Bound != tt.want || (c.Stays == "") != (tt.left == nil) {
			t.Errorf("without %v: bound %v, stays %q, want %v", tt.left, c.Bound, c.Stays, tt.want)
		}
	}
}

// BenchmarkCosts compares the plans with first-fit decreasing on one model for each user, as the
// cluster autoscaler packs, in dollars per hour.
func BenchmarkCosts(b *testing.B) {
	models, err := catalogue.Builtin(catalogue.Paper)
	if err != nil {
		b.Fatal(err)
	}
	sources := map[string][]cluster.User{"generated": generated(125_000)}
	if dir := os.Getenv("UNNEST_GOOGLE2011"); dir != "" {
		users, _, err := trace.Read(b.Context(), "google2011", []string{dir}, trace.Options{})
		if err != nil {
			b.Fatal(err)
		}
		sources["google2011"] = users
	} else {
		b.Log("UNNEST_GOOGLE2011 is not set: NO REAL DATA IS MEASURED")
	}
	for _, name := range []string{"generated", "google2011"} {
		for _, oversize := range []pack.Oversize{pack.Drop, pack.Cut} {
			if sources[name] != nil {
				b.Run(name+"/"+string(oversize), func(b *testing.B) { sideBySide(b, sources[name], models, oversize) })
			}
		}
	}
}

// generated returns random users with at least so many containers.
func generated(containers int) (all []cluster.User) {
	for u := range (synthetic.Users{Seed: 1, Scale: containers}).All() {
		if containers <= 0 {
			break
		}
		all = append(all, u)
		containers -= summary.Containers(u)
	}
	return all
}

// sideBySide plans all users by first-fit decreasing, and with all planners on all processors.
func sideBySide(b *testing.B, users []cluster.User, c cluster.Catalogue, oversize pack.Oversize) {
	b.Run("ffd", func(b *testing.B) {
		for b.Loop() {
			var sum int64
			for _, u := range users {
				fit, _, err := pack.Fit(u, c, oversize)
				if err != nil {
					b.Fatal(err)
				}
				sum += firstFitDecreasing(fit, c)
			}
			b.ReportMetric(float64(sum)/cluster.Dollar, "$/h")
		}
	})
	b.Run("plans", func(b *testing.B) {
		s := Setting{Models: c, Packing: pack.Options{Oversize: oversize}}
		for b.Loop() {
			all, err := s.Plans(b.Context(), slices.Values(users), nil)
			if err != nil {
				b.Fatal(err)
			}
			rows, _, _ := Parts(all)
			r := summary.Sum(rows, summary.Settings{}, nil, nil)
			for unit, cost := range map[string]summary.Dollars{"kubernetes-$/h": r.Cost.Kubernetes, "hostlo-$/h": r.Cost.Hostlo, "whole-$/h": r.Cost.Whole, "best-$/h": r.Cost.Best, "bound-$/h": r.Bound} {
				b.ReportMetric(float64(cost)/cluster.Dollar, unit)
			}
		}
	})
}
