// Package turns lets tenants change the host's network one at a time. The tenant that has used the least time recently
// goes first. The kernel, too, makes such changes one at a time, behind the locks of rtnetlink and nftables, but in the order
// in which they come: the others would wait behind each change of a tenant that makes many.
//
// What is changed does not belong here.
package turns

import (
	"math"
	"slices"
	"sync"
	"time"
)

// patience is how long a patient turn lets all others go first.
const patience = 100 * time.Millisecond

// memory is the time after which the time that a tenant has used counts for 1/e of it.
const memory = 2 * time.Second

// Turns is the order of the tenants. The zero value is ready. With nil Turns nobody waits.
type Turns struct {
	mu      sync.Mutex
	holder  *Turn
	waiting map[line][]*Turn // the first one at the front
	used    map[string]need
	above   map[string]time.Time // until when tenants are above their rate
}

// line is where turns of a tenant wait.
type line struct {
	tenant  string
	patient bool
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
	queued  time.Time
	begin   time.Time
	held    time.Duration
	granted chan struct{}
}

// Take waits for a turn of a tenant, which ends with Done. Whoever waits for it must hold no lock that another tenant needs.
func (t *Turns) Take(tenant string) *Turn {
	turn := t.Turn(tenant, false)
	turn.Yield()
	return turn
}

// Turn returns a turn of a tenant that Yield begins. A patient one lets all others go first for a while at each Yield: for work of
// many steps for which no pod waits.
func (t *Turns) Turn(tenant string, patient bool) *Turn {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return &Turn{turns: t, line: line{tenant, patient || time.Now().Before(t.above[tenant])}}
}

// Above says that a tenant is above its rate: its turns that begin within d are patient. A tenant within its rate may well have had more
// time.
func (t *Turns) Above(tenant string, d time.Duration) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.above == nil {
		t.above = map[string]time.Time{}
	}
	if until := time.Now().Add(d); until.After(t.above[tenant]) {
		t.above[tenant] = until
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
		all.waiting, all.used = map[line][]*Turn{}, map[string]need{}
	}
	all.charge(t)
	place := 0 // before the tenant's own next turns
	if t.begin.IsZero() {
		place = len(all.waiting[t.line])
	}
	t.granted, t.queued = make(chan struct{}), time.Now()
	all.waiting[t.line] = slices.Insert(all.waiting[t.line], place, t)
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

// next gives the turn, unless someone has it, to the tenant that waits and has had the least time.
func (t *Turns) next() {
	now := time.Now()
	least, from := time.Duration(math.MaxInt64), line{}
	for l, all := range t.waiting {
		used := t.used[l.tenant].now(now)
		switch {
		case l.patient && now.Sub(all[0].queued) < patience:
			used += time.Hour // after all others
		case l.patient:
			used = -1 // it has let others go first for long enough
		}
		if used < least || used == least && l.tenant < from.tenant {
			least, from = used, l
		}
	}
	all := t.waiting[from]
	if len(all) == 0 || t.holder != nil {
		return
	}
	if t.waiting[from] = all[1:]; len(all) == 1 {
		delete(t.waiting, from)
	}
	t.holder = all[0]
	t.holder.begin = now
	close(t.holder.granted)
}
