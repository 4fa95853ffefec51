package api

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A guest that asks above its rate, as fast as it can, has its requests wait rather than refused at once: on one connection
// none is refused, and on many connections few are.
func TestAttackRequestsAboveTheRate(t *testing.T) {
	for _, tt := range []struct {
		connections  int
		most, refuse int64 // in 10 s, at 50 a second
	}{{1, 510, 0}, {32, 550, 0}, {2000, 550, 2000 * 11}} {
		synctest.Test(t, func(t *testing.T) {
			h := &Handler{serving: t.Context()}
			var served, refused atomic.Int64
			var wg sync.WaitGroup
			end := time.Now().Add(10 * time.Second)
			for range tt.connections {
				wg.Go(func() {
					for time.Now().Before(end) {
						h.hold(t.Context(), "node1")
						if h.rates.allow("node1", 50, 1) {
							served.Add(1)
						} else {
							refused.Add(1)
							time.Sleep(time.Millisecond) // the answer
						}
					}
				})
			}
			wg.Wait()
			if n := served.Load(); n < 490 || n > tt.most {
				t.Errorf("%d connections: %d requests are served, want 500", tt.connections, n)
			}
			if n := refused.Load(); n > tt.refuse+int64(tt.connections) {
				t.Errorf("%d connections: %d requests are refused, want at most %d", tt.connections, n, tt.refuse)
			}
			if len(h.rates.waiting) > 0 {
				t.Errorf("%d connections: counted as waiting: %v", tt.connections, h.rates.waiting)
			}
		})
	}
}
