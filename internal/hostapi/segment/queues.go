package segment

import "slices"

// Queues is the order of a multi-queue TAP's queues in the kernel, one per fraction. A
// new queue becomes the last; when a queue is removed, the last queue takes its place
// (tun_attach and __tun_detach in the kernel's drivers/net/tun.c). The zero value has no
// queues.
type Queues struct {
	order []Fraction // by the queue's index
}

// Attach appends the queue of a fraction that has none, and returns its index.
func (q *Queues) Attach(f Fraction) int {
	q.order = append(q.order, f)
	return len(q.order) - 1
}

// Move is how the last queue moves when another is removed.
type Move struct {
	Fraction Fraction // of the queue that moves; 0 if none does
	From, To int

	// Either stands for From until the queue has moved, and for To after that. The
	// kernel takes the answer of a steering program modulo the number of queues, which
	// is From+1 before and From after: Either has the remainders From and To. The other
	// queues keep their index, which is less than either number.
	Either int
}

// Detach removes the queue of f and returns the move that follows. If f has no queue,
// it does nothing and returns false.
func (q *Queues) Detach(f Fraction) (Move, bool) {
	m, ok := q.Detaching(f)
	if !ok {
		return m, false
	}
	last := len(q.order) - 1
	if m.Fraction != 0 {
		q.order[m.To] = m.Fraction
	}
	q.order = q.order[:last]
	return m, true
}

// Detaching returns what Detach would return.
func (q *Queues) Detaching(f Fraction) (Move, bool) {
	to, ok := q.Index(f)
	from := len(q.order) - 1
	if !ok || to == from {
		return Move{}, ok
	}
	return Move{Fraction: q.order[from], From: from, To: to, Either: from + to*(from+1)}, true
}

// Index returns the index of a fraction's queue; false if it has none.
func (q *Queues) Index(f Fraction) (int, bool) {
	i := slices.Index(q.order, f)
	return i, i >= 0
}

// Members returns the fractions that have queues.
func (q *Queues) Members() Set { return Of(q.order...) }

// Len returns the number of queues.
func (q *Queues) Len() int { return len(q.order) }
