package pack

// apart is the pods on a VM that must not share it with others of their number
// (cluster.Pod.Apart): the pod of each number, and how many of its items are there. A nil apart
// is empty.
type apart map[int32]guest

type guest struct {
	pod   int32
	items int
}

// holds reports whether the item may join.
func (a apart) holds(u item) bool {
	if u.apart == 0 {
		return true
	}
	g, taken := a[u.apart]
	return !taken || g.pod == u.pod
}

func (a *apart) add(u item) {
	if u.apart == 0 {
		return
	}
	if *a == nil {
		*a = apart{}
	}
	(*a)[u.apart] = guest{u.pod, (*a)[u.apart].items + 1}
}

func (a apart) remove(u item) {
	if u.apart == 0 {
		return
	}
	if g := a[u.apart]; g.items > 1 {
		a[u.apart] = guest{g.pod, g.items - 1}
	} else {
		delete(a, u.apart)
	}
}

// together reports whether the items may share a VM.
func (s *itemSet) together(items []int32) bool {
	if !s.separate {
		return true
	}
	var a apart
	for _, u := range items {
		if !a.holds(s.items[u]) {
			return false
		}
		a.add(s.items[u])
	}
	return true
}

// joins returns a filter for the bins that an item may join, nil for all.
func (p *packing) joins(u int32) func(b int) bool {
	if p.items[u].apart == 0 {
		return nil
	}
	return func(b int) bool { return p.bins[b].apart.holds(p.items[u]) }
}

// both returns a filter for the bins that two filters accept. nil accepts all.
func both(a, b func(bin int) bool) func(bin int) bool {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	return func(bin int) bool { return a(bin) && b(bin) }
}
