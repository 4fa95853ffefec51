package bound

import (
	"cmp"
	"slices"

	"unnest/internal/plan/cluster"
)

// maxApart limits the inequalities for pods that must be apart: each makes the search for whole
// VMs slower.
const maxApart = 32

// choice is that of at least count VMs of the offers with true.
type choice struct {
	offers []bool
	count  int64
}

// implies reports whether VMs that satisfy a satisfy b.
func (a choice) implies(b choice) bool {
	return a.count >= b.count && includes(b.offers, a.offers)
}

func includes(all, some []bool) bool {
	for i, has := range some {
		if has && !all[i] {
			return false
		}
	}
	return true
}

// apart returns inequalities for pods that must not share a VM (cluster.Pod.Apart). The largest
// parts of k such pods are on k VMs, of offers that hold one of these parts. There is an inequality
// for all pods with the same number, and one for those of them that need the same offers or
// fewer. The pods of leftOut do not count.
func (p *relaxation) apart(u cluster.User, whole bool, leftOut []int) []inequality {
	groups := map[int32][][]bool{} // the offers of each pod, by number
	for i, pod := range u.Pods {
		parts := indivisible(pod, whole)
		if pod.Apart == 0 || len(parts) == 0 || slices.Contains(leftOut, i) {
			continue
		}
		fit := make([]bool, len(p.offers))
		for m, o := range p.offers {
			fit[m] = parts[0].fits(o.size)
		}
		groups[pod.Apart] = append(groups[pod.Apart], fit)
	}
	var all []choice
	for _, pods := range groups {
		all = append(all, choices(pods, len(p.offers))...)
	}
	slices.SortFunc(all, func(a, b choice) int {
		return cmp.Or(cmp.Compare(b.count, a.count), slices.CompareFunc(a.offers, b.offers, compareBools))
	})
	var needed []choice
	for i, c := range all {
		implied := func(by choice) bool { return by.implies(c) }
		if c.count > 1 && !slices.ContainsFunc(needed, implied) && !slices.ContainsFunc(all[i+1:], implied) {
			needed = append(needed, c)
		}
	}
	var rows []inequality
	for _, c := range needed[:min(len(needed), maxApart)] {
		rows = append(rows, c.inequality())
	}
	return rows
}

// choices returns what pods with the same number need, of which each can be on the offers
// with true.
func choices(pods [][]bool, offers int) []choice {
	union := make([]bool, offers)
	kinds := [][]bool{union}
	for _, fit := range pods {
		for m, has := range fit {
			union[m] = union[m] || has
		}
		if !slices.ContainsFunc(kinds[1:], func(k []bool) bool { return slices.Equal(k, fit) }) {
			kinds = append(kinds, fit)
		}
	}
	var all []choice
	for _, kind := range kinds {
		c := choice{offers: kind}
		for _, fit := range pods {
			if includes(kind, fit) {
				c.count++
			}
		}
		all = append(all, c)
	}
	return all
}

func (a choice) inequality() inequality {
	q := inequality{total: a.count, most: make([]int64, len(a.offers))}
	for m, has := range a.offers {
		if has {
			q.most[m] = 1
		}
	}
	return q
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
