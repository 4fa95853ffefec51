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

// planned returns what a tenant's ports may do with other policies.
func (p *Policies) planned(present *tenant, session *Session, pods map[string]podRules) (Filter, []isolation.Port, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tenants[session.Tenant] != present || present.session != session {
		return nil, nil, session.Err
	}
	t := *present // changed here only
	t.set(pods)
	t.unread, t.spoken = "", true
	return p.table, p.wanted(&t), nil
}

// Commit puts what a client has said of all pods of its tenant into force, and keeps that of
// the pods here for the next daemon. After an error, what was in force before is.
func (p *Policies) Commit(session *Session, s *Staging) (c Committed, err error) {
	pods := maps.Clone(s.pods)
	t := p.tenant(session.Tenant)
	if t == nil {
		return c, session.Err
	}
	t.keeping.Lock() // before a turn: whoever has one does not wait for the disk
	defer t.keeping.Unlock()
	table, wanted, err := p.planned(t, session, maps.Clone(pods))
	if err != nil {
		return c, err
	}
	turn := p.Turns.Commit(t.name)
	defer func() { p.Rest(t.name, turn.Done()) }()
	release, err := table.Prepare(turn.Yield, wanted...) // without the lock: other tenants do not wait
	defer func() {
		turn.Yield()
		if err := release(); err != nil {
			p.log.Error("delete sets of the packet filter that no port uses", "error", err)
		}
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
		return f()
	}
	var kept map[string]podRules
	var undo func() error
	err = change(func() error {
		if p.tenants[t.name] != t || t.session != session {
			return session.Err
		}
		old, unread, spoken := t.pods, t.unread, t.spoken
		undo = func() error {
			session.forgetEnded(old)
			if t.session != session { // it does not know all that have ended
				maps.DeleteFunc(old, func(_ string, pod podRules) bool { return pod.UID == "" })
				unread = "a commit failed whose stream is over: it is not known which pods have ended meanwhile"
			}
			t.set(old)
			t.unread, t.spoken = unread, spoken
			return p.apply(t)
		}
		session.forgetEnded(pods) // the client is told after the commit
		t.set(pods)
		t.unread, t.spoken = "", true
		if err := p.apply(t); err != nil { // what the kernel refuses must not be in the file
			return errors.Join(err, undo())
		}
		kept = p.here(t)
		c = Committed{len(kept), t.refused}
		return nil
	})
	if err != nil {
		return Committed{}, err
	}
	turn.Done() // the disk needs none
	unkept, err := p.keep(t.name, kept)
	if err != nil {
		return Committed{}, errors.Join(err, change(undo))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t.unkept, s.changed = unkept, map[string]bool{}
	return c, nil
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
