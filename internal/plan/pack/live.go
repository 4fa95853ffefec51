package pack

import (
	"cmp"
	"slices"

	"unnest/internal/plan/cluster"
)

// Live is a plan whose pods come and go. It names pods by their index in the user, and
// VMs by the order in which they were bought. A VM stays bought until Release.
type Live struct {
	*packing
	split   bool
	ranking ranking // of bins, most requested first
}

// NewLive returns a plan without VMs for the pods of a user. With split, a pod without
// room on any VM is placed on several, and containers migrate.
func NewLive(u cluster.User, c cluster.Catalogue, o Options, split bool) (*Live, error) {
	o, err := o.withDefaults(c)
	if err != nil {
		return nil, err
	}
	return &Live{packing: newPacking(newModelIndex(c), newItems(u, nil), o), split: split}, nil
}

// Bought returns how many VMs were bought so far.
func (l *Live) Bought() int { return len(l.bins) }

// Model returns the index of the VM's model, -1 once it is released.
func (l *Live) Model(vm int) int { return l.bins[vm].model }

// Empty reports whether nothing is on the VM.
func (l *Live) Empty(vm int) bool { return len(l.bins[vm].items) == 0 }

// Rate returns the price of all VMs, in billionths of a dollar for an hour.
func (l *Live) Rate() int64 { return l.cost }

// Release removes an empty VM.
func (l *Live) Release(vm int) {
	l.ranking.remove(vm)
	l.drop(vm)
}

// Remove removes a pod. VMs that become empty stay.
func (l *Live) Remove(pod int) {
	for _, u := range l.podItems(int32(pod)) {
		b := int(l.where[u])
		l.remove(u)
		l.rank(&l.ranking, b, l.requested)
	}
}

// Place places pods, biggest first, as Kubernetes does. A pod that no model holds is an
// error.
func (l *Live) Place(pods []int) error {
	biggest := slices.Clone(pods)
	slices.SortStableFunc(biggest, func(a, b int) int {
		return cmp.Compare(l.size(l.user.Pods[b].Request()), l.size(l.user.Pods[a].Request()))
	})
	for _, pod := range biggest {
		if err := l.place(int32(pod)); err != nil {
			return err
		}
	}
	return nil
}

// place puts a pod on a bought VM, or on several, or buys VMs.
func (l *Live) place(pod int32) error {
	req := l.user.Pods[pod].Request()
	if b := l.ranking.first(req, nil); b >= 0 {
		l.putPod(pod, b)
		l.rank(&l.ranking, b, l.requested)
		return nil
	}
	if l.split && l.share(pod) {
		return nil
	}
	model := l.cheapest(req, 1)
	if model < 0 {
		return tooLarge(l.user.Pods[pod])
	}
	for _, b := range l.buyFor(pod, model, l.split) {
		l.rank(&l.ranking, b, l.requested)
	}
	return nil
}

// share puts the items of a pod, biggest first, on the most requested bought VMs, if
// all of them have room on the host of the first.
func (l *Live) share(pod int32) bool {
	items := l.smallestFirst(l.podItems(pod))
	host := -1
	for i, u := range slices.Backward(items) {
		b := l.ranking.first(l.items[u].req, func(b int) bool { return host < 0 || l.bins[b].host == host })
		if b < 0 {
			for _, back := range items[i+1:] {
				b := int(l.where[back])
				l.remove(back)
				l.rank(&l.ranking, b, l.requested)
			}
			return false
		}
		host = l.bins[b].host
		l.put(u, b)
		l.rank(&l.ranking, b, l.requested)
	}
	return true
}

// Migrate empties the VMs that waste most onto others, as long as it moves no more than
// most containers, and returns how many it moved. It does nothing without split.
func (l *Live) Migrate(most int) (moved int) {
	if !l.split {
		return 0
	}
	for _, b := range l.emptying() {
		count := 0
		for _, u := range l.bins[b].items {
			count += len(l.items[u].containers)
		}
		if count > 0 && count <= most-moved && l.evacuate(b) {
			moved += count
		}
	}
	return moved
}

// evacuate moves all items of a bin to bought VMs that have something on them, or
// none.
func (l *Live) evacuate(b int) bool {
	l.ranking.remove(b)
	defer func() { l.rank(&l.ranking, b, l.requested) }()
	items := l.smallestFirst(l.bins[b].items)
	for i, u := range slices.Backward(items) {
		reachable := l.reachable(u)
		t := l.ranking.first(l.items[u].req, func(t int) bool {
			return len(l.bins[t].items) > 0 && (reachable == nil || reachable(t))
		})
		if t < 0 {
			for _, back := range items[i+1:] {
				t := int(l.where[back])
				l.move(back, b)
				l.rank(&l.ranking, t, l.requested)
			}
			return false
		}
		l.move(u, t)
		l.rank(&l.ranking, t, l.requested)
	}
	return true
}
