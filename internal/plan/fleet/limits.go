package fleet

import (
	"fmt"
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
)

// everywhere is pods of which one runs on each VM.
type everywhere struct {
	name  string
	rules *cluster.Rules
}

// limit sets the limits of the pool's VMs, less what runs on each. The nodes are those of the
// cluster: a model may be bought that another pool has.
func (p *pool) limit(all []cluster.Limit, nodes []cluster.Node) {
	p.User.Limits = slices.Clone(all)
	least := func(of func(cluster.Node) int64) (least int64) {
		for _, n := range nodes {
			if has := of(n); has > 0 && (least == 0 || has < least) {
				least = has
			}
		}
		return least
	}
	for i := range p.User.Limits {
		l := &p.User.Limits[i]
		switch i {
		case cluster.StorageLimit:
			l.Most, l.Legal = least(func(n cluster.Node) int64 { return n.Storage }), 0
			for _, n := range nodes {
				l.Legal = max(l.Legal, n.Storage)
			}
		case cluster.VolumeLimit:
			if l.Most = least(func(n cluster.Node) int64 { return n.Volumes }); l.Most == 0 {
				l.Most = p.mostToday(cluster.VolumeLimit)
			}
		default:
			if p.hasAll(l.Nodes) {
				l.Nodes = nil
			}
		}
		for _, e := range p.every {
			if taken := e.rules.Amount(int32(i)); taken > 0 {
				l.Most = max(0, l.Most-taken)
				l.Nodes = map[string]bool{} // it counts on VMs that the plan does not know
			}
		}
	}
}

// mostToday returns the most that the pods on a node take of a limit.
func (p *pool) mostToday(limit int32) (most int64) {
	for _, pods := range p.on {
		var sum int64
		for _, i := range pods {
			sum += p.User.Pods[i].Rules.Amount(limit)
		}
		most = max(most, sum)
	}
	return most
}

func (p *pool) hasAll(nodes map[string]bool) bool {
	has := 0
	for _, n := range p.nodes {
		if nodes[n.Name] {
			has++
		}
	}
	return has == len(nodes)
}

// unplaceable adds the nodes of pods that no VM of a plan could have, with the reason.
func (p *pool) unplaceable(stays map[string]string) {
	for name, pods := range p.on {
		for _, i := range pods {
			if why := p.unfit(p.User.Pods[i]); why != "" {
				stays[name] = why
				break
			}
		}
	}
}

// unfit returns why no VM of a plan could have the pod; empty: one could.
func (p *pool) unfit(pod cluster.Pod) string {
	if pod.Rules.None() {
		return ""
	}
	for _, e := range p.every {
		if e.rules.Clash(pod.Rules) {
			return fmt.Sprintf("a pod on it may not share a VM with %s, which plans put on each", e.name)
		}
	}
	if limit := pod.Rules.Exceeds(p.User.Limits); limit != "" {
		return "a pod on it takes more than the nodes of the pool are known to have: " + limit
	}
	return ""
}

// legalSpreads sets how many pods of a spread a VM may have in any legal placement. A VM has at
// most Skew more than the VM with the fewest, which has at most the mean.
func (p *pool) legalSpreads() {
	vms := p.leastVMs()
	for i := range p.User.Limits {
		l := &p.User.Limits[i]
		if l.Skew == 0 || l.Total == cluster.Unlimited {
			continue
		}
		total := l.Total
		for _, pod := range p.User.Pods {
			if !pod.Whole && pod.Rules.Amount(int32(i)) > 0 {
				total += int64(max(0, len(pod.Containers)-1)) // each part of it counts
			}
		}
		l.Legal = max(l.Most, l.Skew+total/vms)
	}
}

// leastVMs returns how many VMs the pods of the pool need at least, from 1.
func (p *pool) leastVMs() int64 {
	var sum, largest cluster.Resources
	for _, pod := range p.User.Pods {
		sum = sum.Add(pod.Request())
	}
	for _, m := range slices.Concat(p.Catalogue, p.Unlimited) {
		largest = largest.Max(m.Size)
	}
	least := int64(1)
	if largest.CPU > 0 && largest.Memory > 0 {
		least = max(least, (sum.CPU-1)/largest.CPU+1, (sum.Memory-1)/largest.Memory+1)
	}
	return least
}
