package api

import (
	"context"
	"fmt"
	"testing"
)

// Callers that send the headers of requests, and never their messages, hold a bounded number in all, and keep nobody
// out: an honest caller's request stays.
func TestAttackHalfSentRequests(t *testing.T) {
	var r arrivals
	ended := map[*arrival]bool{}
	add := func(who string) *arrival {
		a := &arrival{end: func() {}}
		if oldest := r.add(who, a); oldest != nil {
			ended[oldest] = true
			for w, all := range r.of {
				if all[0] == oldest {
					r.remove(w, oldest)
					break
				}
			}
		}
		return a
	}
	honest := add("node0")
	for range 100 {
		for guest := range 16 {
			add(fmt.Sprint("hostile", guest))
			if r.total > allArriving || len(r.of[fmt.Sprint("hostile", guest)]) > arriving {
				t.Fatalf("%d requests, %d of a guest, want at most %d and %d", r.total, len(r.of[fmt.Sprint("hostile", guest)]), allArriving, arriving)
			}
		}
	}
	if ended[honest] || len(ended) != 1601-allArriving {
		t.Errorf("%d requests have ended, of an honest guest too: %t", len(ended), ended[honest])
	}
	h := &Handler{}
	var first context.Context
	for i := range 2 * arriving { // faster than those before them end
		request, err := h.arrive(t.Context(), nil)
		if err != nil || h.arrivals.total > arriving {
			t.Fatalf("%d requests of a caller, error %v, want at most %d", h.arrivals.total, err, arriving)
		}
		if i == arriving-1 {
			first = request
		}
	}
	if first.Err() == nil {
		t.Error("the last of the oldest requests has not ended")
	}
	h = &Handler{}
	for range 2 * arriving {
		ctx, cancel := context.WithCancel(t.Context())
		request, err := h.arrive(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		arrived(request, false)
		if h.arrivals.total != 0 || request.Err() != nil {
			t.Fatalf("%d requests count after their messages have come; %v", h.arrivals.total, request.Err())
		}
		cancel()
	}
}
