package hostd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"

	"unnest.io/unnest/internal/hostapi/hostdpb"
)

// policyHealth is a daemon that takes policies. It remembers whether the last stream of policies has
// been answered and still lasts.
type policyHealth struct {
	hostdpb.HostPolicyClient
	mu  sync.Mutex
	err error // nil: the policies are in force
}

func newPolicyHealth(c hostdpb.HostPolicyClient) *policyHealth {
	return &policyHealth{HostPolicyClient: c, err: errors.New("no policies have been sent yet")}
}

func (h *policyHealth) set(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
}

// Apply opens a stream of policies.
func (h *policyHealth) Apply(ctx context.Context, options ...grpc.CallOption) (hostdpb.HostPolicy_ApplyClient, error) {
	stream, err := h.HostPolicyClient.Apply(ctx, options...)
	if err != nil {
		h.set(err)
	}
	return policyStream{stream, h}, err
}

type policyStream struct {
	hostdpb.HostPolicy_ApplyClient
	health *policyHealth
}

// Recv waits for an answer of the daemon.
func (s policyStream) Recv() (*hostdpb.ApplyResponse, error) {
	r, err := s.HostPolicy_ApplyClient.Recv()
	s.health.set(err)
	return r, err
}

// serve answers GET /healthz at an address: 200 while the policies are in force, else 503 with the
// cause. It ends with ctx.
func (h *policyHealth) serve(ctx context.Context, address string) (wait func(), err error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("serve --http: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.err != nil {
			http.Error(w, h.err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "policies are in force")
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(listener) })
	return func() {
		stop()
		_ = server.Close()
		served.Wait()
	}, nil
}
