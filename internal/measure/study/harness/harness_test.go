package harness

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"unnest.io/unnest/internal/measure/benchtest"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/study/clientserver"
	"unnest.io/unnest/internal/measure/study/server"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/place"
)

var pingPong = benchtest.Case("udp_rr", "sockperf", workload.UDP)

// No client is announced behind one by hand, which it would disturb.
func TestUndisturbing(t *testing.T) {
	manual, unnest := benchtest.Execution(byHand, pingPong, 0), benchtest.Execution(through, pingPong, 0)
	for _, tt := range []struct {
		following []experiment.Execution
		want      int
	}{
		{[]experiment.Execution{manual, unnest}, 0},
		{[]experiment.Execution{unnest, manual}, 1},
		{[]experiment.Execution{unnest, unnest}, 2},
	} {
		if got := undisturbing(tt.following); len(got) != tt.want {
			t.Errorf("%v: %d are announced, want %d", tt.following, len(got), tt.want)
		}
	}
}

// started is a place that counts its commands, which run until they are killed.
type started struct {
	place.Local
	n atomic.Int32
}

func (s *started) Start(ctx context.Context, _ place.Command) (place.Process, error) {
	s.n.Add(1)
	return benchtest.Process(func() error { <-ctx.Done(); return ctx.Err() }), nil
}

// No client is started in advance of an execution by hand.
func TestRenewByHand(t *testing.T) {
	for first, want := range map[string]int32{byHand: 0, through: 1} {
		synctest.Test(t, func(t *testing.T) {
			clients := &started{}
			h := Study{clientserver.New(&machines.Set{})}
			h.Client = clients
			h.Instances = map[string]*server.Service{byHand: {}, through: {}}
			if err := h.Renew(t.Context(), benchtest.Execution(first, pingPong, 0)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if n := clients.n.Load(); n != want {
				t.Errorf("before %s: %d clients are started, want %d", first, n, want)
			}
			if err := h.Down(); err != nil {
				t.Error(err)
			}
		})
	}
}
