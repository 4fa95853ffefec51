package reflector

import (
	"slices"

	"unnest.io/unnest/internal/hostapi/segment"
)

// queueOrder is the order of a multi-queue TAP's queues in the kernel, one per fraction. A
// new queue becomes the last; when a queue is removed, the last queue takes its place
// (tun_attach and __tun_detach in the kernel's drivers/net/tun.c). The zero value has no
// queues.
type queueOrder struct {
	order []segment.Fraction // by the queue's index
}

// attach appends the queue of a fraction that has none, and returns its index.
func (q *queueOrder) attach(f segment.Fraction) int {
	q.order = append(q.order, f)
	return len(q.order) - 1
}

// move is how the last queue moves when another is removed.
type move struct {
	fraction segment.Fraction // of the queue that moves; 0 if none does
	from, to int

	// either stands for from until the queue has moved, and for to after that. The
	// kernel takes the answer of a steering program modulo the number of queues, which
	// is from+1 before and from after: either has the remainders from and to. The other
	// queues keep their index, which is less than either number.
	either int
}

// detach removes the queue of f and returns the move that follows. If f has no queue,
// it does nothing and returns false.
func (q *queueOrder) detach(f segment.Fraction) (move, bool) {
	m, ok := q.detaching(f)
	if !ok {
		return m, false
	}
	last := len(q.order) - 1
	if m.fraction != 0 {
		q.order[m.to] = m.fraction
	}
	q.order = q.order[:last]
	return m, true
}

// detaching returns what detach would return.
func (q *queueOrder) detaching(f segment.Fraction) (move, bool) {
	to, ok := q.index(f)
	from := len(q.order) - 1
	if !ok || to == from {
		return move{}, ok
	}
	return move{fraction: q.order[from], from: from, to: to, either: from + to*(from+1)}, true
}

// index returns the index of a fraction's queue; false if it has none.
func (q *queueOrder) index(f segment.Fraction) (int, bool) {
	i := slices.Index(q.order, f)
	return i, i >= 0
}

// members returns the fractions that have queues.
func (q *queueOrder) members() segment.Set { return segment.Of(q.order...) }

// len returns the number of queues.
func (q *queueOrder) len() int { return len(q.order) }
