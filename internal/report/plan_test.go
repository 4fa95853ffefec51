package report_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/plan/summary"
	"unnest.io/unnest/internal/report/document"
	"unnest.io/unnest/internal/report/plans"
	"unnest.io/unnest/internal/report/render"
)

// dollars are whole thousandths of a dollar.
func dollars(thousandths int64) summary.Dollars { return summary.Dollars(thousandths * 1_000_000) }

var planSettings = summary.Settings{Oversize: "drop", Moving: "vm", Emptying: "wasted", Requested: "vm", Wasted: "vm",
	Catalogue: []summary.Model{{Name: "large", VCPU: 2, GiB: 8, Price: dollars(112)}, {Name: "xlarge", VCPU: 4, GiB: 16, Price: dollars(224), Pods: 110}}}

var planReading = []summary.Reading{{Format: "csv", Files: 1, Rows: 12, Kept: 11, Users: 3, Pods: 4, Containers: 9, Broken: 1,
	Excluded: []summary.Reason{{Why: "requests nothing", Rows: 1}}, Examples: []string{"pods.csv line 2: memory \"4GG\""}}}

// threeUsers are a user who saves with hostlo, one who saves only with best, and one
// without pods.
func threeUsers() summary.Plan {
	costs := func(kubernetes, hostlo, best int64) summary.Costs {
		k, h, b := dollars(kubernetes), dollars(hostlo), dollars(best)
		return summary.Costs{Kubernetes: k, Resize: k, Hostlo: h, Spread: b, Whole: k, Best: b}
	}
	return summary.Sum([]summary.User{
		{Name: "<ann>", Pods: 2, Containers: 4, SplitHostlo: 1, SplitBest: 1, Cost: costs(448, 336, 336), Bound: dollars(336)},
		{Name: "cyd", LeftOut: 1},
		{Name: "dan", Pods: 1, Containers: 3, SplitBest: 1, Cost: costs(448, 448, 336), Bound: dollars(300)},
	}, planSettings, planReading, nil)
}

func choices() summary.Frontier {
	price := &summary.CutPrice{Latency: summary.Latency{Run: "r1", Directory: "runs/hostlo", State: "complete", Ratio: 2,
		Cases: []summary.CaseLatency{{Case: "udp_rr/64", Unit: "us", SameNode: 10, Hostlo: 20, Ratio: 2, Low: 1.9, High: 2.1, Blocks: 6}}}, LinkCPU: .01, VCPU: dollars(56), Price: .00056}
	return summary.NewFrontier([]summary.Choices{{User: "<ann>", Pods: 2, Containers: 4, Choices: []summary.Choice{{Cost: dollars(336), Cut: 2, Split: 1}, {Cost: dollars(448)}}}},
		summary.LinkUse{From: "all", Pairs: 1}, price, planSettings, planReading)
}

func comingAndGoing() summary.Replay {
	course := func(name string, cost int64) summary.Course {
		return summary.Course{Plan: name, Cost: dollars(cost), Bought: 2, Rates: make([]summary.Dollars, summary.Moments)}
	}
	r := summary.Replay{To: 7200, Minimum: 60, Migrations: 10, Settings: planSettings, Traces: planReading,
		PerUser: []summary.UserReplay{{User: "<ann>", Stays: 3, Containers: 4, LeftOut: 1, Plans: []summary.Course{course("kubernetes", 900), course("shared", 800), course("moved", 700)}}}}
	r.Add()
	return r
}

// aCluster is two pools, of which one is split, and nodes that stay.
func aCluster() summary.Plan {
	c := threeUsers()
	vms := func(n int) map[string]int { return map[string]int{"m6i.large": n} }
	c.Today = &summary.Today{Nodes: 12, Catalogues: []string{"m6i"}, Prices: []string{"a list of 2026"}, Reserved: "eks", Largest: true, Waiting: 2, Elsewhere: 1,
		Pools: []summary.PoolCost{
			{Name: "<ann>", Pods: 9, Nodes: vms(8), Now: dollars(800), PerVM: "1 vCPU",
				PoolPlan: summary.PoolPlan{PackedVMs: vms(5), SplitVMs: vms(4), Packed: dollars(500), Split: dollars(400), Bound: dollars(400), PodsSplit: 2}},
			{Name: "b", Pods: 1, Nodes: vms(1), Now: dollars(100), Stays: "pod x is large",
				PoolPlan: summary.PoolPlan{PackedVMs: vms(1), SplitVMs: vms(1), Packed: dollars(100), Split: dollars(100)}},
		},
		Stay:  []summary.Stay{{Why: "control plane", Nodes: 3, Cost: dollars(1_000_000), Unpriced: 1}},
		Rules: []summary.Rule{{What: "pod affinity", How: "NOT HONOURED", Pods: 3}}}
	c.Today.Add()
	return c
}

// sizedCluster is aCluster with requests by use, with which the first pool costs less or more.
func sizedCluster(packed, split int64) summary.Plan {
	c := aCluster()
	pools := c.Today.Pools
	vms := map[string]int{"m6i.large": 2}
	pools[0].Sized = &summary.PoolPlan{PackedVMs: vms, SplitVMs: vms, Packed: dollars(packed), Split: dollars(split), Bound: dollars(split)}
	pools[1].Sized = &pools[1].PoolPlan
	c.Today = &summary.Today{Nodes: 12, Pools: pools, Stay: c.Today.Stay}
	c.Today.Add()
	amount := summary.Amount{VCPU: 2, GiB: 4}
	c.TakeUse(summary.Use{Sources: []string{"metrics:<m>"}, Headroom: 15, Percentile: .95, Samples: 1, Containers: 9, Known: 7, Raised: 1, Fixed: 1, Unmatched: 3, Kept: 1, Requested: amount, Sized: amount,
		Changes: []summary.Request{{Namespace: "shop", Kind: "Deployment", Workload: "<web>", Container: "app", Pods: 3, From: amount, To: amount}}})
	return c
}

// With use, the answer says what each measure saves after those before it, and what costs more.
func TestUseFindings(t *testing.T) {
	for _, tt := range []struct {
		packed, split   int64
		answer, lastOne string
	}{
		{300, 200, "You could pay 1000.300 $/h (730,219 $ a month), -0.06 %: packing whole pods saves 0.300 $/h, right-sizing requests saves 0.200 $/h more, splitting pods saves 0.100 $/h more.",
			"Then: in <ann>, set requests by use and replace 5 m6i.large by 2 m6i.large: saves 0.200 $/h; you pay 1000.400 $/h then."},
		{600, 600, "You could pay 1000.700 $/h (730,511 $ a month), -0.02 %: packing whole pods saves 0.300 $/h, right-sizing requests costs 0.100 $/h more.",
			"Then: in <ann>, set requests by use and replace 5 m6i.large by 2 m6i.large: costs 0.100 $/h more; you pay 1000.700 $/h then."},
	} {
		c := sizedCluster(tt.packed, tt.split)
		doc := plans.Plan(c)
		if !strings.HasSuffix(doc.Answer, tt.answer+" Prices: as given.") || doc.Headlines[1] != tt.lastOne {
			t.Errorf("answer\n%s\nwant\n%s\nheadlines %q", doc.Answer, tt.answer, doc.Headlines)
		}
		sum := summary.Dollars(0)
		for _, s := range c.Use.Saves {
			sum += s.Saves
		}
		if _, split, _, _ := c.Today.Could(); sum != c.Today.Now-split {
			t.Errorf("the measures save %s, want %s", sum, c.Today.Now-split)
		}
	}
	warnings := strings.Join(plans.Plan(sizedCluster(300, 200)).Warnings, "\n")
	for _, want := range []string{"Some use is a single measurement", "Without a use, so that their requests stay: 2 of 9 containers.", "Right-sizing requests more for 1 of 9 containers", "Not right-sized: 1 pod with requests of the pod as a whole.",
		"Not right-sized: the pods of 1 pools or users", "Use of 3 containers was read that no planned pod has"} {
		if !strings.Contains(warnings, want) {
			t.Errorf("warnings lack %q:\n%s", want, warnings)
		}
	}
}

func TestClusterFindings(t *testing.T) {
	doc := plans.Plan(aCluster())
	const answer = "You pay 1000.900 $/h (730,657 $ a month) for 12 nodes. You could pay 1000.600 $/h (730,438 $ a month), -0.03 %, with the same whole pods on 9 VMs. " +
		"Splitting 2 pods over VMs makes that 1000.500 $/h (730,365 $ a month), -0.04 %. Prices: a list of 2026."
	if doc.Answer != answer {
		t.Errorf("answer\n%s\nwant\n%s", doc.Answer, answer)
	}
	steps := []string{"Do next: in <ann>, replace 8 m6i.large by 5 m6i.large: saves 0.300 $/h; you pay 1000.600 $/h then.",
		"With Hostlo, on VMs of one host: in <ann>, replace 5 m6i.large by 4 m6i.large and split 2 pods: saves 0.100 $/h; you pay 1000.500 $/h then."}
	if diff := cmp.Diff(steps, doc.Headlines[:2]); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	warnings := strings.Join(doc.Warnings, "\n")
	for _, want := range []string{"Not honoured: pod affinity, of 3 pods.", "Without a price, and in no sum: 1 node (control plane).", "Pool b stays as it is and has no bound: pod x is large.", "Not planned: 2 pods without a node.", "Not planned: 1 pod on nodes that the dump lacks."} {
		if !strings.Contains(warnings, want) {
			t.Errorf("warnings lack %q:\n%s", want, warnings)
		}
	}
	// The pool that stays has no bound: it is not optimal, and not part of the gap.
	if row := doc.Groups[0].Tables[0].Rows[1]; row[3].Text != "none" || !strings.HasSuffix(doc.Headlines[2], "The plan with splits is 0.00 % above the bound, and proved optimal for 1 pool.") {
		t.Errorf("bound %v, %q", row, doc.Headlines[2])
	}
	c := aCluster()
	c.Today = &summary.Today{Nodes: 1}
	if doc := plans.Plan(c); doc.Headlines[0] != "Do nothing: no plan that was found costs less." || !strings.Contains(doc.Answer, "saves nothing. Splitting pods saves nothing more.") {
		t.Errorf("without savings: %s %q", doc.Answer, doc.Headlines)
	}
}

// Every plan is printed in every format: names are escaped, JSON is the summary itself,
// CSV has one width, and samples are refused.
func TestPlansInEveryFormat(t *testing.T) {
	for name, doc := range map[string]document.Document{"plan": plans.Plan(threeUsers()), "cluster": plans.Plan(aCluster()), "use": plans.Plan(sizedCluster(300, 200)), "frontier": plans.Frontier(choices()), "replay": plans.Replay(comingAndGoing()), "empty": plans.Plan(summary.Sum(nil, planSettings, nil, nil))} {
		printed := map[string]string{}
		for _, f := range render.Formats {
			var out bytes.Buffer
			if err := f.Print(&out, doc); (err != nil) != (f.Name == "gobench" || f.Name == "pkb") {
				t.Errorf("%s as %s: %v", name, f.Name, err)
			}
			printed[f.Name] = out.String()
		}
		if page := printed["html"]; strings.Contains(page, "<ann>") || name != "empty" && !strings.Contains(page, "&lt;ann&gt;") {
			t.Errorf("%s: the page does not escape names", name)
		}
		data, err := json.Marshal(doc.Data)
		var want, got any
		if err := errors.Join(err, json.Unmarshal(data, &want), json.Unmarshal([]byte(printed["json"]), &got)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want.(map[string]any)["schema_version"] = float64(plans.Version)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: JSON (-want +got):\n%s", name, diff)
		}
		if _, err := csv.NewReader(strings.NewReader(printed["csv"])).ReadAll(); err != nil {
			t.Errorf("%s: CSV: %v", name, err)
		}
	}
}

func TestPlanFindings(t *testing.T) {
	doc := plans.Plan(threeUsers())
	want := []string{
		"2 users, 3 pods, 7 containers. Each user has VMs of their own.",
		"best costs 0.672 $/h (-25.00 %). It is 5.66 % above the bound, and proved optimal for 1 of 2 users.",
		"hostlo splits 1 pod over several VMs, best 2.",
	}
	if answer := "hostlo costs 0.784 $/h, kubernetes 0.896 $/h (-12.50 %). 1 of 2 users (50.00 %) save."; doc.Answer != answer {
		t.Errorf("answer %q, want %q", doc.Answer, answer)
	}
	if got := strings.Join(doc.Headlines, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("headlines\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	warnings := strings.Join(doc.Warnings, "\n")
	for _, want := range []string{"Left out: 1 pod too large for any VM (oversize: drop).", "1 row of csv cannot be read: pods.csv line 2", "Not counted: 1 user without any pod that fits on a VM."} {
		if !strings.Contains(warnings, want) {
			t.Errorf("warnings lack %q:\n%s", want, warnings)
		}
	}
	for _, c := range doc.Groups[1].Charts {
		if len(c.Series) != 2 || len(c.Series[0].Values) == 0 || c.Kind == document.Lines && len(c.Series[0].X) != len(c.Series[0].Values) {
			t.Errorf("chart %s: %+v", c.ID, c)
		}
	}
}
