package networkpolicy

import (
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/policylimit"
)

const (
	maxPodName      = 320
	maxPodAddresses = 16
	maxUntold       = policylimit.Pods // NICs that have ended, or pods: as many as a client may name
)

var (
	errSuperseded = grpcstatus.Error(codes.Aborted, "a newer stream of the tenant has taken over")
	// errBehind ends a session whose client does not read. The next one begins with what is there then.
	errBehind     = grpcstatus.Errorf(codes.ResourceExhausted, "the client has not read its messages: more than %d NICs wait to be told; connect again", maxUntold)
	errNoPolicies = grpcstatus.Error(codes.FailedPrecondition, "the daemon's configuration has no networkPolicy for the tenant: set it to optional or required, and start the daemon again")
)

// Session is a stream of a policy client.
type Session struct {
	Tenant string
	Over   chan struct{} // closed when the daemon ends the session; Err says why
	Err    error         // why, once Over is closed

	mu     sync.Mutex
	ended  []endedPort     // that the client has not been told of
	owners map[string]bool // UIDs of pods of whose NICs the client has not been told
	ranges bool            // the client has not been told of the ranges
	Wake   chan struct{}   // has a value when TakeEnded returns pods, or TakeOwnership something
}

// endedPort is a port that has ended, and the pod without UID that had it by the policies in force, "" if none.
type endedPort struct {
	podPort
	pod string
}

// Begin makes a session the only one of its tenant.
func (p *Policies) Begin(tenant string) (*Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tenants[tenant]
	if t == nil {
		return nil, errNoPolicies
	}
	if t.session != nil {
		close(t.session.Over)
	}
	s := &Session{Tenant: tenant, Over: make(chan struct{}), Err: errSuperseded, Wake: make(chan struct{}, 1), owners: map[string]bool{}}
	t.session = s
	for _, port := range p.ports {
		if port.tenant == tenant {
			p.tellOwner(port)
		}
	}
	t.tellRanges()
	return s, nil
}

// End ends a session.
func (p *Policies) End(s *Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.tenants[s.Tenant]; t != nil && t.session == s {
		t.session = nil
	}
}

// tell notes what the client, if there is one, is to be told. It ends the session of one that does not read.
func (t *tenant) tell(note func(*Session)) {
	s := t.session
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	note(s)
	if len(s.ended) > maxUntold || len(s.owners) > maxUntold {
		s.ended, s.owners, s.Err, t.session = nil, nil, errBehind, nil
		close(s.Over)
	}
	select {
	case s.Wake <- struct{}{}:
	default: // it is awake
	}
}

// endedPorts returns the ports that have ended since they were last taken.
func (s *Session) endedPorts(take bool) []endedPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	ports := slices.Clone(s.ended)
	if take {
		s.ended = nil
	}
	return ports
}

// TakeEnded returns the pods that have ended since the last call, and drops those that are staged.
func (s *Session) TakeEnded(staged *Staging) []string {
	ports := s.endedPorts(true)
	if len(ports) == 0 {
		return nil
	}
	ended := said{staged.pods, ownersOf(staged.pods)}.ended(ports) // without s.mu, for which other tenants' ports wait
	for _, name := range ended {
		staged.remove(name)
	}
	return ended
}

// ended returns the pods of ports that have ended. The client may have said only here which pod has a port.
func (s said) ended(ports []endedPort) (ended []string) {
	for _, port := range ports {
		name := port.pod
		if name == "" {
			name, _ = s.owners.of(port.podPort)
		}
		if name != "" && s.pods[name].UID == "" {
			ended = append(ended, name)
		}
	}
	return ended
}
