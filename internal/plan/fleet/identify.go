package fleet

import (
	"cmp"
	"fmt"
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
)

// kernelPart is the part of a VM's memory that a node may lack, because firmware and kernel have it.
const kernelPart = 0.15

// Identify returns the nodes with a model for those that name none, as in a private cloud: the
// smallest that has as many vCPUs, and the node's memory or little more. It also returns how many
// nodes got one.
func Identify(nodes []cluster.Node, models cluster.Catalogue) ([]cluster.Node, int) {
	smallest := slices.SortedStableFunc(slices.Values(models), func(a, b cluster.Model) int {
		return cmp.Or(cmp.Compare(a.Taken().Memory, b.Taken().Memory), cmp.Compare(a.Price, b.Price))
	})
	named, n := slices.Clone(nodes), 0
	for i, node := range named {
		at := slices.IndexFunc(smallest, func(m cluster.Model) bool {
			size := m.Taken()
			return size.CPU == node.Capacity.CPU && size.Memory >= node.Capacity.Memory && float64(size.Memory)*(1-kernelPart) <= float64(node.Capacity.Memory)
		})
		if node.Model == "" && at >= 0 {
			named[i].Model = smallest[at].Name
			n++
		}
	}
	return named, n
}

// Sizes returns the nodes with a model for those that name none, and these models, in the order of
// their names and without a price. Nodes with as many vCPUs and, to a hundredth of a GiB, as much
// memory are of one model.
func Sizes(nodes []cluster.Node) ([]cluster.Node, cluster.Catalogue) {
	named, sizes := slices.Clone(nodes), map[string]cluster.Resources{}
	for i, node := range named {
		if node.Model != "" || node.Capacity.CPU <= 0 || node.Capacity.Memory <= 0 {
			continue
		}
		name := fmt.Sprintf("%gvcpu-%.2fgib", float64(node.Capacity.CPU)/cluster.VCPU, float64(node.Capacity.Memory)/(1<<30))
		named[i].Model = name
		sizes[name] = cluster.Resources{CPU: node.Capacity.CPU, Memory: max(sizes[name].Memory, node.Capacity.Memory)}
	}
	var models cluster.Catalogue
	for name, size := range sizes {
		models = append(models, cluster.Model{Name: name, Size: size})
	}
	slices.SortFunc(models, func(a, b cluster.Model) int { return cmp.Compare(a.Name, b.Name) })
	return named, models
}
