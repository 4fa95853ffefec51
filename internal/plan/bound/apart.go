package bound

import (
	"cmp"
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
)

// maxApart limits the inequalities for pods that must be apart: each makes the search for whole
// VMs slower.
const maxApart = 32

// choice is that VMs of the offers with true hold count pods, of which each holds at most most.
type choice struct {
	offers []bool
	count  int64
	most   int64
}

// implies reports whether VMs that satisfy a satisfy b.
func (a choice) implies(b choice) bool {
	return a.count >= b.count && a.most <= b.most && includes(b.offers, a.offers)
}

func includes(all, some []bool) bool {
	for i, has := range some {
		if has && !all[i] {
			return false
		}
	}
	return true
}

// apart returns inequalities for pods of which a VM holds only some: those that have what they
// forbid each other, of which it holds one, and those that take from a limit (cluster.Rules). The
// largest parts of k such pods are on VMs of offers that hold one of these parts. There is an
// inequality for all pods of a kind, and one for those of them that need the same offers or fewer.
// The pods of leftOut do not count.
func (p *relaxation) apart(u cluster.User, whole bool, leftOut []int) []inequality {
	type kind struct {
		limit bool
		n     int32
	}
	groups := map[kind][][]bool{} // the offers of each pod
	taken := make([]int64, len(u.Limits))
	out := map[int]bool{}
	for _, i := range leftOut {
		out[i] = true
	}
	for i, pod := range u.Pods {
		parts := indivisible(pod, whole)
		if pod.Rules.None() || len(parts) == 0 || out[i] {
			continue
		}
		fit := make([]bool, len(p.offers))
		for m, o := range p.offers {
			fit[m] = parts[0].fits(o.size)
		}
		for _, n := range pod.Rules.Has {
			if slices.Contains(pod.Rules.Forbids, n) {
				groups[kind{n: n}] = append(groups[kind{n: n}], fit)
			}
		}
		for _, t := range pod.Rules.Takes {
			taken[t.Limit] += t.Amount
			if t.Amount == 1 {
				groups[kind{true, t.Limit}] = append(groups[kind{true, t.Limit}], fit)
			}
		}
	}
	var all []choice
	for k, pods := range groups {
		most := int64(1)
		if k.limit {
			most = u.Limits[k.n].Legal
		}
		if most > 0 && most < int64(len(pods)) {
			all = append(all, choices(pods, len(p.offers), most)...)
		}
	}
	for i, l := range u.Limits {
		if l.Legal > 0 && taken[i] > l.Legal {
			all = append(all, choice{slices.Repeat([]bool{true}, len(p.offers)), taken[i], l.Legal})
		}
	}
	slices.SortFunc(all, func(a, b choice) int {
		return cmp.Or(cmp.Compare(b.vms(), a.vms()), cmp.Compare(b.count, a.count), cmp.Compare(a.most, b.most), slices.CompareFunc(a.offers, b.offers, compareBools))
	})
	var needed []choice
	for i, c := range all {
		implied := func(by choice) bool { return by.implies(c) }
		if c.vms() > 1 && !slices.ContainsFunc(needed, implied) && !slices.ContainsFunc(all[i+1:], implied) {
			needed = append(needed, c)
		}
	}
	var rows []inequality
	for _, c := range needed[:min(len(needed), maxApart)] {
		rows = append(rows, c.inequality())
	}
	return rows
}

// vms returns the least number of VMs.
func (a choice) vms() int64 { return (a.count-1)/a.most + 1 }

// choices returns what pods of a kind need, of which a VM holds most, and each can be on the
// offers with true.
func choices(pods [][]bool, offers int, most int64) []choice {
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
		c := choice{offers: kind, most: most}
		for _, fit := range pods {
			if includes(kind, fit) {
				c.count++
			}
		}
		if c.count > 0 {
			all = append(all, c)
		}
	}
	return all
}

func (a choice) inequality() inequality {
	q := inequality{total: a.count, most: make([]int64, len(a.offers))}
	for m, has := range a.offers {
		if has {
			q.most[m] = a.most
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
