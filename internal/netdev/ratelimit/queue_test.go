package ratelimit

import (
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// waiting floods a direction until frames wait behind its token bucket, and returns the
// greatest number of bytes that it has seen waiting. A bucket of burst bytes is empty then.
func (h *host) waiting(d direction, burst int) (most int) {
	h.t.Helper()
	link, err := netlink.LinkByName(d.bucket)
	h.check(err)
	h.flood(d, burst)
	for begin := time.Now(); most == 0; {
		h.flood(d, 16<<20)
		if tbf := h.tbf(link); tbf != nil {
			most = max(most, int(tbf.Statistics.Queue.Backlog))
		}
		if time.Since(begin) > patience {
			h.t.Fatalf("no frame has waited at %s for %v", d.bucket, patience)
		}
	}
	return most
}

// Whatever burst a pod asks for, no more than 1 MiB of its frames wait on the host, or
// those of 100 ms.
func TestQueue(t *testing.T) {
	inHost(t, func(h *host) {
		const burst = 16 << 20 // bytes
		tests := []struct {
			name  string
			rate  uint64 // bit/s
			burst uint64 // bytes
			most  int    // bytes
		}{
			{"a large burst", 8e6, burst, 100e3},
			{"the default burst", 8e6, 0, 100e3},
			{"the lowest rate", 64e3, 0, minBurst},
			{"a high rate", 100e6, burst, 1 << 20},
		}
		for _, tt := range tests {
			l := Limits{tt.rate, tt.burst * 8, tt.rate, tt.burst * 8}
			h.check(Clear("tap0")) // else the frames of the case before wait too
			h.check(Set("tap0", l))
			to, from := h.waiting(h.toPod(), burst), h.waiting(h.fromPod(), burst)
			t.Logf("%s: %d bytes wait to the pod, %d from it", tt.name, to, from)
			if to > tt.most || from > tt.most {
				t.Errorf("%s: %d bytes wait to the pod, %d from it; want at most %d", tt.name, to, from, tt.most)
			}
			if counted := int(Queue(l)); counted < to+from || counted > 2*tt.most {
				t.Errorf("%s: Queue says %d bytes, %d wait", tt.name, counted, to+from)
			}
		}
	})
}
