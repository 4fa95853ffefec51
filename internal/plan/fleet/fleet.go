// Package fleet divides a cluster into pools that can be planned on their own: nodes in one
// zone with equal taints and labels. Each pod stays in its pool, so rules about zones, taints
// and labels hold after a plan as they do today.
package fleet

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"unnest.io/unnest/internal/plan/catalogue"
	"unnest.io/unnest/internal/plan/cluster"
)

// Cluster is what a dump says of a cluster.
type Cluster struct {
	Nodes      []cluster.Node
	Pods       []cluster.Pod // with an Origin
	DaemonSets []cluster.DaemonSet
	Bound      []string // nodes with pods that cannot be planned
	Selectors  []string // labels of nodes that make a difference to pods
	Limits     []cluster.Limit
	Buy        []string // models that may be bought; nil: all without GPUs
}

// Fleet is a cluster in pools.
type Fleet struct {
	Pools     []Pool
	Models    cluster.Catalogue // with what they leave for pods and DaemonSets
	Stay      []Stay
	Waiting   int // pods without a node, which are in no pool
	Elsewhere int // pods on nodes that are unknown
}

// Pool is nodes that are planned together.
type Pool struct {
	User      cluster.User // named after the pool
	Catalogue cluster.Catalogue
	Unlimited cluster.Catalogue // models that legal plans may have too, if pods select by model and so limit Catalogue
	Nodes     map[string]int    // number of nodes by model
	Now       int64             // what they cost, billionths of a dollar for an hour
	Start     *cluster.Plan     // the pods where they are; nil if they do not fit there by the catalogue
	Zone      string
	Spot      bool
	Labels    map[string]string // by which pods select
	Taints    []string
}

// Stay is nodes that stay as they are, for one reason.
type Stay struct {
	Why         string
	Nodes, Pods int
	Price       int64 // of those in the catalogue
	Unpriced    int   // nodes
}

// New divides a cluster. The catalogue has the nominal sizes of models, from which a reservation
// is subtracted. If the reservation counts DaemonSets, those of the dump are not added. Models
// that the cluster has keep what their nodes leave for pods.
func New(c Cluster, models cluster.Catalogue, reserve catalogue.Reserve) (Fleet, error) {
	left, err := allocatable(models, c.Nodes, reserve)
	if err != nil {
		return Fleet{}, err
	}
	left = catalogue.WithoutGPUs(left)
	if c.Buy != nil {
		left = slices.DeleteFunc(left, func(m cluster.Model) bool { return !slices.Contains(c.Buy, m.Name) })
	}
	stays := map[string]string{}
	for {
		f := &divider{cluster: c, models: models, pools: map[string]*pool{}, of: map[string]*pool{}, why: map[string]string{}}
		f.fleet.Models = left
		f.hold(stays)
		for _, n := range c.Nodes {
			if f.why[n.Name] == "" {
				f.join(n)
			}
		}
		f.daemons(reserve.DaemonSets == (cluster.Resources{}) && reserve.DaemonPods == 0)
		f.pods()
		more := len(stays)
		for _, p := range f.pools {
			p.limit(c.Limits, c.Nodes)
			before := len(stays)
			p.unplaceable(stays)
			if p.Catalogue = p.buyable(left, p.byModel).For(p.User); len(p.Catalogue) == 0 && len(stays) == before {
				for _, n := range p.nodes {
					stays[n.Name] = noModel
				}
			}
		}
		if len(stays) > more {
			continue // without the nodes that cannot be planned
		}
		for _, key := range slices.Sorted(maps.Keys(f.pools)) {
			f.fleet.Pools = append(f.fleet.Pools, f.pools[key].finish(left))
		}
		f.staying()
		return f.fleet, nil
	}
}

type divider struct {
	cluster Cluster
	models  cluster.Catalogue
	fleet   Fleet
	pools   map[string]*pool
	of      map[string]*pool  // by node
	why     map[string]string // a node stays
}

type pool struct {
	Pool
	nodes   []cluster.Node
	on      map[string][]int // pods by node
	byModel bool             // pods select by model
	every   []everywhere     // what runs on each VM
}

// Reasons for which nodes stay.
const (
	noPrice      = "the catalogue has no price of "
	controlPlane = "control plane"
	spot         = "the catalogue has no spot price of "
	gpus         = "GPUs are not planned"
	fargate      = "Fargate has no nodes to plan"
	windows      = "Windows"
	noModel      = "no model on sale for this pool"
	notPlanned   = "a pod on it cannot be planned"
	pinned       = "a pod may run on this node only"
	notHonoured  = "a pod on it demands what plans do not honour: "
)

// hold finds the nodes that stay, besides those that are known to.
func (f *divider) hold(stays map[string]string) {
	bound := maps.Clone(stays)
	for _, name := range f.cluster.Bound {
		bound[name] = notPlanned
	}
	statics := staticSets(f.cluster)
	for _, p := range f.cluster.Pods {
		if p.Origin.Held != "" {
			bound[p.Origin.Node] = cmp.Or(bound[p.Origin.Node], notHonoured+p.Origin.Held)
		}
		if p.Origin.Pinned || p.Origin.Kind == "Node" && !statics[staticName(p)] {
			bound[p.Origin.Node] = cmp.Or(bound[p.Origin.Node], pinned)
		}
	}
	for _, n := range f.cluster.Nodes {
		f.why[n.Name] = cmp.Or(f.reason(n), bound[n.Name])
	}
}

func (f *divider) reason(n cluster.Node) string {
	_, isControl := n.Labels["node-role.kubernetes.io/control-plane"]
	_, isMaster := n.Labels["node-role.kubernetes.io/master"]
	model := f.model(n.Model)
	switch {
	case isControl || isMaster:
		return controlPlane
	case n.Labels["eks.amazonaws.com/compute-type"] == "fargate":
		return fargate
	case n.Labels["kubernetes.io/os"] == "windows":
		return windows
	case isSpot(n) && (model < 0 || f.models[model].Spot == 0):
		return spot + cmp.Or(n.Model, "its model")
	case model < 0:
		return noPrice + cmp.Or(n.Model, "its model")
	case f.models[model].GPUs > 0:
		return gpus
	}
	return ""
}

// spotLabels are labels of spot nodes, with their values.
var spotLabels = map[string]string{"karpenter.sh/capacity-type": "spot", "eks.amazonaws.com/capacityType": "SPOT", "cloud.google.com/gke-spot": "true",
	"cloud.google.com/gke-preemptible": "true", "kubernetes.azure.com/scalesetpriority": "spot"}

func isSpot(n cluster.Node) bool {
	for label, value := range spotLabels {
		if strings.EqualFold(n.Labels[label], value) {
			return true
		}
	}
	return false
}

// price returns the price of a node, 0 if it is unknown.
func (f *divider) price(n cluster.Node) int64 {
	m := f.model(n.Model)
	switch {
	case m < 0:
		return 0
	case isSpot(n):
		return f.models[m].Spot
	}
	return f.models[m].Price
}

func (f *divider) model(name string) int {
	return slices.IndexFunc(f.models, func(m cluster.Model) bool { return m.Name == name })
}

// staticName returns the name of a static pod without that of its node.
func staticName(p cluster.Pod) string {
	return strings.TrimSuffix(p.Origin.Namespace+"/"+p.Origin.Name, "-"+p.Origin.Node)
}

// staticSets returns the names of static pods that all nodes run, such as GKE's kube-proxy.
func staticSets(c Cluster) map[string]bool {
	nodes := map[string]int{}
	for _, p := range c.Pods {
		if p.Origin.Kind == "Node" {
			nodes[staticName(p)]++
		}
	}
	all := map[string]bool{}
	for name, n := range nodes {
		all[name] = n == len(c.Nodes)
	}
	return all
}

// Labels of nodes that make pools.
var poolLabels = []string{"topology.kubernetes.io/zone", archLabel, "kubernetes.io/os"}

// modelLabels are prefixes of labels that follow from the model of a VM.
var modelLabels = []string{"karpenter.k8s.aws/instance-", "eks.amazonaws.com/instance-", "karpenter.azure.com/sku-", "kubernetes.azure.com/sku-", "cloud.google.com/machine-family", "feature.node.kubernetes.io/"}

const (
	archLabel = "kubernetes.io/arch"
	amd64     = "amd64"
)

// join puts a node into its pool.
func (f *divider) join(n cluster.Node) {
	var key []string
	labels := map[string]string{}
	byModel := false
	for _, label := range poolLabels {
		if value := n.Labels[label]; value != "" && value != amd64 && value != "linux" {
			key = append(key, value)
		}
	}
	for _, label := range f.cluster.Selectors {
		if slices.Contains(poolLabels, label) || label == "kubernetes.io/hostname" {
			continue
		}
		if value, has := n.Labels[label]; has {
			key = append(key, label+"="+value)
			labels[label] = value
		}
		byModel = byModel || strings.Contains(label, "instance-type") || slices.ContainsFunc(modelLabels, func(prefix string) bool { return strings.HasPrefix(label, prefix) })
	}
	key = append(key, n.Taints...)
	if isSpot(n) {
		key = append(key, "spot")
	}
	name := cmp.Or(strings.Join(key, " "), "all nodes")
	p := f.pools[name]
	if p == nil {
		p = &pool{Pool: Pool{User: cluster.User{Name: name}, Nodes: map[string]int{}, Zone: n.Labels[poolLabels[0]], Spot: isSpot(n), Labels: labels, Taints: n.Taints}, on: map[string][]int{}}
		f.pools[name] = p
	}
	p.byModel = p.byModel || byModel
	p.nodes = append(p.nodes, n)
	p.Nodes[n.Model]++
	p.Now += f.price(n)
	f.of[n.Name] = p
}

// daemons adds what runs on every VM of a pool: DaemonSets that run on one of its nodes, and, if
// they are not given, what they request.
func (f *divider) daemons(request bool) {
	for _, p := range f.pools {
		for _, d := range f.cluster.DaemonSets {
			if !slices.ContainsFunc(p.nodes, func(n cluster.Node) bool { return d.Nodes[n.Name] }) {
				continue
			}
			p.every = append(p.every, everywhere{"DaemonSet " + d.Name, d.Rules})
			if request {
				p.User.PerVM.Request = p.User.PerVM.Request.Add(d.Request)
				p.User.PerVM.Pods++
			}
		}
	}
}

// pods puts the pods into the pools of their nodes.
func (f *divider) pods() {
	statics := staticSets(f.cluster)
	staying := map[string]int{}
	for _, pod := range f.cluster.Pods {
		name := pod.Origin.Node
		p := f.of[name]
		switch {
		case name == "":
			f.fleet.Waiting++
		case p == nil && f.why[name] == "":
			f.fleet.Elsewhere++
		case p == nil:
			staying[f.why[name]]++
		case pod.Origin.Kind == "Node" && statics[staticName(pod)]:
			static := "static pod " + staticName(pod)
			if !slices.ContainsFunc(p.every, func(e everywhere) bool { return e.name == static }) {
				p.User.PerVM.Request = p.User.PerVM.Request.Add(pod.Request())
				p.User.PerVM.Pods++
				p.every = append(p.every, everywhere{static, pod.Rules})
			}
		default:
			p.on[name] = append(p.on[name], len(p.User.Pods))
			p.User.Pods = append(p.User.Pods, pod)
		}
	}
	for why, pods := range staying {
		f.fleet.Stay = append(f.fleet.Stay, Stay{Why: why, Pods: pods})
	}
}

// staying sums up the nodes that stay.
func (f *divider) staying() {
	for _, n := range f.cluster.Nodes {
		why := f.why[n.Name]
		if why == "" {
			continue
		}
		at := slices.IndexFunc(f.fleet.Stay, func(s Stay) bool { return s.Why == why })
		if at < 0 {
			at, f.fleet.Stay = len(f.fleet.Stay), append(f.fleet.Stay, Stay{Why: why})
		}
		s := &f.fleet.Stay[at]
		s.Nodes++
		price := f.price(n)
		if s.Price += price; price == 0 {
			s.Unpriced++
		}
	}
	slices.SortFunc(f.fleet.Stay, func(a, b Stay) int { return strings.Compare(a.Why, b.Why) })
}

// finish looks whether the pods can stay.
func (p *pool) finish(models cluster.Catalogue) Pool {
	if p.byModel {
		p.Unlimited = p.buyable(models, false).For(p.User)
	}
	p.legalSpreads()
	var start cluster.Plan
	for i, n := range p.nodes {
		vm := cluster.VM{ID: i, Model: slices.IndexFunc(p.Catalogue, func(m cluster.Model) bool { return m.Name == n.Model })}
		if vm.Model < 0 {
			return p.Pool
		}
		var used cluster.Resources
		m := p.Catalogue[vm.Model]
		for _, pod := range p.on[n.Name] {
			used = used.Add(p.User.Pods[pod].Request())
			if p.User.Pods[pod].Overhead != (cluster.Resources{}) {
				vm.Parts = append(vm.Parts, cluster.Part{Pod: pod, Container: -1})
			}
			for k := range p.User.Pods[pod].Containers {
				vm.Parts = append(vm.Parts, cluster.Part{Pod: pod, Container: k})
			}
		}
		if !used.Fits(m.Size) || m.Pods > 0 && len(p.on[n.Name]) > m.Pods || !p.apart(p.on[n.Name]) {
			return p.Pool
		}
		start.VMs = append(start.VMs, vm)
	}
	p.Start = &start
	return p.Pool
}

// apart reports whether the rules of the pods allow them on one VM.
func (p *pool) apart(pods []int) bool {
	var g cluster.Guests
	for _, i := range pods {
		if !g.Holds(int32(i), p.User.Pods[i].Rules, p.User.Limits) {
			return false
		}
		g.Add(int32(i), p.User.Pods[i].Rules)
	}
	return true
}
