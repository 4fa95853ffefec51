package plan

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"unnest/internal/plan/cluster"
	"unnest/internal/plan/fleet"
	"unnest/internal/plan/pack"
	"unnest/internal/plan/summary"
	"unnest/internal/plan/trace"
)

// today is a cluster with nodes, whose cost is compared with plans.
type today struct {
	fleet.Fleet
	pools      map[string]fleet.Pool // by name
	catalogues []string
	reserved   string
	rules      []cluster.Rule
	nodes      int
	provider   string
	term       string
	prices     []string // besides those of built-in catalogues
	remarks    []string
	limited    bool // no model is larger than those of the nodes
}

// newToday divides the cluster of a dump.
func (s setting) newToday(users []cluster.User, r trace.Report) (*today, error) {
	t := &today{pools: map[string]fleet.Pool{}, rules: r.Rules, nodes: len(r.Nodes), provider: provider(r.Nodes), term: s.opts.Term}
	nodes, all, err := t.models(s.opts, r.Nodes)
	if err != nil {
		return nil, err
	}
	if t.limited = len(s.opts.Catalogues) == 0 && len(s.opts.Models) == 0; t.limited {
		all = fleet.NotLarger(all, nodes)
	}
	reserve, err := reservation(s.opts, fleet.Provider(nodes))
	if err != nil {
		return nil, err
	}
	t.reserved = string(cmp.Or(reserve.Kube, "none"))
	var pods []cluster.Pod
	for _, u := range users {
		pods = append(pods, u.Pods...)
	}
	t.Fleet, err = fleet.New(fleet.Cluster{Nodes: nodes, Pods: pods, DaemonSets: r.DaemonSets, Bound: r.Bound, Selectors: r.Selectors, Buy: s.opts.Models}, all, reserve)
	for _, p := range t.Pools {
		t.pools[p.User.Name] = p
	}
	return t, err
}

// models returns the models on sale, in their nominal sizes, and the nodes with the models that
// they are of. --model limits what is bought, not what nodes cost.
func (t *today) models(opts Options, nodes []cluster.Node) ([]cluster.Node, cluster.Catalogue, error) {
	named := len(opts.Catalogues) > 0
	if !named {
		names := slices.Clone(opts.Models)
		for _, n := range nodes {
			names = append(names, n.Model)
		}
		opts.Catalogues = families(names)
	}
	t.catalogues = opts.Catalogues
	if opts.UnitPrices != "" {
		t.prices = append(t.prices, "--unit-prices "+opts.UnitPrices)
	}
	if len(opts.Catalogues) == 0 {
		if opts.UnitPrices == "" {
			return nil, nil, unknownModels(nodes)
		}
		t.catalogues = []string{"the sizes of the nodes"}
		return sized(opts, nodes)
	}
	if _, err := models(opts); err != nil { // names of models that do not exist
		return nil, nil, err
	}
	opts.Models = nil
	all, err := models(opts)
	if err != nil || !named {
		return nodes, all, err
	}
	nodes, n := fleet.Identify(nodes, all)
	if n > 0 {
		t.remarks = append(t.remarks, fmt.Sprintf("%d nodes without the label node.kubernetes.io/instance-type are taken for the smallest model of their size.", n))
	}
	return nodes, all, nil
}

// sized returns models of the sizes of the nodes that name none.
func sized(opts Options, nodes []cluster.Node) ([]cluster.Node, cluster.Catalogue, error) {
	prices, err := unitPrices(opts)
	if err != nil {
		return nil, nil, err
	}
	nodes, all := fleet.Sizes(nodes)
	if len(all) == 0 {
		return nil, nil, unknownModels(nodes)
	}
	for i, m := range all {
		if all[i].Price, err = prices.Of(m.Size); err != nil {
			return nil, nil, err
		}
	}
	_, err = choose(all, opts.Models)
	return nodes, all, err
}

// unknownModels returns the error for nodes without prices.
func unknownModels(nodes []cluster.Node) error {
	const fix = "name models with --catalogue FILE"
	names := map[string]bool{}
	for _, n := range nodes {
		if n.Model == "" {
			return fmt.Errorf("node %s has no label node.kubernetes.io/instance-type, so its price is not known: say what a vCPU and a GiB cost for an hour (--unit-prices 0.02,0.0025), or %s", n.Name, fix)
		}
		names[n.Model] = true
	}
	return fmt.Errorf("no built-in catalogue has prices of %s, which the nodes are: %s", strings.Join(slices.Sorted(maps.Keys(names)), ", "), fix)
}

// provider returns the cloud of the nodes, such as aws, gce or azure; empty: unknown.
func provider(nodes []cluster.Node) string {
	for _, n := range nodes {
		if name, _, ok := strings.Cut(n.Provider, ":"); ok {
			return name
		}
	}
	return ""
}

// users returns the pools as users.
func (t *today) users() iter.Seq[cluster.User] {
	return func(yield func(cluster.User) bool) {
		for _, p := range t.Pools {
			if !yield(p.User) {
				return
			}
		}
	}
}

// pool compares the plans of a pool with its nodes.
func (t *today) pool(study pack.Comparison, bound int64) *summary.PoolCost {
	p := t.pools[study.User.Name]
	now := summary.Dollars(p.Now)
	c := summary.PoolCost{Name: p.User.Name, Pods: len(p.User.Pods), Now: now, Nodes: p.Nodes, PerVM: p.User.PerVM.String(), Zone: p.Zone, Spot: p.Spot, Labels: p.Labels, Taints: p.Taints,
		PoolPlan: summary.PoolPlan{Packed: now, Split: now, Bound: min(summary.Dollars(bound), now), PackedVMs: p.Nodes, SplitVMs: p.Nodes}}
	if len(study.Left) > 0 {
		c.Stays = fmt.Sprintf("pod %s %s", study.Left[0].Pod, study.Left[0].Reason)
		c.Bound = now
		return &c
	}
	cheaper(&c.PoolPlan, study, p.Catalogue)
	return &c
}

// cheaper replaces the plan of a pool by those of a study that cost less.
func cheaper(c *summary.PoolPlan, study pack.Comparison, models cluster.Catalogue) {
	if cost := summary.Dollars(study.Whole.Cost); cost < c.Packed {
		c.Packed, c.PackedVMs = cost, modelCount(study.Whole.Plan, models)
		if c.Split >= c.Packed {
			c.Split, c.SplitVMs, c.PodsSplit = c.Packed, c.PackedVMs, 0
			c.Placement = placement(study.User, study.Whole.Plan, models)
		}
	}
	if cost := summary.Dollars(study.Best.Cost); cost < c.Split {
		c.Split, c.SplitVMs, c.PodsSplit = cost, modelCount(study.Best.Plan, models), study.Best.Plan.Split()
		c.Placement = placement(study.User, study.Best.Plan, models)
	}
}

// modelCount returns the number of VMs by model.
func modelCount(plan cluster.Plan, c cluster.Catalogue) map[string]int {
	n := map[string]int{}
	for _, vm := range plan.VMs {
		n[c[vm.Model].Name]++
	}
	return n
}

// placement lists the VMs of a plan with their pods.
func placement(u cluster.User, plan cluster.Plan, c cluster.Catalogue) []summary.PlacedVM {
	var vms []summary.PlacedVM
	for _, vm := range plan.VMs {
		placed := summary.PlacedVM{Model: c[vm.Model].Name}
		for _, part := range summary.ByPod(vm.Parts) {
			pod := summary.PlacedPod{Pod: u.Pods[part.Pod].Name}
			if len(part.Containers) < len(u.Pods[part.Pod].Containers) {
				for _, k := range part.Containers {
					pod.Containers = append(pod.Containers, u.Pods[part.Pod].Containers[k].Name)
				}
			}
			placed.Pods = append(placed.Pods, pod)
		}
		vms = append(vms, placed)
	}
	return vms
}

// summary sums up what the cluster costs and could cost.
func (t *today) summary(pools []summary.PoolCost) *summary.Today {
	s := &summary.Today{Provider: t.provider, Nodes: t.nodes, Pools: pools, Catalogues: t.catalogues, Reserved: t.reserved, Largest: t.limited, Waiting: t.Waiting, Elsewhere: t.Elsewhere}
	s.Prices = append(priceDates(t.catalogues), t.prices...)
	if t.term != "" {
		s.Prices = append(s.Prices, "column price_"+t.term)
	}
	for _, stay := range t.Stay {
		s.Stay = append(s.Stay, summary.Stay{Why: stay.Why, Nodes: stay.Nodes, Pods: stay.Pods, Cost: summary.Dollars(stay.Price), Unpriced: stay.Unpriced})
	}
	for _, r := range t.rules {
		s.Rules = append(s.Rules, summary.Rule{What: r.What, How: string(r.How), Pods: r.Pods})
	}
	s.Add()
	return s
}
