package pack

import "unnest.io/unnest/internal/plan/cluster"

// together reports whether the rules allow the items on one VM.
func (s *itemSet) together(items []int32) bool {
	if !s.ruled {
		return true
	}
	var g cluster.Guests
	for _, u := range items {
		if i := s.items[u]; i.rules != nil {
			if !g.Holds(i.pod, i.rules, s.user.Limits) {
				return false
			}
			g.Add(i.pod, i.rules)
		}
	}
	return true
}

// joins returns a filter for the bins that an item may join, nil for all.
func (p *packing) joins(u int32) func(b int) bool {
	i := p.items[u]
	if i.rules == nil {
		return nil
	}
	return func(b int) bool { return p.bins[b].guests.Holds(i.pod, i.rules, p.user.Limits) }
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
