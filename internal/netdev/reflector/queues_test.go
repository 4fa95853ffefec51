package reflector

import (
	"math/rand/v2"
	"testing"

	"unnest.io/unnest/internal/hostapi/segment"
)

// driver is the array of drivers/net/tun.c, as the kernel changes it.
type driver struct {
	files  [segment.MaxFractions]segment.Fraction
	queues int
}

func (d *driver) attach(f segment.Fraction) {
	d.files[d.queues] = f
	d.queues++
}

func (d *driver) detach(f segment.Fraction) {
	for i := range d.queues {
		if d.files[i] == f {
			d.files[i] = d.files[d.queues-1]
			d.files[d.queues-1] = 0
			d.queues--
			return
		}
	}
}

// to is whose queue gets what the steering program answers so.
func (d *driver) to(answer int) segment.Fraction { return d.files[answer%d.queues] }

// The model is at every time as the driver is, and what a queue that moves is
// steered by names it before and after, as the others' indexes do.
func TestQueues(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var q queueOrder
	var d driver
	for step := range 20_000 {
		f := segment.Fraction(1 + r.IntN(segment.MaxFractions))
		if !q.members().Has(f) {
			d.attach(f)
			if i := q.attach(f); d.files[i] != f {
				t.Fatalf("step %d: fraction %d at %d, %v", step, f, i, d.files)
			}
		} else {
			detach(t, &q, &d, f)
		}
		if q.len() != d.queues || q.members().Len() != d.queues {
			t.Fatalf("step %d: %d queues, members %s, want %d", step, q.len(), q.members(), d.queues)
		}
		for f := segment.Fraction(1); f <= segment.MaxFractions; f++ {
			if i, ok := q.index(f); ok != q.members().Has(f) || ok && d.files[i] != f {
				t.Fatalf("step %d: fraction %d at %d, %v; want it as in %v", step, f, i, ok, d.files)
			}
		}
	}
}

func detach(t *testing.T, q *queueOrder, d *driver, f segment.Fraction) {
	t.Helper()
	m, ok := q.detaching(f)
	steer := map[segment.Fraction]int{}
	for other := range q.members().Without(f).All() {
		steer[other], _ = q.index(other)
	}
	if m.fraction != 0 {
		if steer[m.fraction] != m.from || m.either > 1<<16-1 {
			t.Fatalf("%+v, but fraction %d is at %d", m, m.fraction, steer[m.fraction])
		}
		steer[m.fraction] = m.either
	}
	arrive := func(when string) {
		for other, answer := range steer {
			if d.to(answer) != other {
				t.Fatalf("%s fraction %d went, with %+v: what is for %d comes to %d", when, f, m, other, d.to(answer))
			}
		}
	}
	arrive("before")
	d.detach(f)
	arrive("after")
	if again, done := q.detach(f); !ok || !done || again != m {
		t.Fatalf("Detaching: %+v, %v; Detach: %+v, %v", m, ok, again, done)
	}
	if i, there := q.index(m.fraction); m.fraction != 0 && (!there || i != m.to) {
		t.Fatalf("%+v, but then at %d, %v", m, i, there)
	}
	if m, ok := q.detach(f); ok || m != (move{}) {
		t.Fatalf("fraction %d again: %+v, %v", f, m, ok)
	}
}
