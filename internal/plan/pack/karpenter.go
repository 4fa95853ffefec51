package pack

import (
	"cmp"
	"slices"

	"unnest/internal/plan/cluster"
)

// Karpenter returns the VMs that Karpenter would buy for a user's pods, after its consolidation
// (kubernetes-sigs/karpenter, pkg/controllers/provisioning/scheduling and disruption), at prices
// on demand and without rules but cluster.Pod.Rules. All pods must fit on a model: see Fit.
//
// Provisioning takes whole pods, the most CPU first, then the most memory. It adds each to the
// planned VM with the fewest pods whose pods together still fit on some model, else to a new one,
// and buys the cheapest model for each. Consolidation then removes VMs whose pods fit on the
// others and on at most one VM that costs less: of several VMs, the longest beginning of the list
// sorted by the number of pods, found by bisection, then of single VMs.
func Karpenter(u cluster.User, c cluster.Catalogue) cluster.Plan {
	k := &karpenter{modelIndex: newModelIndex(c), user: u}
	k.vms = k.provision(numbers(0, int32(len(u.Pods))))
	for k.budget = maxJoins; k.budget > 0; {
		slices.SortStableFunc(k.vms, func(a, b karpenterVM) int { return cmp.Compare(len(a.pods), len(b.pods)) })
		if !k.several() && !k.single() {
			break
		}
	}
	var plan cluster.Plan
	for i, vm := range k.vms {
		bought := cluster.VM{ID: i, Model: vm.model}
		for _, pod := range vm.pods {
			if u.Pods[pod].Overhead != (cluster.Resources{}) {
				bought.Parts = append(bought.Parts, cluster.Part{Pod: int(pod), Container: -1})
			}
			for n := range u.Pods[pod].Containers {
				bought.Parts = append(bought.Parts, cluster.Part{Pod: int(pod), Container: n})
			}
		}
		plan.VMs = append(plan.VMs, bought)
	}
	return plan
}

// Limits of consolidation. Karpenter considers 100 VMs together, and limits the time instead of
// the number of attempts to add a pod to a VM.
const (
	maxTogether = 100
	maxJoins    = 50_000_000
)

type karpenter struct {
	modelIndex
	user   cluster.User
	vms    []karpenterVM
	budget int // of attempts to add a pod to a VM
}

type karpenterVM struct {
	model  int
	pods   []int32
	used   cluster.Resources
	guests cluster.Guests
}

// join adds a pod if the function returns a model for the VM with it.
func (k *karpenter) join(vm *karpenterVM, pod int32, model func(cluster.Resources, int) int) bool {
	k.budget--
	used := vm.used.Add(k.user.Pods[pod].Request())
	m := model(used, len(vm.pods)+1)
	if m < 0 || !vm.guests.Holds(pod, k.user.Pods[pod].Rules, k.user.Limits) {
		return false
	}
	vm.model, vm.used, vm.pods = m, used, append(vm.pods, pod)
	vm.guests.Add(pod, k.user.Pods[pod].Rules)
	return true
}

// fixed returns the model if it holds the request of so many pods, else -1.
func (k *karpenter) fixed(model int) func(cluster.Resources, int) int {
	return func(r cluster.Resources, pods int) int {
		if m := k.catalogue[model]; r.Fits(m.Size) && (m.Pods == 0 || pods <= m.Pods) {
			return model
		}
		return -1
	}
}

// sorted returns pods with the most CPU first, then the most memory.
func (k *karpenter) sorted(pods []int32) []int32 {
	pods = slices.Clone(pods)
	slices.SortStableFunc(pods, func(a, b int32) int {
		x, y := k.user.Pods[a].Request(), k.user.Pods[b].Request()
		return cmp.Or(cmp.Compare(y.CPU, x.CPU), cmp.Compare(y.Memory, x.Memory))
	})
	return pods
}

func (k *karpenter) provision(pods []int32) (vms []karpenterVM) {
	for _, pod := range k.sorted(pods) {
		at := k.first(vms, pod, func(int) func(cluster.Resources, int) int { return k.cheapest })
		if at < 0 {
			at, vms = 0, slices.Insert(vms, 0, karpenterVM{})
			k.join(&vms[0], pod, k.cheapest)
		}
		for ; at+1 < len(vms) && len(vms[at].pods) > len(vms[at+1].pods); at++ { // keep them sorted by pods
			vms[at], vms[at+1] = vms[at+1], vms[at]
		}
	}
	return vms
}

// first adds a pod to the first VM that it joins, and returns the VM's index, -1 if there is none.
func (k *karpenter) first(vms []karpenterVM, pod int32, model func(vm int) func(cluster.Resources, int) int) int {
	for i := range vms {
		if k.join(&vms[i], pod, model(i)) {
			return i
		}
	}
	return -1
}

// several replaces the longest beginning of the VMs that it can.
func (k *karpenter) several() bool {
	low, high := 2, min(len(k.vms), maxTogether)
	var best []karpenterVM
	for low <= high {
		n := (low + high) / 2
		if left, ok := k.without(0, n); ok {
			best, low = left, n+1
		} else {
			high = n - 1
		}
	}
	if best != nil {
		k.vms = best
	}
	return best != nil
}

func (k *karpenter) single() bool {
	for i := 0; i < len(k.vms) && k.budget > 0; i++ {
		if left, ok := k.without(i, i+1); ok {
			k.vms = left
			return true
		}
	}
	return false
}

// without returns the VMs after those from one index to another are removed, if their pods fit on
// the others and on at most one new VM that costs less.
func (k *karpenter) without(from, to int) ([]karpenterVM, bool) {
	var pods, rest []int32
	var price int64
	for _, vm := range k.vms[from:to] {
		pods, price = append(pods, vm.pods...), price+k.catalogue[vm.model].Price
	}
	others := slices.Concat(k.vms[:from], k.vms[to:])
	for i := range others {
		others[i].pods, others[i].guests = slices.Clip(others[i].pods), k.guestsOf(others[i].pods)
	}
	for _, pod := range k.sorted(pods) {
		if k.first(others, pod, func(vm int) func(cluster.Resources, int) int { return k.fixed(others[vm].model) }) < 0 {
			rest = append(rest, pod)
		}
	}
	bought := k.provision(rest)
	if len(bought) > 1 || len(bought) == 1 && k.catalogue[bought[0].model].Price >= price {
		return nil, false
	}
	return append(others, bought...), true
}

func (k *karpenter) guestsOf(pods []int32) (g cluster.Guests) {
	for _, pod := range pods {
		g.Add(pod, k.user.Pods[pod].Rules)
	}
	return g
}
