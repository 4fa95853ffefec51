package pack

import (
	"slices"

	"unnest/internal/plan/cluster"
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
	type open struct{ at, count int }
	of := map[cluster.Resources]open{} // the last bundle of equal containers
	var all []cluster.Container
	for _, c := range p.Containers {
		last, known := of[c.Request]
		if known && last.count < b.most {
			if sum := all[last.at].Request.Add(c.Request); sum.Fits(b.limit) {
				all[last.at].Request = sum
				of[c.Request] = open{last.at, last.count + 1}
				b.largest = max(b.largest, last.count+1)
				continue
			}
		}
		of[c.Request] = open{len(all), 1}
		all = append(all, c)
		b.largest = max(b.largest, 1)
	}
	return all
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
