package api

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/guestrun"
	"unnest.io/unnest/internal/hostd/networkpolicy"
	"unnest.io/unnest/internal/hostd/ports"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/netdev/isolation"
)

// memoryStream is a stream in memory.
type memoryStream struct {
	ctx      context.Context
	requests chan *hostdpb.ApplyRequest
	answers  chan *hostdpb.ApplyResponse
}

func (s *memoryStream) Context() context.Context { return s.ctx }

func (s *memoryStream) Send(r *hostdpb.ApplyResponse) error {
	s.answers <- r
	return nil
}

func (s *memoryStream) Recv() (*hostdpb.ApplyRequest, error) {
	if r, ok := <-s.requests; ok {
		return r, nil
	}
	return nil, io.EOF
}

// memoryFilter has what ports may do.
type memoryFilter struct {
	networkpolicy.Filter
	ports map[string]isolation.Port
}

func (f memoryFilter) Set(ports ...isolation.Port) error {
	for _, p := range ports {
		f.ports[p.Interface] = p
	}
	return nil
}

func (f memoryFilter) Remove(ports ...isolation.Port) error {
	for _, p := range ports {
		delete(f.ports, p.Interface)
	}
	return nil
}

func (f memoryFilter) Prepare(func(), ...isolation.Port) (func() error, error) {
	return func() error { return nil }, nil
}

// A pod without UID that ends while a commit rests is forgotten, although the commit names it, also for the first time, and its client is told
// meanwhile: the next pod with its address has no policy.
func TestPodEndsWhileCommitRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, filter := slog.New(slog.DiscardHandler), memoryFilter{ports: map[string]isolation.Port{}}
		h := &Handler{Host: &guestrun.Host{Ports: ports.New(log)}, Log: log, serving: t.Context()}
		p := networkpolicy.New(t.TempDir(), log)
		h.Host.Ports.Policies = p
		p.Open = func([]isolation.Port) (networkpolicy.Filter, error) { return filter, nil }
		check := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		_, err := p.Configure([]quota.Tenant{{Name: "shop", Bridge: "br1", NetworkPolicy: quota.PolicyOptional}, {Name: "store", Bridge: "br2"}})
		check(err)
		names, addresses := []string{"web/a", "web/b"}, []string{"10.0.0.1", "10.0.0.2"}
		connect := func(tap string, i int) {
			check(p.Connect(nil, tap, attachment.Record{Bridge: "br1", PodUID: attachment.NoPod, Addresses: []netip.Prefix{netip.MustParsePrefix(addresses[i] + "/16")}}))
		}
		connect("u1", 0)
		connect("u2", 1)
		session, err := p.Begin("shop")
		check(err)
		stream := &memoryStream{t.Context(), make(chan *hostdpb.ApplyRequest), make(chan *hostdpb.ApplyResponse)}
		served := make(chan error)
		go func() { served <- h.serveApply(stream, session) }()
		<-stream.answers // the ranges
		commit := func(pods int) {
			for i := range pods {
				stream.requests <- &hostdpb.ApplyRequest{Pod: &hostdpb.PodPolicy{Pod: names[i], Addresses: addresses[i : i+1], Ingress: &hostdpb.PolicyDirection{}}}
			}
			stream.requests <- &hostdpb.ApplyRequest{Commit: true}
		}
		commit(1)
		if r := <-stream.answers; r.GetNics() != 1 {
			t.Fatalf("%d NICs have a policy, want 1", r.GetNics())
		}
		p.Rest("shop", time.Minute)
		commit(2)
		synctest.Wait()
		begin := time.Now()
		for i, tap := range []string{"u1", "u2"} {
			check(p.Disconnect(nil, tap))
			if r := <-stream.answers; !slices.Equal(r.GetEnded(), names[i:i+1]) || time.Since(begin) > 0 {
				t.Errorf("after %v the answer is %v, want at once that %s has ended", time.Since(begin), r, names[i])
			}
		}
		if r := <-stream.answers; r.GetPods() != 0 || time.Since(begin) != 10*time.Second {
			t.Errorf("after %v %d pods have policies, want none after 10 s", time.Since(begin), r.GetPods())
		}
		for i, tap := range []string{"u3", "u4"} {
			connect(tap, i)
			if filter.ports[tap].Ingress != nil {
				t.Errorf("the next pod with the address has the policy of %s, which has ended", names[i])
			}
		}
		close(stream.requests)
		check(<-served)
	})
}
