package pack

import (
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
)

// Live is a plan with pods that come and go. It numbers pods by their index in the user, and
// VMs in the order of purchase. A VM stays bought until Release.
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
		l.transfer(u, -1)
	}
}

// transfer moves an item to a bin, or to none for b below 0.
func (l *Live) transfer(u int32, b int) {
	if from := int(l.where[u]); from >= 0 {
		l.remove(u)
		l.rank(&l.ranking, from, l.requested)
	}
	if b >= 0 {
		l.put(u, b)
		l.rank(&l.ranking, b, l.requested)
	}
}

// transferAll moves items, biggest first, each to the bin that find returns. If there is none,
// it moves all back to a bin, or to none, and returns false.
func (l *Live) transferAll(items []int32, back int, find func(u int32) int) bool {
	items = l.smallestFirst(items)
	for i, u := range slices.Backward(items) {
		b := find(u)
		if b < 0 {
			for _, moved := range items[i+1:] {
				l.transfer(moved, back)
			}
			return false
		}
		l.transfer(u, b)
	}
	return true
}

// Place places the pods with indices from from to to, biggest first, as Kubernetes does. A pod
// that no model holds is an error.
func (l *Live) Place(from, to int) error {
	for _, pod := range l.biggestFirst(from, to) {
		if err := l.place(pod); err != nil {
			return err
		}
	}
	return nil
}

// place puts a pod on a bought VM, or on several, or buys VMs.
func (l *Live) place(pod int32) error {
	req := l.user.Pods[pod].Request()
	if b := l.ranking.first(req, l.joins(l.first[pod])); b >= 0 {
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

// share puts the items of a pod on the most requested bought VMs, if all of them have room on
// the host of the first.
func (l *Live) share(pod int32) bool {
	host := -1
	return l.transferAll(l.podItems(pod), -1, func(u int32) int {
		b := l.ranking.first(l.items[u].req, both(l.joins(u), func(b int) bool { return host < 0 || l.bins[b].host == host }))
		if b >= 0 {
			host = l.bins[b].host
		}
		return b
	})
}

// Migrate empties the VMs that waste most. It moves at most so many containers, and returns how
// many it moved. It does nothing without split.
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

// evacuate moves all items of a bin to bins that are not empty, or none.
func (l *Live) evacuate(b int) bool {
	return l.transferAll(l.bins[b].items, b, func(u int32) int {
		reachable := l.reachable(u)
		return l.ranking.first(l.items[u].req, func(t int) bool {
			return t != b && !l.Empty(t) && (reachable == nil || reachable(t))
		})
	})
}
