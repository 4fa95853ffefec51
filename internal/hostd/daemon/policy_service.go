package daemon

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/netdev/isolation"
)

const (
	maxPolicyPods  = 16384
	maxPolicyPeers = 4 << 20 // of all pods
	maxPodName     = 320
)

var (
	errSuperseded = grpcstatus.Error(codes.Aborted, "a newer stream of the tenant has taken over")
	errNoPolicies = grpcstatus.Error(codes.FailedPrecondition, "the daemon's configuration has no networkPolicy for the tenant: set it to optional or required, and start the daemon again")
)

// policySession is a stream of a policy client.
type policySession struct {
	tenant     string
	superseded chan struct{}

	mu    sync.Mutex
	ended []string // pods that the client has not been told of
	wake  chan struct{}
}

// begin makes a session the only one of its tenant.
func (p *podPolicies) begin(tenant string) (*policySession, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tenants[tenant]
	if t == nil {
		return nil, errNoPolicies
	}
	if t.session != nil {
		close(t.session.superseded)
	}
	t.session = &policySession{tenant: tenant, superseded: make(chan struct{}), wake: make(chan struct{}, 1)}
	return t.session, nil
}

func (p *podPolicies) end(s *policySession) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.tenants[s.tenant]; t.session == s {
		t.session = nil
	}
}

// tell tells the client, if there is one, that a pod has ended.
func (s *policySession) tell(pod string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = append(s.ended, pod)
	select {
	case s.wake <- struct{}{}:
	default: // it is awake
	}
}

func (s *policySession) takeEnded() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended := s.ended
	s.ended = nil
	return ended
}

type applyStream interface {
	Context() context.Context
	Send(*hostdpb.ApplyResponse) error
	Recv() (*hostdpb.ApplyRequest, error)
}

// Apply implements hostdpb.HostPolicyServer.
func (d *daemon) Apply(stream hostdpb.HostPolicy_ApplyServer) error {
	tenant := policyCaller(stream.Context())
	s, err := d.host.ports.policies.begin(tenant)
	if err != nil {
		return err
	}
	defer d.host.ports.policies.end(s)
	d.config.Logger.Info("policy client connected", "tenant", tenant)
	err = d.serveApply(stream, s)
	d.config.Logger.Info("policy client disconnected", "tenant", tenant, "error", err)
	return err
}

type received struct {
	request *hostdpb.ApplyRequest
	err     error
}

// serveApply answers the requests of a session until it ends.
func (d *daemon) serveApply(stream applyStream, s *policySession) error {
	requests := make(chan received)
	go func() { // ends with the stream, which ends after serveApply
		for {
			r, err := stream.Recv()
			select {
			case requests <- received{r, err}:
			case <-stream.Context().Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	staged := staging{pods: map[string]podPolicy{}}
	for {
		select {
		case r := <-requests:
			if errors.Is(r.err, io.EOF) {
				return nil
			}
			if r.err != nil {
				return r.err
			}
			if err := d.apply(stream, s, &staged, r.request); err != nil {
				return err
			}
		case <-s.wake:
			ended := s.takeEnded()
			staged.forget(ended)
			if err := stream.Send(&hostdpb.ApplyResponse{Ended: ended}); err != nil {
				return err
			}
		case <-s.superseded:
			return errSuperseded
		case <-d.serving.Done():
			return grpcstatus.Error(codes.Unavailable, errStopping.Error())
		}
	}
}

// apply carries out one request.
func (d *daemon) apply(stream applyStream, s *policySession, staged *staging, r *hostdpb.ApplyRequest) error {
	if err := staged.add(r); err != nil {
		return err
	}
	if !r.GetCommit() {
		return nil
	}
	begin := time.Now()
	nics, err := d.host.ports.policies.commit(s, maps.Clone(staged.pods))
	if err != nil {
		d.config.Logger.Error("apply policies", "tenant", s.tenant, "error", err)
		return coded(err)
	}
	staged.changed = map[string]bool{}
	d.config.Logger.Debug("apply policies", "tenant", s.tenant, "pods", len(staged.pods), "nics", nics, "total", time.Since(begin))
	return stream.Send(&hostdpb.ApplyResponse{Pods: uint32(len(staged.pods)), Nics: uint32(nics)})
}

// staging is what a stream has said, in force after the next commit. It begins empty, so the
// first commit replaces what an earlier stream has said.
type staging struct {
	pods    map[string]podPolicy
	changed map[string]bool // since the last commit
	peers   int
}

// forget drops pods that have ended, unless the client has named them again since.
func (s *staging) forget(ended []string) {
	for _, name := range ended {
		if !s.changed[name] {
			s.remove(name)
		}
	}
}

func (s *staging) remove(name string) {
	s.peers -= s.pods[name].peers()
	delete(s.pods, name)
}

func (s *staging) add(r *hostdpb.ApplyRequest) error {
	if s.changed == nil {
		s.changed = map[string]bool{}
	}
	if name := r.GetRemove(); name != "" {
		s.remove(name)
	}
	for _, message := range []*hostdpb.PodPolicy{r.GetPod(), r.GetMore()} {
		if message == nil {
			continue
		}
		name, pod, err := parsePod(message)
		if err != nil {
			return err
		}
		if message == r.GetMore() {
			if !s.changed[name] {
				return grpcstatus.Errorf(codes.InvalidArgument, "more of pod %q: name the pod first", name)
			}
			pod = s.pods[name].with(pod)
		}
		s.peers += pod.peers() - s.pods[name].peers()
		s.pods[name], s.changed[name] = pod, true
	}
	if len(s.pods) > maxPolicyPods || s.peers > maxPolicyPeers {
		return grpcstatus.Errorf(codes.ResourceExhausted, "%d pods with %d peers: want at most %d and %d", len(s.pods), s.peers, maxPolicyPods, maxPolicyPeers)
	}
	return nil
}

// peers counts the peers and services of all rules.
func (p podPolicy) peers() (n int) {
	for _, d := range []*isolation.Direction{p.Ingress, p.Egress} {
		if d != nil {
			for _, r := range d.Allow {
				n += len(r.Peers) + len(r.Services)
			}
		}
	}
	return n
}

// with returns p with further rules.
func (p podPolicy) with(more podPolicy) podPolicy {
	join := func(a, b *isolation.Direction) *isolation.Direction {
		if a == nil || b == nil {
			return a
		}
		return &isolation.Direction{Allow: append(a.Allow[:len(a.Allow):len(a.Allow)], b.Allow...)}
	}
	return podPolicy{p.Addresses, join(p.Ingress, more.Ingress), join(p.Egress, more.Egress)}
}

func parsePod(m *hostdpb.PodPolicy) (name string, p podPolicy, err error) {
	name = m.GetPod()
	if name == "" || len(name) > maxPodName || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return name, p, grpcstatus.Errorf(codes.InvalidArgument, "pod %.80q: want 1 to %d bytes of printable ASCII without blanks", name, maxPodName)
	}
	if len(m.GetAddresses()) > maxAddresses {
		return name, p, grpcstatus.Errorf(codes.InvalidArgument, "pod %s: %d addresses: want at most %d", name, len(m.GetAddresses()), maxAddresses)
	}
	for _, text := range m.GetAddresses() {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Is4In6() || a.Zone() != "" {
			return name, p, grpcstatus.Errorf(codes.InvalidArgument, "pod %s: address %.60q: want an IP address", name, text)
		}
		p.Addresses = append(p.Addresses, a)
	}
	if p.Ingress, err = parseDirection(m.GetIngress()); err == nil {
		p.Egress, err = parseDirection(m.GetEgress())
	}
	if err != nil {
		return name, p, grpcstatus.Errorf(codes.InvalidArgument, "pod %s: %v", name, err)
	}
	return name, p, nil
}

func parseDirection(m *hostdpb.PolicyDirection) (*isolation.Direction, error) {
	if m == nil {
		return nil, nil
	}
	d := &isolation.Direction{}
	for _, r := range m.GetAllow() {
		rule, err := parseRule(r)
		if err != nil {
			return nil, err
		}
		d.Allow = append(d.Allow, rule)
	}
	return d, nil
}
