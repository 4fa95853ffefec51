package costing

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"

	"unnest.io/unnest/internal/plan/catalogue"
	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/fleet"
	"unnest.io/unnest/internal/plan/pack"
	"unnest.io/unnest/internal/plan/summary"
)

// Today is a cluster with nodes, whose cost is compared with plans.
type Today struct {
	fleet.Fleet
	Remarks []string // sentences on what the figures assume
	// MinSaving is the least that a step has to save. Pools stay as they are if they could cost less,
	// but by less than that.
	MinSaving summary.Dollars

	pools      map[string]fleet.Pool // by name
	pods       []cluster.Pod         // of the cluster, also those on nodes that stay
	catalogues []string
	reserved   string
	rules      []cluster.Rule
	nodes      int
	provider   string
	term       string
	prices     []string          // where they are from
	modelOf    map[string]string // by node
	limited    bool              // no model is larger than those of the nodes
}

// NewToday divides a cluster into pools. Without catalogues and models, what is on sale are the
// families of the nodes up to the largest model of today. Models limit what is bought, not what
// nodes cost.
func NewToday(c fleet.Cluster, rules []cluster.Rule, o catalogue.Offer) (*Today, error) {
	t := &Today{pools: map[string]fleet.Pool{}, pods: c.Pods, rules: rules, nodes: len(c.Nodes), provider: provider(c.Nodes), term: o.Prices.Term}
	m, err := onSale(c.Nodes, o)
	if err != nil {
		return nil, err
	}
	t.catalogues, t.prices, t.Remarks = m.catalogues, m.prices, m.remarks
	if t.limited = len(o.Catalogues) == 0 && len(o.Models) == 0; t.limited {
		m.models = fleet.NotLarger(m.models, m.nodes)
	}
	reserve := o.Reserve(fleet.Provider(m.nodes))
	t.reserved = string(cmp.Or(reserve.Kube, "none"))
	c.Nodes, c.Buy = m.nodes, o.Models
	t.modelOf = map[string]string{}
	for _, n := range m.nodes {
		t.modelOf[n.Name] = n.Model
	}
	t.Fleet, err = fleet.New(c, m.models, reserve)
	for _, p := range t.Pools {
		t.pools[p.User.Name] = p
	}
	return t, err
}

// Users returns the pools as users.
func (t *Today) Users() iter.Seq[cluster.User] {
	return func(yield func(cluster.User) bool) {
		for _, p := range t.Pools {
			if !yield(p.User) {
				return
			}
		}
	}
}

// common returns the models that all of the pools may have, with the prices of spot VMs if all pools are of spot VMs.
func (t *Today) common(pools []string) cluster.Catalogue {
	all, spot := slices.Clone(t.Models), true
	for _, name := range pools {
		p := t.pools[name]
		spot = spot && p.Spot
		all = slices.DeleteFunc(all, func(m cluster.Model) bool {
			return !slices.ContainsFunc(p.Catalogue, func(has cluster.Model) bool { return has.Name == m.Name })
		})
	}
	if spot {
		for i := range all {
			all[i].Price = all[i].Spot
		}
	}
	return all
}

// pool compares the plans of a pool with its nodes.
func (t *Today) pool(plans pack.Comparison, bound int64) *summary.PoolCost {
	p := t.pools[plans.User.Name]
	now := summary.Dollars(p.Now)
	c := summary.PoolCost{Name: p.User.Name, Pods: len(p.User.Pods), Now: now, Nodes: p.Nodes, PerVM: p.User.PerVM.String(), Zone: p.Zone, Spot: p.Spot, Labels: p.Labels, Taints: p.Taints,
		PoolPlan: summary.PoolPlan{Packed: now, Split: now, Bound: min(summary.Dollars(bound), now), PackedVMs: p.Nodes, SplitVMs: p.Nodes}}
	if len(plans.Left) > 0 {
		c.Stays = fmt.Sprintf("pod %s %s", plans.Left[0].Pod, plans.Left[0].Reason)
		c.Bound = 0 // that of the other pods need not hold for all
		return &c
	}
	c.TooLittle = cheaper(&c.PoolPlan, plans, p.Catalogue, t.MinSaving)
	if c.Packed < c.Now {
		moved := moves(plans.User, plans.Whole.Plan, p.Catalogue, t.modelOf)
		c.Moves = len(moved)
		c.Rounds, c.Blocked = rounds(plans.User, moved)
	}
	return &c
}

// cheaper replaces the plan of a pool by those of a study that save at least so much. It reports
// whether it left one out that saves less.
func cheaper(c *summary.PoolPlan, plans pack.Comparison, models cluster.Catalogue, least summary.Dollars) (left bool) {
	worth := func(saves summary.Dollars) bool {
		left = left || saves > 0 && saves < least
		return saves > 0 && saves >= least
	}
	if cost := summary.Dollars(plans.Whole.Cost); worth(c.Packed - cost) {
		c.Packed, c.PackedVMs = cost, modelCount(plans.Whole.Plan, models)
		if c.Split >= c.Packed {
			c.Split, c.SplitVMs, c.PodsSplit = c.Packed, c.PackedVMs, 0
			c.Placement = placement(plans.User, plans.Whole.Plan, models)
		}
	}
	if cost := summary.Dollars(plans.Best.Cost); worth(c.Split - cost) {
		c.Split, c.SplitVMs, c.PodsSplit = cost, modelCount(plans.Best.Plan, models), plans.Best.Plan.Split()
		c.Placement = placement(plans.User, plans.Best.Plan, models)
	}
	return left
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

// Summary sums up what the cluster costs and could cost.
func (t *Today) Summary(pools []summary.PoolCost) *summary.Today {
	s := &summary.Today{Provider: t.provider, Nodes: t.nodes, Pools: pools, Catalogues: t.catalogues, Reserved: t.reserved, Largest: t.limited, Waiting: t.Waiting, Elsewhere: t.Elsewhere, Prices: t.prices, MinSaving: t.MinSaving}
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

// moves returns the pods of a plan of whole pods that are not where they are today. Each VM of the
// plan is the node of its model with most of its pods, among those that no VM before it is.
func moves(u cluster.User, plan cluster.Plan, models cluster.Catalogue, modelOf map[string]string) (moved []int) {
	stay, taken := map[int]bool{}, map[string]bool{}
	for _, vm := range plan.VMs {
		on, seen := map[string]int{}, map[int]bool{}
		best := ""
		for _, part := range vm.Parts {
			o := u.Pods[part.Pod].Origin
			if o == nil || seen[part.Pod] || taken[o.Node] || modelOf[o.Node] != models[vm.Model].Name {
				continue
			}
			seen[part.Pod] = true
			if on[o.Node]++; on[o.Node] > on[best] || on[o.Node] == on[best] && o.Node < best {
				best = o.Node
			}
		}
		if best != "" {
			taken[best] = true
			for pod := range seen {
				stay[pod] = stay[pod] || u.Pods[pod].Origin.Node == best
			}
		}
	}
	for pod := range u.Pods {
		if !stay[pod] {
			moved = append(moved, pod)
		}
	}
	return moved
}

// rounds returns in how many rounds, at least, disruption budgets let the pods move, if those of a
// round are ready again before the next; 0: no budget limits them. The budgets that let none of
// them move, by name, do not count. Kubernetes refuses to evict a pod of several budgets.
func rounds(u cluster.User, moved []int) (most int, blocked []string) {
	pods, none := map[*cluster.Budget]int{}, map[string]bool{}
	for _, pod := range moved {
		o := u.Pods[pod].Origin
		if o == nil {
			continue
		}
		for _, b := range o.Budgets {
			if b.Allowed == 0 || len(o.Budgets) > 1 {
				none[b.Name] = true
				continue
			}
			pods[b]++
		}
	}
	for b, n := range pods {
		most = max(most, (n+b.Allowed-1)/b.Allowed)
	}
	return most, slices.Sorted(maps.Keys(none))
}
