package pack

import (
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
)

// bundlePart is the part of the largest model that a bundle may take, so that little room is lost.
const bundlePart = 16

// Bundle returns the user with at most about so many containers, because equal containers of a
// pod are one container with the sum of their requests, and the number that is in one. A plan of
// it is a plan of the user, with the containers of each bundle on one VM. Pods that must not be
// split have one container. A user with fewer containers stays as it is. Links are left out.
func Bundle(u cluster.User, c cluster.Catalogue, most int) (cluster.User, int) {
	total := containers(u)
	if most <= 0 || total <= most {
		return u, 1
	}
	var limit cluster.Resources
	for _, m := range c {
		limit = cluster.Resources{CPU: max(limit.CPU, m.Size.CPU/bundlePart), Memory: max(limit.Memory, m.Size.Memory/bundlePart)}
	}
	b := bundler{limit: limit, most: (total + most - 1) / most}
	small := u
	small.Pods = slices.Clone(u.Pods)
	for i, p := range u.Pods {
		small.Pods[i].Containers, small.Pods[i].Links = b.pod(p), nil
	}
	return small, b.largest
}

type bundler struct {
	limit   cluster.Resources
	most    int // containers of a bundle
	largest int // number of containers in a bundle, but those of whole pods
}

func (b *bundler) pod(p cluster.Pod) []cluster.Container {
	if p.Whole && len(p.Containers) > 1 {
		one := cluster.Container{Name: p.Containers[0].Name}
		for _, c := range p.Containers {
			one.Request = one.Request.Add(c.Request)
		}
		return []cluster.Container{one}
	}
	counts := map[cluster.Resources]int{}
	var order []int // the first container of each size
	for k, c := range p.Containers {
		if counts[c.Request] == 0 {
			order = append(order, k)
		}
		counts[c.Request]++
	}
	var all []cluster.Container
	for _, k := range order {
		c := p.Containers[k]
		size := b.size(c.Request)
		for n := counts[c.Request]; n > 0; {
			for size > n {
				size /= bundleStep
			}
			all = append(all, cluster.Container{Name: c.Name, Request: cluster.Resources{CPU: c.Request.CPU * int64(size), Memory: c.Request.Memory * int64(size)}})
			n -= size
			b.largest = max(b.largest, size)
		}
	}
	return all
}

// bundleStep divides the size of a bundle by that of the next smaller one, so that bundles have
// few sizes.
const bundleStep = 4

// size returns the number of containers in the largest bundles.
func (b *bundler) size(r cluster.Resources) int {
	size := 1
	for size < b.most {
		if !(cluster.Resources{CPU: r.CPU * int64(size*bundleStep), Memory: r.Memory * int64(size*bundleStep)}).Fits(b.limit) {
			break
		}
		size *= bundleStep
	}
	return size
}

func containers(u cluster.User) (n int) {
	for _, p := range u.Pods {
		n += len(p.Containers)
	}
	return n
}

// Splittable reports whether a pod of the user may be on several VMs.
func Splittable(u cluster.User) bool {
	return slices.ContainsFunc(u.Pods, func(p cluster.Pod) bool { return !p.Whole && len(p.Containers) > 1 })
}
