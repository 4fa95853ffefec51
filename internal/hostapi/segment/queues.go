package segment

import "slices"

// Queues is the order that the queues of a multi-queue TAP have in the kernel, one
// per fraction: a new one becomes the last, and the last moves into the place of
// one that goes (tun_attach and __tun_detach in the kernel's drivers/net/tun.c).
// The zero value has no queues.
type Queues struct {
	order []Fraction // by the queue's index
}

// Attach appends the queue of a fraction that has none, and returns its index.
func (q *Queues) Attach(f Fraction) int {
	q.order = append(q.order, f)
	return len(q.order) - 1
}

// Move is what becomes of the last queue when another goes.
type Move struct {
	Fraction Fraction // whose queue moves; 0 when none does
	From, To int

	// Either is a number that the kernel takes for From until the queue has
	// moved, and for To from then on. A steering program's answer is taken
	// modulo the number of queues, which is From+1 before and From after: Either
	// has the remainders From and To. The other queues keep their index, which
	// is less than either number.
	Either int
}

// Detach removes the queue of f and returns what moves for it. It reports false,
// and does nothing, if f has none.
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

// Detaching is what Detach would return.
func (q *Queues) Detaching(f Fraction) (Move, bool) {
	to, ok := q.Index(f)
	from := len(q.order) - 1
	if !ok || to == from {
		return Move{}, ok
	}
	return Move{Fraction: q.order[from], From: from, To: to, Either: from + to*(from+1)}, true
}

// Index is the index of a fraction's queue; false when it has none.
func (q *Queues) Index(f Fraction) (int, bool) {
	i := slices.Index(q.order, f)
	return i, i >= 0
}

// Members are the fractions that have queues.
func (q *Queues) Members() Set { return Of(q.order...) }

// Len is the number of queues.
func (q *Queues) Len() int { return len(q.order) }
