package api

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostd/guestrun"
	"unnest.io/unnest/internal/hostd/networkpolicy"
)

type applyStream interface {
	Context() context.Context
	Send(*hostdpb.ApplyResponse) error
	Recv() (*hostdpb.ApplyRequest, error)
}

// Apply implements hostdpb.HostPolicyServer.
func (h *Handler) Apply(stream hostdpb.HostPolicy_ApplyServer) error {
	tenant := stream.Context().Value(policyCallerKey{}).(string)
	s, err := h.Host.Ports.Policies.Begin(tenant)
	if err != nil {
		return err
	}
	defer h.Host.Ports.Policies.End(s)
	h.Log.Info("policy client connected", "tenant", tenant)
	err = h.serveApply(stream, s)
	h.Log.Info("policy client disconnected", "tenant", tenant, "error", err)
	return err
}

type received struct {
	request *hostdpb.ApplyRequest
	err     error
}

// serveApply answers the requests of a session until it ends.
func (h *Handler) serveApply(stream applyStream, s *networkpolicy.Session) error {
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
	staged := networkpolicy.NewStaging(h.Host.Ports.Policies.StreamMemory())
	for {
		select {
		case r := <-requests:
			if errors.Is(r.err, io.EOF) {
				return nil
			}
			if r.err != nil {
				return r.err
			}
			if err := h.apply(stream, s, staged, r.request); err != nil {
				return err
			}
		case <-s.Wake:
			if err := h.tell(stream, s, staged); err != nil {
				return err
			}
		case <-s.Over:
			return s.Err
		case <-h.serving.Done():
			return grpcstatus.Error(codes.Unavailable, guestrun.ErrStopping.Error())
		}
	}
}

// tell tells the client what the daemon knows itself, and forgets pods that have ended.
func (h *Handler) tell(stream applyStream, s *networkpolicy.Session, staged *networkpolicy.Staging) error {
	ended := s.TakeEnded(staged)
	told := &hostdpb.ApplyResponse{Ended: ended, Ownership: h.Host.Ports.Policies.TakeOwnership(s)}
	if len(ended) == 0 && told.Ownership == nil {
		return nil
	}
	return stream.Send(told)
}

// apply carries out one request.
func (h *Handler) apply(stream applyStream, s *networkpolicy.Session, staged *networkpolicy.Staging, r *hostdpb.ApplyRequest) error {
	select {
	case <-s.Wake: // what has ended before a request names it
		if err := h.tell(stream, s, staged); err != nil {
			return err
		}
	default:
	}
	if err := staged.Add(r); err != nil {
		return err
	}
	if !r.GetCommit() {
		return nil
	}
	rested := time.After(h.Host.Ports.Policies.Rest(s.Tenant, 0))
	for resting := true; resting; {
		select { // the client's messages wait meanwhile
		case <-rested:
			resting = false
		case <-s.Wake:
			if err := h.tell(stream, s, staged); err != nil {
				return err
			}
		case <-s.Over:
			return s.Err
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-h.serving.Done():
			return grpcstatus.Error(codes.Unavailable, guestrun.ErrStopping.Error())
		}
	}
	begin := time.Now()
	committed, err := h.Host.Ports.Policies.Commit(s, staged)
	if err != nil {
		h.Log.Error("apply policies", "tenant", s.Tenant, "error", err)
		return coded(err)
	}
	h.Log.Debug("apply policies", "tenant", s.Tenant, "pods", staged.Count(), "nics", committed.NICs, "total", time.Since(begin))
	return stream.Send(&hostdpb.ApplyResponse{Pods: uint32(staged.Count()), Nics: uint32(committed.NICs), Refused: committed.Refused})
}
