package daemon

import (
	"context"
	"errors"
	"io"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest/internal/hostapi/hostdpb"
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

// forget drops pods that have ended, unless the client has named them again since.
func (s *staging) forget(ended []string) {
	for _, name := range ended {
		if !s.changed[name] {
			s.remove(name)
		}
	}
}
