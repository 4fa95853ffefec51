// Package turns lets tenants change the host's network one at a time. The tenant that has used the least time recently
// goes first. The kernel, too, makes such changes one at a time, behind the locks of rtnetlink and nftables, but in the order
// in which they come: the others would wait behind each change of a tenant that makes many.
//
// What is changed does not belong here.
package turns

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"time"
)

// patience is how often attaches above the rate, and commits, of a tenant have a turn whoever waits.
const patience = 100 * time.Millisecond

// memory is the time after which the time that a tenant has used counts for 1/e of it.
const memory = 2 * time.Second

// Turns is the order of the tenants. The zero value is ready. With nil Turns nobody waits.
type Turns struct {
	mu      sync.Mutex
	holder  *Turn
	waiting map[line]*queue
	used    map[string]need
	above   map[string]time.Time // until when guests are above their rates
}

// line is where turns of a tenant wait.
type line struct {
	tenant string
	kind   kind
}

// kind orders lines: those of the next one wait until nobody is in one of this kind.
type kind int

const (
	expired kind = iota - 1 // no line is for long: it has waited for its patience
	normal
	above // of guests above their rates
	commits
)

type queue struct {
	turns []*Turn   // the first one at the front
	since time.Time // when it last had a turn, or began
}

// need is how long a tenant has had turns, as it counted at a time.
type need struct {
	time time.Duration
	at   time.Time
}

func (n need) now(now time.Time) time.Duration {
	return time.Duration(float64(n.time) * math.Exp(-now.Sub(n.at).Seconds()/memory.Seconds()))
}

// Turn is a tenant's right to change the host's network. nil is a turn of nil Turns.
type Turn struct {
	line
	turns   *Turns
	begin   time.Time
	held    time.Duration
	granted chan struct{}
}

// Take waits for a turn of a tenant's guest, which ends with Done. Whoever waits for it must hold no lock that another tenant needs.
func (t *Turns) Take(tenant, guest string) *Turn {
	if t == nil {
		return nil
	}
	turn := &Turn{turns: t, line: line{tenant, t.kindOf(guest)}}
	turn.Yield()
	return turn
}

func (t *Turns) kindOf(guest string) kind {
	t.mu.Lock()
	defer t.mu.Unlock()
	if time.Now().Before(t.above[guest]) {
		return above
	}
	return normal
}

// Commit returns a turn of a tenant that Yield begins. It lets all others go first at each Yield, but for a step in
// 100 ms: it is for work of many steps for which no pod waits.
func (t *Turns) Commit(tenant string) *Turn {
	if t == nil {
		return nil
	}
	return &Turn{turns: t, line: line{tenant, commits}}
}

// Above says that a guest is above its rate: its turns that begin within d let all others but commits go first, but for a step
// of their tenant in 100 ms. A tenant within its rate may well have had more time.
func (t *Turns) Above(guest string, d time.Duration) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(t.above, func(_ string, until time.Time) bool { return !now.Before(until) })
	if t.above == nil {
		t.above = map[string]time.Time{}
	}
	if until := now.Add(d); until.After(t.above[guest]) {
		t.above[guest] = until
	}
}

// Yield lets tenants go first that have had less time than this one. Call it between two steps, under the
// conditions of Take.
func (t *Turn) Yield() {
	if t != nil {
		<-t.queue()
	}
}

// Done ends the turn. Yield begins it again. Done returns how long the turn has been, without the time of others after Yield.
func (t *Turn) Done() time.Duration {
	if t == nil {
		return 0
	}
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	t.turns.charge(t)
	t.turns.next()
	return t.held
}

// queue ends the time of the turn and queues it. It returns a channel that is closed when it is its turn.
func (t *Turn) queue() <-chan struct{} {
	all := t.turns
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.waiting == nil {
		all.waiting, all.used = map[line]*queue{}, map[string]need{}
	}
	all.charge(t)
	q := all.waiting[t.line]
	if q == nil {
		q = &queue{since: time.Now()}
		all.waiting[t.line] = q
	}
	place := 0 // before the tenant's own next turns
	if t.begin.IsZero() {
		place = len(q.turns)
	}
	t.granted = make(chan struct{})
	q.turns = slices.Insert(q.turns, place, t)
	all.next()
	return t.granted
}

// charge ends the time of the turn, if it is under way.
func (t *Turns) charge(turn *Turn) {
	if t.holder != turn {
		return
	}
	now := time.Now()
	turn.held += now.Sub(turn.begin)
	t.used[turn.tenant] = need{t.used[turn.tenant].now(now) + now.Sub(turn.begin), now}
	t.holder = nil
}

// next gives the turn, unless someone has it, to the first kind of line that waits, and there to the tenant that has had the least time.
func (t *Turns) next() {
	if t.holder != nil || len(t.waiting) == 0 {
		return
	}
	now := time.Now()
	kindNow := func(l line) kind {
		if l.kind != normal && now.Sub(t.waiting[l].since) >= patience {
			return expired
		}
		return l.kind
	}
	first := slices.MinFunc(slices.Collect(maps.Keys(t.waiting)), func(a, b line) int {
		return cmp.Or(cmp.Compare(kindNow(a), kindNow(b)), cmp.Compare(t.used[a.tenant].now(now), t.used[b.tenant].now(now)),
			cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.kind, b.kind))
	})
	q := t.waiting[first]
	t.holder = q.turns[0]
	if q.turns, q.since = q.turns[1:], now; len(q.turns) == 0 {
		delete(t.waiting, first)
	}
	t.holder.begin = now
	close(t.holder.granted)
}
