package api

import (
	"context"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"unnest.io/unnest/internal/hostapi/identity"
)

const (
	// messageTime is how long the message of a request may take from its headers on. It comes with them.
	messageTime = 10 * time.Second
	// arriving is how many requests of a caller may be without their whole message, and allArriving of all
	// callers. Each holds 128 KiB at most: a flow window and a message.
	arriving    = 32
	allArriving = 256
)

// arrivals are the requests whose message has not come whole. If there are too many, the oldest of the caller that
// has most ends, not the new one: no caller keeps others out. The zero value is ready.
type arrivals struct {
	mu    sync.Mutex
	of    map[string][]*arrival // by caller, the oldest first
	total int
}

// arrival is a request, from its headers on.
type arrival struct {
	end   context.CancelFunc
	timer *time.Timer
	whole func() // counts it no more
}

type arrivalKey struct{}

// arrive is called for each request when its headers have come, before more of its connection is read.
func (h *Handler) arrive(ctx context.Context, _ *tap.Info) (context.Context, error) {
	who := callerName(ctx)
	h.hold(ctx, who)
	ctx, end := context.WithCancel(ctx)
	a := &arrival{end: end, timer: time.AfterFunc(messageTime, end)}
	a.whole = sync.OnceFunc(func() { h.arrivals.remove(who, a) })
	if oldest := h.arrivals.add(who, a); oldest != nil {
		oldest.end()
		oldest.whole() // at once, so that the next one ends another
	}
	context.AfterFunc(ctx, func() { // the request has ended
		a.timer.Stop()
		a.whole()
	})
	return context.WithValue(ctx, arrivalKey{}, a), nil
}

// arrived is called when the message of a request has come whole. A stream has further messages, so it counts until it
// ends.
func arrived(ctx context.Context, stream bool) {
	a, ok := ctx.Value(arrivalKey{}).(*arrival)
	if !ok {
		return
	}
	a.timer.Stop()
	if !stream {
		a.whole()
	}
}

// callerName returns the guest of a connection, or the fingerprint of another certificate.
func callerName(ctx context.Context) string {
	p, _ := peer.FromContext(ctx)
	if p == nil {
		return ""
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return ""
	}
	if name, err := identity.GuestName(info.State); err == nil {
		return name
	}
	return identity.Fingerprint(info.State.PeerCertificates[0])
}

// add counts a request. It returns the one to end for it, nil if there is room.
func (r *arrivals) add(who string, a *arrival) (oldest *arrival) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of == nil {
		r.of = map[string][]*arrival{}
	}
	switch {
	case len(r.of[who]) >= arriving:
		oldest = r.of[who][0]
	case r.total >= allArriving:
		var most []*arrival
		for _, all := range r.of {
			if len(all) > len(most) {
				most = all
			}
		}
		oldest = most[0]
	}
	r.of[who] = append(r.of[who], a)
	r.total++
	return oldest
}

func (r *arrivals) remove(who string, a *arrival) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of[who] = slices.DeleteFunc(r.of[who], func(o *arrival) bool { return o == a })
	r.total--
	if len(r.of[who]) == 0 {
		delete(r.of, who)
	}
}
