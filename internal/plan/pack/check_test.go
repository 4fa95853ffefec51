package pack

import (
	"errors"
	"fmt"
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
)

// Check returns what is wrong with a plan: a VM above its capacity or its number of
// pods, an unknown model, host or part, a container that is there twice or not at
// all, an overhead likewise or without its pod's first container, a whole pod on two
// VMs, fractions of a pod on two hosts, a host above its capacity, an ID that is
// there twice. It returns all of it, one line each, nil if nothing is wrong. It shares no
// code with the planners, and is called on every plan.
func Check(u cluster.User, c cluster.Catalogue, plan cluster.Plan, o Options) error {
	k := checker{user: u, catalogue: c, host: o.Host, ids: map[int]bool{}, hosts: map[int]cluster.Resources{}}
	k.seen = make([][]int, len(u.Pods))
	k.overhead = make([]int, len(u.Pods))
	k.on = make([]map[int]int, len(u.Pods))
	for i, p := range u.Pods {
		k.seen[i], k.on[i] = make([]int, len(p.Containers)), map[int]int{}
	}
	for i, vm := range plan.VMs {
		k.vm(i, vm)
	}
	for i := range u.Pods {
		k.pod(i)
	}
	for host, taken := range k.hosts {
		if o.Host != (cluster.Resources{}) && !taken.Fits(o.Host) {
			k.fail("host %d holds VMs of %s: it has %s", host, taken, o.Host)
		}
	}
	return errors.Join(k.wrong...)
}

// CheckImproved returns an error unless the plan costs at most as much as the one it
// improves, and its cost is the sum over its VMs.
func CheckImproved(c cluster.Catalogue, before, after Outcome) error {
	for _, o := range []Outcome{before, after} {
		if sum := Cost(o.Plan, c); sum != o.Cost {
			return fmt.Errorf("the cost of a plan is given as %d: its VMs cost %d", o.Cost, sum)
		}
	}
	if after.Cost > before.Cost {
		return fmt.Errorf("the improved plan costs %d: the one before costs %d", after.Cost, before.Cost)
	}
	return nil
}

// Cost returns the price of all VMs, in billionths of a dollar for an hour.
func Cost(p cluster.Plan, c cluster.Catalogue) int64 {
	var sum int64
	for _, vm := range p.VMs {
		sum += c[vm.Model].Price
	}
	return sum
}

type checker struct {
	user      cluster.User
	catalogue cluster.Catalogue
	host      cluster.Resources
	ids       map[int]bool
	hosts     map[int]cluster.Resources
	seen      [][]int       // how often each container is there
	overhead  []int         // how often each overhead is there
	on        []map[int]int // VMs of each pod, and their hosts
	wrong     []error
}

func (k *checker) fail(format string, args ...any) {
	k.wrong = append(k.wrong, fmt.Errorf(format, args...))
}

func (k *checker) vm(i int, vm cluster.VM) {
	if vm.Model < 0 || vm.Model >= len(k.catalogue) {
		k.fail("VM %d has model %d: the catalogue has %d", vm.ID, vm.Model, len(k.catalogue))
		return
	}
	if k.ids[vm.ID] {
		k.fail("VM %d is there twice", vm.ID)
	}
	k.ids[vm.ID] = true
	model := k.catalogue[vm.Model]
	k.hosts[vm.Host] = k.hosts[vm.Host].Add(model.Taken())
	var used cluster.Resources
	pods := map[int]bool{}
	first := map[int]bool{} // pods whose first container is here
	for _, part := range vm.Parts {
		req, ok := k.part(vm, part)
		if !ok {
			continue
		}
		used = used.Add(req)
		pods[part.Pod] = true
		first[part.Pod] = first[part.Pod] || part.Container == 0
		k.on[part.Pod][i] = vm.Host
	}
	k.rules(vm, pods)
	for _, part := range vm.Parts {
		if part.Container < 0 && part.Pod >= 0 && part.Pod < len(k.user.Pods) && len(k.user.Pods[part.Pod].Containers) > 0 && !first[part.Pod] {
			k.fail("VM %d has the overhead of pod %s without its first container", vm.ID, k.user.Pods[part.Pod].Name)
		}
	}
	if !used.Fits(model.Size) {
		k.fail("VM %d holds %s: a %s has %s", vm.ID, used, model.Name, model.Size)
	}
	if model.Pods > 0 && len(pods) > model.Pods {
		k.fail("VM %d holds %d pods: a %s may have %d", vm.ID, len(pods), model.Name, model.Pods)
	}
}

// rules checks what the pods on a VM demand of it.
func (k *checker) rules(vm cluster.VM, pods map[int]bool) {
	taken := map[int32]int64{}
	for pod := range pods {
		rules := k.user.Pods[pod].Rules
		if rules == nil {
			continue
		}
		for _, t := range rules.Takes {
			taken[t.Limit] += t.Amount
		}
		for other := range pods {
			has := k.user.Pods[other].Rules
			if other == pod || has == nil {
				continue
			}
			for _, n := range rules.Forbids {
				if slices.Contains(has.Has, n) {
					k.fail("VM %d holds pods %s and %s: they must be apart", vm.ID, k.user.Pods[other].Name, k.user.Pods[pod].Name)
				}
			}
		}
	}
	for limit, amount := range taken {
		if l := k.user.Limits[limit]; amount > l.Most {
			k.fail("VM %d: its pods take %d of %s: want at most %d", vm.ID, amount, l.Name, l.Most)
		}
	}
}

// part counts a part, and returns what it requests.
func (k *checker) part(vm cluster.VM, part cluster.Part) (cluster.Resources, bool) {
	if part.Pod < 0 || part.Pod >= len(k.user.Pods) || part.Container < -1 || part.Container >= len(k.user.Pods[part.Pod].Containers) {
		k.fail("VM %d has container %d of pod %d: the user has no such", vm.ID, part.Container, part.Pod)
		return cluster.Resources{}, false
	}
	p := k.user.Pods[part.Pod]
	if part.Container < 0 {
		k.overhead[part.Pod]++
		return p.Overhead, true
	}
	k.seen[part.Pod][part.Container]++
	return p.Containers[part.Container].Request, true
}

func (k *checker) pod(i int) {
	p := k.user.Pods[i]
	for j, times := range k.seen[i] {
		if times != 1 {
			k.fail("container %s of pod %s is there %d times: want once", p.Containers[j].Name, p.Name, times)
		}
	}
	want := 1
	if p.Overhead == (cluster.Resources{}) {
		want = 0
	}
	if k.overhead[i] != want {
		k.fail("the overhead of pod %s is there %d times: want %d", p.Name, k.overhead[i], want)
	}
	if p.Whole && len(k.on[i]) > 1 {
		k.fail("pod %s must not be split: it is on %d VMs", p.Name, len(k.on[i]))
	}
	hosts := map[int]bool{}
	for _, host := range k.on[i] {
		hosts[host] = true
	}
	if len(hosts) > 1 {
		k.fail("pod %s has fractions on %d hosts: want one", p.Name, len(hosts))
	}
}
