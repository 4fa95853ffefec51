package pack

import "unnest.io/unnest/internal/plan/cluster"

// item is the smallest thing to place: a container, with the pod's overhead if it is the
// first; a whole pod that must not be split; or containers that must stay together.
type item struct {
	pod        int32
	overhead   bool
	rules      *cluster.Rules // of the pod; nil: none
	containers []int32
	req        cluster.Resources
}

// Groups returns a group number for each container of a pod. Containers with equal
// numbers stay on one VM. A nil slice puts every container into a group of its own.
type Groups func(pod int) []int

// itemSet is all items of a user, sorted by pod.
type itemSet struct {
	user  cluster.User
	items []item
	first []int32 // item of each pod, and the number of items
	of    []int32 // item of each container, by start
	start []int32 // index in of, by pod

	ruled bool // some pods have rules
}

func newItems(u cluster.User, groups Groups) *itemSet {
	s := &itemSet{user: u}
	var sequence []int32
	for pod, p := range u.Pods {
		for k := len(sequence); k < len(p.Containers); k++ {
			sequence = append(sequence, int32(k))
		}
		var group []int // of each container; nil: a group of its own
		switch {
		case p.Whole:
			group = make([]int, len(p.Containers))
		case groups != nil:
			group = groups(pod)
		}
		s.start = append(s.start, int32(len(s.of)))
		s.first = append(s.first, int32(len(s.items)))
		s.addPod(pod, group, sequence)
		s.ruled = s.ruled || !p.Rules.None()
	}
	s.first = append(s.first, int32(len(s.items)))
	return s
}

// addPod appends the items of a pod. Items of one container share the memory of sequence,
// which is 0, 1, 2 and so on.
func (s *itemSet) addPod(pod int, group []int, sequence []int32) {
	p := s.user.Pods[pod]
	from, rules := len(s.items), p.Rules
	if rules.None() {
		rules = nil
	}
	known := map[int]int32{} // group -> item
	for k, c := range p.Containers {
		u := int32(len(s.items))
		if group != nil {
			if first, ok := known[group[k]]; ok {
				u = first
			}
			known[group[k]] = u
		}
		if int(u) == len(s.items) {
			s.items = append(s.items, item{pod: int32(pod), rules: rules, containers: sequence[k : k : k+1]})
		}
		i := &s.items[u]
		i.containers = append(i.containers, int32(k))
		i.req = i.req.Add(c.Request)
		s.of = append(s.of, u)
	}
	if from == len(s.items) {
		s.items = append(s.items, item{pod: int32(pod), rules: rules})
	}
	s.items[from].overhead = true
	s.items[from].req = s.items[from].req.Add(p.Overhead)
}

func (s *itemSet) podItems(pod int32) []int32 { return numbers(s.first[pod], s.first[pod+1]) }

func (s *itemSet) all() []int32 { return numbers(0, int32(len(s.items))) }

func numbers(from, to int32) []int32 {
	list := make([]int32, to-from)
	for i := range list {
		list[i] = from + int32(i)
	}
	return list
}

func (s *itemSet) alone(u int32) bool {
	pod := s.items[u].pod
	return s.first[pod+1]-s.first[pod] == 1
}

func (s *itemSet) parts(u int32) []cluster.Part {
	item := s.items[u]
	var parts []cluster.Part
	pod := int(item.pod)
	if item.overhead && s.user.Pods[pod].Overhead != (cluster.Resources{}) {
		parts = append(parts, cluster.Part{Pod: pod, Container: -1})
	}
	for _, k := range item.containers {
		parts = append(parts, cluster.Part{Pod: pod, Container: int(k)})
	}
	return parts
}

func (s *itemSet) request(items []int32) cluster.Resources {
	var sum cluster.Resources
	for _, u := range items {
		sum = sum.Add(s.items[u].req)
	}
	return sum
}
