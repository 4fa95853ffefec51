package networkpolicy

import (
	"errors"
	"maps"
	"time"

	"unnest.io/unnest/internal/netdev/isolation"
)

// Committed is the answer to a commit.
type Committed struct {
	NICs    int      // of pods that have a policy
	Refused []string // namespaces with more policies than the tenant's share has room for
}

// planned returns which ports of a tenant change with what its client has said now.
func (p *Policies) planned(t *tenant, session *Session, now said) (Filter, []isolation.Port, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tenants[session.Tenant] != t || t.session != session {
		return nil, nil, session.Err
	}
	next := *t
	next.said, next.unread, next.spoken = now, "", true
	v, inForce := p.view(next), p.inForce[t.name]
	var changed []isolation.Port
	p.unlocked(func() { changed, _ = difference(inForce, v.wanted(), nil) })
	return p.table, changed, nil
}

// Commit puts what a client has said of all pods of its tenant into force, and keeps that of
// the pods here for the next daemon. If Commit fails, it puts back what was in force. Others have turns between its steps: until the
// last one, a pod has the old policy or the new one.
func (p *Policies) Commit(session *Session, s *Staging) (c Committed, err error) {
	now := newSaid(maps.Clone(s.pods))
	t := p.tenant(session.Tenant)
	if t == nil {
		return c, session.Err
	}
	t.keeping.Lock() // before a turn: whoever has one does not wait for the disk
	defer t.keeping.Unlock()
	table, changed, err := p.planned(t, session, now)
	if err != nil {
		return c, err
	}
	turn := p.Turns.Commit(t.name)
	defer func() { p.Rest(t.name, turn.Done()) }()
	release, err := table.Prepare(turn.Yield, changed...) // without the lock: other tenants do not wait
	defer func() {
		turn.Yield()
		p.release(release)
	}()
	if err != nil {
		return c, err
	}
	change := func(f func() error) error {
		turn.Yield()
		t.changing.Lock()
		defer t.changing.Unlock()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.tenants[t.name] != t {
			return session.Err
		}
		return f()
	}
	put := func(f func() error) error {
		err := change(f)
		for more := true; more && err == nil; {
			err = change(func() (err error) {
				more, err = p.step(t, nil)
				return err
			})
		}
		return err
	}
	var undo func() error
	err = put(func() error {
		if t.session != session {
			return session.Err
		}
		old, unread, spoken := t.said, t.unread, t.spoken
		undo = func() error {
			back := old.without(session)
			if t.session != session { // it does not know all that have ended
				back = old.except(func(_ string, pod podRules) bool { return pod.UID == "" })
				unread = "a commit failed after its stream had ended, so the daemon does not know which pods ended meanwhile"
			}
			t.said, t.unread, t.spoken = back, unread, spoken
			return nil
		}
		t.said, t.unread, t.spoken = now.without(session), "", true // the client is told of what has ended after the commit
		return nil
	})
	if err != nil { // what the kernel refuses must not be in the file
		if undo != nil {
			err = errors.Join(err, put(undo))
		}
		return Committed{}, err
	}
	turn.Done() // the disk needs none
	kept, c := p.committed(t)
	unkept, err := p.keep(t.name, kept)
	if err != nil {
		return Committed{}, errors.Join(err, put(undo))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t.unkept, s.changed = unkept, map[string]bool{}
	return c, nil
}

func (p *Policies) committed(t *tenant) (kept map[string]podRules, c Committed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	kept = p.here(t)
	return kept, Committed{len(kept), t.refused}
}

// Commits of a client run at once until they have used commitBurst of turns. Later ones wait first, at most maxRest each, so that
// commits use one part in commitShare of the time.
const (
	commitBurst = 500 * time.Millisecond
	commitShare = 500
	maxRest     = 10 * time.Second
)

// Rest adds the time of a commit's turns, and returns how long the tenant's client has to wait before its next commit: 0 if
// there is no other tenant.
func (p *Policies) Rest(tenant string, took time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tenants[tenant]
	if t == nil || p.alone {
		return 0
	}
	debt := min(max(0, time.Until(t.settled))+commitShare*took, commitShare*commitBurst+maxRest)
	t.settled = time.Now().Add(debt)
	return debt - commitShare*commitBurst
}

// here returns the policies of the tenant's pods that have a port: those of other hosts' pods
// are not worth a file.
func (p *Policies) here(t *tenant) map[string]podRules {
	kept := map[string]podRules{}
	for _, port := range p.ports {
		if port.tenant != t.name {
			continue
		}
		if name, _ := t.owners.of(port); name != "" {
			kept[name] = t.pods[name]
		}
	}
	return kept
}
