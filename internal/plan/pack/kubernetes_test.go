package pack

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/plan/catalogue"
	"unnest.io/unnest/internal/plan/cluster"
)

// of returns a pod of containers with so many vCPUs, and four times the GiB.
func of(name string, vcpus ...int64) cluster.Pod {
	p := cluster.Pod{Name: name}
	for k, n := range vcpus {
		p.Containers = append(p.Containers, cluster.Container{Name: fmt.Sprint("c", k), Request: cluster.Resources{CPU: n * cluster.VCPU, Memory: n << 32}})
	}
	return p
}

// text writes a plan as "model: pod.container ..." for each VM.
func text(u cluster.User, c cluster.Catalogue, plan cluster.Plan) string {
	var vms []string
	for _, vm := range plan.VMs {
		line := c[vm.Model].Name + ":"
		for _, part := range vm.Parts {
			if part.Container < 0 {
				line += fmt.Sprintf(" %s", u.Pods[part.Pod].Name)
				continue
			}
			line += fmt.Sprintf(" %s.%d", u.Pods[part.Pod].Name, part.Container)
		}
		vms = append(vms, line)
	}
	return strings.Join(vms, "; ")
}

// Plans by hand, on the models of Table 2: a vCPU costs 0.056 $/h.
func TestPlansByHand(t *testing.T) {
	tests := []struct {
		name                             string
		pods                             []cluster.Pod
		kubernetes, hostlo, spread, best string
	}{
		{"the example of §2", []cluster.Pod{of("a", 4, 2)},
			"2xlarge: a.0 a.1", "2xlarge: a.0 a.1", "large: a.1; xlarge: a.0", "large: a.1; xlarge: a.0"},
		// Biggest first: c (5) buys 8 and leaves 3; b (4) buys 4; a (2) comes to c,
		// which has room.
		{"biggest first, most requested", []cluster.Pod{of("a", 2), of("b", 4), of("c", 5)},
			"2xlarge: a.0 c.0; xlarge: b.0", "2xlarge: a.0 c.0; xlarge: b.0", "2xlarge: a.0 c.0; xlarge: b.0", "2xlarge: a.0 c.0; xlarge: b.0"},
		// Both have room for c: b's VM is requested by 7/8, a's by 6/8.
		{"the most requested of two", []cluster.Pod{of("a", 6), of("b", 7), of("c", 1)},
			"2xlarge: b.0 c.0; 2xlarge: a.0", "2xlarge: b.0 c.0; 2xlarge: a.0", "2xlarge: b.0 c.0; 2xlarge: a.0", "2xlarge: b.0 c.0; 2xlarge: a.0"},
		// b's containers fill what a and the other b leave: one VM less.
		{"a VM is dropped", []cluster.Pod{of("a", 7), of("b", 3, 3), of("c", 1, 1)},
			"2xlarge: a.0; 2xlarge: b.0 b.1 c.0 c.1", "2xlarge: a.0; 2xlarge: b.0 b.1 c.0 c.1",
			"2xlarge: a.0; 2xlarge: b.0 b.1 c.0 c.1", "2xlarge: a.0; 2xlarge: b.0 b.1 c.0 c.1"},
		{"a VM is emptied into two", []cluster.Pod{of("a", 7), of("b", 7), of("c", 1, 1)},
			"2xlarge: a.0; 2xlarge: b.0; large: c.0 c.1", "2xlarge: a.0 c.0; 2xlarge: b.0 c.1",
			"2xlarge: a.0 c.0; 2xlarge: b.0 c.1", "2xlarge: a.0 c.0; 2xlarge: b.0 c.1"},
		{"a VM is shrunk", []cluster.Pod{of("a", 7), of("b", 2, 1)},
			"2xlarge: a.0; xlarge: b.0 b.1", "2xlarge: a.0 b.1; large: b.0", "2xlarge: a.0 b.1; large: b.0", "2xlarge: a.0 b.1; large: b.0"},
		{"a whole pod is not split", []cluster.Pod{of("a", 7), {Name: "w", Whole: true, Overhead: cluster.Resources{CPU: 1, Memory: 0}, Containers: of("", 1, 1).Containers}},
			"2xlarge: a.0; xlarge: w w.0 w.1", "2xlarge: a.0; xlarge: w w.0 w.1", "2xlarge: a.0; xlarge: w w.0 w.1", "2xlarge: a.0; xlarge: w w.0 w.1"},
	}
	c := mustBuiltin(t, "bacou")
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Compare(cluster.User{Name: "u", Pods: tt.pods}, c, Options{})
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range []struct{ planner, want, got string }{
				{"kubernetes", tt.kubernetes, text(s.User, c, s.Kubernetes.Plan)},
				{"hostlo", tt.hostlo, text(s.User, c, s.Hostlo.Plan)},
				{"spread", tt.spread, text(s.User, c, s.Spread.Plan)},
				{"best", tt.best, text(s.User, c, s.Best.Plan)},
			} {
				if got := x.got; sorted(got) != sorted(x.want) {
					t.Errorf("%s: %s\nwant %s", x.planner, got, x.want)
				}
			}
		})
	}
}

// sorted puts the VMs of a text in the order of the alphabet: two planners may buy
// the same in another order.
func sorted(text string) string {
	vms := strings.Split(text, "; ")
	slices.Sort(vms)
	return strings.Join(vms, "; ")
}

// The example of §2 costs what the paper says.
func TestPaperExample(t *testing.T) {
	c := mustBuiltin(t, "bacou")
	s, err := Compare(cluster.User{Name: "u", Pods: []cluster.Pod{of("a", 4, 2)}}, c, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Kubernetes.Cost != 448*cluster.Dollar/1000 || s.Best.Cost != 336*cluster.Dollar/1000 || s.Best.Plan.Split() != 1 || s.Kubernetes.Plan.Split() != 0 {
		t.Errorf("kubernetes %d, best %d, want 0.448 and 0.336 dollars", s.Kubernetes.Cost, s.Best.Cost)
	}
}

// The log says what Hostlo did and what that saved.
func TestExplain(t *testing.T) {
	c := mustBuiltin(t, "bacou")
	u := cluster.User{Name: "u", Pods: []cluster.Pod{of("a", 7), of("b", 7), of("c", 1, 1)}}
	o := Options{Explain: true}
	k, err := Kubernetes(u, c, o)
	if err != nil {
		t.Fatal(err)
	}
	h, err := Hostlo(u, c, k.Plan, o)
	if err != nil {
		t.Fatal(err)
	}
	want := []Step{{Action: ActDrop, VM: 2, Model: -1, Before: 1008 * cluster.Dollar / 1000, After: 896 * cluster.Dollar / 1000,
		Moves: []Move{{cluster.Part{Pod: 2, Container: 0}, 2, 0}, {cluster.Part{Pod: 2, Container: 1}, 2, 1}}}}
	if diff := cmp.Diff(want, h.Steps); diff != "" {
		t.Errorf("steps differ (-want +got):\n%s", diff)
	}
	if len(k.Steps) != 3 || k.Steps[2].Action != ActBuy || len(k.Steps[2].Moves) != 2 {
		t.Errorf("steps of Kubernetes: %+v", k.Steps)
	}
}

func TestFit(t *testing.T) {
	whole := of("w", 60, 60)
	whole.Whole = true
	u := cluster.User{Name: "u", Pods: []cluster.Pod{of("a", 90), of("big", 40, 40, 40, 90), whole, of("giant", 1, 97)}}
	tests := []struct {
		oversize Oversize
		pods     string
		left     string
	}{
		{"", "a:1", "big w giant"},
		{Drop, "a:1", "big w giant"},
		{Cut, "a:1 big/0:2 big/1:1 big/2:1", "w giant"},
		{Apart, "a:1 big/0:1 big/1:1 big/2:1 big/3:1", "w giant"},
	}
	for _, tt := range tests {
		fit, left, err := Fit(u, mustBuiltin(t, "bacou"), tt.oversize)
		if err != nil {
			t.Fatal(err)
		}
		var pods, gone []string
		for _, p := range fit.Pods {
			pods = append(pods, fmt.Sprintf("%s:%d", p.Name, len(p.Containers)))
		}
		for _, l := range left {
			gone = append(gone, l.Pod)
		}
		if strings.Join(pods, " ") != tt.pods || strings.Join(gone, " ") != tt.left {
			t.Errorf("%q: pods %v, left %v; want %s and %s", tt.oversize, pods, gone, tt.pods, tt.left)
		}
	}
	if _, _, err := Fit(u, mustBuiltin(t, "bacou"), Refuse); err == nil || !strings.Contains(err.Error(), "pod big needs 210 vCPU, 840 GiB") {
		t.Errorf("refuse: error %v", err)
	}
	if _, err := Kubernetes(u, mustBuiltin(t, "bacou"), Options{}); err == nil || !strings.Contains(err.Error(), "no model holds that; cut or drop it") {
		t.Errorf("kubernetes of a pod that is too large: error %v", err)
	}
}

func TestOptionsRefused(t *testing.T) {
	c := mustBuiltin(t, "bacou")
	for _, tt := range []struct {
		c    cluster.Catalogue
		o    Options
		want string
	}{
		{nil, Options{}, "the catalogue is empty"},
		{c, Options{Wasted: "host"}, `wasted "host" is unknown: want one of [vm largest]`},
		{c, Options{Rounds: -1}, "rounds -1"},
		{c, Options{Host: cluster.Resources{CPU: cluster.VCPU, Memory: 1 << 40}}, "model large is larger than a physical host"},
	} {
		if _, err := Kubernetes(cluster.User{}, tt.c, tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: error %v, want one with %q", tt.o, err, tt.want)
		}
	}
}

// A host of 16 vCPUs holds two 2xlarge: c's VM is on the second host, so its
// containers cannot be shared out between the first two.
func TestHostLimitsHostlo(t *testing.T) {
	c := mustBuiltin(t, "bacou")[:4]
	u := cluster.User{Name: "u", Pods: []cluster.Pod{of("a", 7), of("b", 7), of("c", 1, 1)}}
	for _, tt := range []struct {
		name string
		host cluster.Resources
		cost int64
	}{{"no limit", cluster.Resources{}, 896}, {"16 vCPU", cluster.Resources{CPU: 16 * cluster.VCPU, Memory: 64 << 30}, 1008}, {"18 vCPU", cluster.Resources{CPU: 18 * cluster.VCPU, Memory: 72 << 30}, 896}} {
		o := Options{Host: tt.host}
		k, err := Kubernetes(u, c, o)
		if err != nil {
			t.Fatal(err)
		}
		h, err := Hostlo(u, c, k.Plan, o)
		if err != nil {
			t.Fatal(err)
		}
		if err := Check(u, c, h.Plan, o); err != nil || h.Cost != tt.cost*cluster.Dollar/1000 {
			t.Errorf("%s: cost %d, error %v; want %d thousandths", tt.name, h.Cost, err, tt.cost)
		}
	}
}

// Check finds every way in which a plan can be wrong.
func TestCheckFinds(t *testing.T) {
	c := mustBuiltin(t, "bacou")
	c[1].Pods = 1
	u := cluster.User{Name: "u", Pods: []cluster.Pod{of("a", 2, 1), {Name: "w", Whole: true, Overhead: cluster.Resources{CPU: 1, Memory: 1}, Containers: of("", 1, 1).Containers}}}
	good := func() cluster.Plan {
		return cluster.Plan{VMs: []cluster.VM{{ID: 0, Model: 2, Host: 0, Parts: []cluster.Part{{Pod: 0, Container: 0}, {Pod: 0, Container: 1}}}, {ID: 1, Model: 2, Host: 0, Parts: []cluster.Part{{Pod: 1, Container: -1}, {Pod: 1, Container: 0}, {Pod: 1, Container: 1}}}}}
	}
	if err := Check(u, c, good(), Options{}); err != nil {
		t.Fatalf("a good plan: %v", err)
	}
	tests := []struct {
		name  string
		spoil func(p *cluster.Plan)
		want  string
	}{
		{"capacity", func(p *cluster.Plan) { p.VMs[0].Model = 0 }, "VM 0 holds 3 vCPU, 12 GiB: a large has 2 vCPU, 8 GiB"},
		{"pods", func(p *cluster.Plan) {
			p.VMs[0].Model = 1
			p.VMs[0].Parts = append(p.VMs[0].Parts, p.VMs[1].Parts...)
			p.VMs = p.VMs[:1]
		}, "VM 0 holds 2 pods: a xlarge may have 1"},
		{"twice", func(p *cluster.Plan) { p.VMs[0].Parts[1] = cluster.Part{Pod: 0, Container: 0} }, "container c0 of pod a is there 2 times"},
		{"missing", func(p *cluster.Plan) { p.VMs[0].Parts = p.VMs[0].Parts[:1] }, "container c1 of pod a is there 0 times"},
		{"no overhead", func(p *cluster.Plan) { p.VMs[1].Parts = p.VMs[1].Parts[1:] }, "the overhead of pod w is there 0 times: want 1"},
		{"too much overhead", func(p *cluster.Plan) { p.VMs[0].Parts = append(p.VMs[0].Parts, cluster.Part{Pod: 0, Container: -1}) }, "the overhead of pod a is there 1 times: want 0"},
		{"overhead apart", func(p *cluster.Plan) {
			p.VMs[0].Parts = append(p.VMs[0].Parts, cluster.Part{Pod: 1, Container: -1})
			p.VMs[1].Parts = p.VMs[1].Parts[1:]
		},
			"VM 0 has the overhead of pod w without its first container"},
		{"whole pod split", func(p *cluster.Plan) {
			p.VMs[0].Parts = append(p.VMs[0].Parts, cluster.Part{Pod: 1, Container: 1})
			p.VMs[1].Parts = p.VMs[1].Parts[:2]
		},
			"pod w must not be split: it is on 2 VMs"},
		{"two hosts", func(p *cluster.Plan) {
			p.VMs[0].Parts = p.VMs[0].Parts[:1]
			p.VMs[1].Parts = append(p.VMs[1].Parts, cluster.Part{Pod: 0, Container: 1})
			p.VMs[1].Host = 1
		}, "pod a has fractions on 2 hosts"},
		{"host", func(p *cluster.Plan) {}, "host 0 holds VMs of 16 vCPU, 64 GiB: it has 15 vCPU, 64 GiB"},
		{"ID", func(p *cluster.Plan) { p.VMs[1].ID = 0 }, "VM 0 is there twice"},
		{"model", func(p *cluster.Plan) { p.VMs[1].Model = 6 }, "VM 1 has model 6: the catalogue has 6"},
		{"part", func(p *cluster.Plan) { p.VMs[1].Parts[2] = cluster.Part{Pod: 1, Container: 2} }, "VM 1 has container 2 of pod 1: the user has no such"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := good()
			tt.spoil(&p)
			o := Options{}
			if tt.name == "host" {
				o.Host = cluster.Resources{CPU: 15 * cluster.VCPU, Memory: 64 << 30}
			}
			if err := Check(u, c, p, o); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
	cheap, dear := Outcome{Plan: cluster.Plan{VMs: []cluster.VM{{Model: 0}}}, Cost: c[0].Price}, Outcome{Plan: cluster.Plan{VMs: []cluster.VM{{Model: 1}}}, Cost: c[1].Price}
	if CheckImproved(c, dear, cheap) != nil || CheckImproved(c, cheap, dear) == nil || CheckImproved(c, dear, Outcome{cheap.Plan, 0, nil, false}) == nil {
		t.Error("CheckImproved accepts a dearer plan or a wrong cost, or refuses a cheaper plan")
	}
}

// A plan holds pods with the overhead of their first containers, and does not split those that must stay whole.
func TestHolds(t *testing.T) {
	c := mustBuiltin(t, "bacou") // large, xlarge: 2 and 4 vCPU
	part := func(containers ...int) (all []cluster.Part) {
		for _, k := range containers {
			all = append(all, cluster.Part{Container: k})
		}
		return all
	}
	one := func(model int, containers ...int) cluster.Plan {
		return cluster.Plan{VMs: []cluster.VM{{Model: model, Parts: part(containers...)}}}
	}
	apart := cluster.Plan{VMs: []cluster.VM{{ID: 0, Parts: part(0)}, {ID: 1, Parts: part(1)}}}
	init, whole := of("a", 1, 1), of("a", 1, 1)
	init.Overhead, whole.Whole = cluster.Resources{CPU: cluster.VCPU}, true
	for _, tt := range []struct {
		name string
		pod  cluster.Pod
		plan cluster.Plan
		want bool
	}{
		{"full", of("a", 1, 1), one(0, 0, 1), true},
		{"overfull", of("a", 1, 2), one(0, 0, 1), false},
		{"overhead without a part", init, one(0, 0, 1), false},
		{"overhead with a part", init, one(0, -1, 0, 1), false},
		{"overhead that fits", init, one(1, 0, 1), true},
		{"overhead with the first container", init, apart, true},
		{"split", of("a", 1, 1), apart, true},
		{"split, but whole", whole, apart, false},
		{"whole", whole, one(0, 0, 1), true},
	} {
		if got := Holds(cluster.User{Pods: []cluster.Pod{tt.pod}}, c, tt.plan); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// A plan that is not the user's is refused, not improved.
func TestImproveRefuses(t *testing.T) {
	c := mustBuiltin(t, "bacou")
	u := cluster.User{Name: "u", Pods: []cluster.Pod{of("a", 1, 1)}}
	for _, tt := range []struct {
		plan cluster.Plan
		want string
	}{
		{cluster.Plan{}, "the plan lacks pod a or a part of it"},
		{cluster.Plan{VMs: []cluster.VM{{Model: 9}}}, "VM 0 has model 9"},
		{cluster.Plan{VMs: []cluster.VM{{Parts: []cluster.Part{{Pod: 0, Container: 2}}}}}, "container 2 of pod 0"},
	} {
		if _, err := Hostlo(u, c, tt.plan, Options{}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("error %v, want one with %q", err, tt.want)
		}
	}
	split := cluster.Plan{VMs: []cluster.VM{{ID: 0, Parts: []cluster.Part{{Pod: 0, Container: 0}}}, {ID: 1, Parts: []cluster.Part{{Pod: 0, Container: 1}}}}}
	if _, err := Best(Unsplit(u), c, Options{}, split); err == nil || !strings.Contains(err.Error(), "the plan splits pod a") {
		t.Errorf("a split start for whole pods: error %v", err)
	}
}

// A pod that is cut keeps the links within each piece.
func TestFitKeepsLinks(t *testing.T) {
	p := of("a", 50, 40, 50, 40)
	p.Links = []cluster.Link{{A: 0, B: 1, Weight: 1}, {A: 1, B: 2, Weight: 2}, {A: 3, B: 2, Weight: 3}}
	u, _, err := Fit(cluster.User{Name: "u", Pods: []cluster.Pod{p}}, mustBuiltin(t, "bacou"), Cut)
	if err != nil || len(u.Pods) != 2 {
		t.Fatalf("got %+v, %v, want two pieces", u, err)
	}
	if diff := cmp.Diff([][]cluster.Link{{{A: 0, B: 1, Weight: 1}}, {{A: 1, B: 0, Weight: 3}}}, [][]cluster.Link{u.Pods[0].Links, u.Pods[1].Links}); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
}

func mustBuiltin(t testing.TB, names ...string) cluster.Catalogue {
	t.Helper()
	c, err := catalogue.Builtin(names...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Sizes are relative to the largest model (Bacou et al., Table 2).
func TestSizeIsRelative(t *testing.T) {
	c := mustBuiltin(t, "bacou")
	m := newModelIndex(c)
	for i, share := range []float64{0.0208, 0.0417, 0.0833, 0.1667, 0.5, 1} {
		if got := m.size(c[i].Size); got < 2*share-1e-4 || got > 2*share+1e-4 {
			t.Errorf("%s has size %.4f, want twice %.4f", c[i].Name, got, share)
		}
	}
}
