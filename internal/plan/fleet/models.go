package fleet

import (
	"cmp"
	"slices"
	"strings"

	"unnest.io/unnest/internal/plan/catalogue"
	"unnest.io/unnest/internal/plan/cluster"
)

// allocatable returns what models leave for pods: those that the cluster has, what the least of
// their nodes leaves; others, what the reservation leaves of the memory that VMs really offer.
// That is what the catalogue says, else the worst part of the nominal memory on any node. If a
// node takes fewer pods than the catalogue says, its kubelet was told so: then others take at most
// as many as any node.
func allocatable(models cluster.Catalogue, nodes []cluster.Node, reserve catalogue.Reserve) (cluster.Catalogue, error) {
	least := map[string]cluster.Node{}
	offered := 1.0
	for _, n := range nodes {
		if o, seen := least[n.Model]; seen {
			n.Allocatable.CPU = min(n.Allocatable.CPU, o.Allocatable.CPU)
			n.Allocatable.Memory = min(n.Allocatable.Memory, o.Allocatable.Memory)
			n.Pods = min(n.Pods, o.Pods)
		}
		least[n.Model] = n
		for _, m := range models {
			if m.Name == n.Model && n.Capacity.Memory > 0 {
				offered = min(offered, float64(n.Capacity.Memory)/float64(m.Taken().Memory))
			}
		}
	}
	real := make(cluster.Catalogue, len(models))
	for i, m := range models {
		real[i] = m
		real[i].Nominal = m.Taken()
		if m.Size.Memory == m.Taken().Memory {
			real[i].Size.Memory = int64(float64(m.Size.Memory) * offered)
		}
	}
	left, err := catalogue.Allocatable(real, reserve)
	if err != nil {
		return nil, err
	}
	most, fewer := 0, false // the most pods that a node takes; whether a node takes fewer than its model
	for _, n := range nodes {
		if n.Labels["kubernetes.io/os"] == "windows" { // they take fewer than nodes of pools do
			continue
		}
		most = max(most, n.Pods-reserve.DaemonPods)
		fewer = fewer || n.Pods > 0 && slices.ContainsFunc(left, func(m cluster.Model) bool {
			return m.Name == n.Model && (m.Pods == 0 || n.Pods-reserve.DaemonPods < m.Pods)
		})
	}
	for i, m := range left {
		n, seen := least[m.Name]
		if !seen && fewer && most > 0 && (m.Pods == 0 || most < m.Pods) {
			left[i].Pods = most
		}
		if !seen || n.Allocatable.CPU <= 0 || n.Allocatable.Memory <= 0 {
			continue
		}
		left[i].Size = n.Allocatable.Sub(reserve.DaemonSets) // the system's is off already
		if n.Pods > 0 {
			left[i].Pods = max(1, n.Pods-reserve.DaemonPods)
		}
	}
	return left, nil
}

// NotLarger returns the models that are not larger than the largest of the nodes' models.
func NotLarger(models cluster.Catalogue, nodes []cluster.Node) cluster.Catalogue {
	var most cluster.Resources
	for _, m := range models {
		if m.GPUs == 0 && slices.ContainsFunc(nodes, func(n cluster.Node) bool { return n.Model == m.Name }) {
			most = cluster.Resources{CPU: max(most.CPU, m.Size.CPU), Memory: max(most.Memory, m.Size.Memory)}
		}
	}
	return slices.DeleteFunc(slices.Clone(models), func(m cluster.Model) bool { return m.GPUs == 0 && !m.Size.Fits(most) })
}

// Region returns the region of a node; empty: unknown.
func Region(n cluster.Node) string {
	for _, label := range []string{"topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"} {
		if region := n.Labels[label]; region != "" {
			return region
		}
	}
	zone := n.Labels[poolLabels[0]]
	switch {
	case strings.HasPrefix(n.Provider, "aws:"):
		return strings.TrimRight(zone, "abcdefghijklmnopqrstuvwxyz") // us-east-1a; local zones have the label
	case strings.Contains(zone, "-"):
		return zone[:strings.LastIndex(zone, "-")] // us-central1-a, eastus-1
	}
	return ""
}

// Provider returns the reservation of the provider of the nodes, none if it is unknown.
func Provider(nodes []cluster.Node) catalogue.Reservation {
	for _, n := range nodes {
		switch {
		case strings.HasPrefix(n.Provider, "aws:"):
			return catalogue.ReserveEKS
		case strings.HasPrefix(n.Provider, "gce:"):
			return catalogue.ReserveGKE
		case strings.HasPrefix(n.Provider, "azure:"):
			return catalogue.ReserveAKS
		}
	}
	return catalogue.ReserveNothing
}

// buyable returns the models that the pool may have, at its prices: those of its architecture, or
// only those that it has.
func (p *pool) buyable(models cluster.Catalogue, only bool) (left cluster.Catalogue) {
	arch := p.nodes[0].Labels[archLabel]
	for _, m := range models {
		if p.Spot {
			m.Price = m.Spot
		}
		same := cmp.Or(m.Arch, amd64) == cmp.Or(arch, amd64)
		if (same && !only || p.Nodes[m.Name] > 0) && (!p.Spot || m.Spot > 0) {
			left = append(left, m)
		}
	}
	return left
}
