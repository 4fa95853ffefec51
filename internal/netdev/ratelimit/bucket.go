package ratelimit

import (
	"fmt"
	"math"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
)

// bucket is a token bucket.
type bucket struct {
	rate  uint64 // byte/s
	burst uint64 // bytes
}

const (
	// minBurst holds a frame of 64 KiB with the headers of its segments, which the
	// kernel counts too.
	minBurst = 80 << 10
	// minRate keeps the time of minBurst within the range of the kernel's ticks.
	minRate = 8000 // bit/s
	// burstsPerSecond sets the default burst to 50 ms, a few ticks of the slowest
	// kernel timer (100 Hz).
	burstsPerSecond = 20
	// queuesPerSecond sets the queue to 100 ms. With the 25 ms of the bandwidth plugin
	// a busy host at times loses a whole window, and TCP waits for its timeout: it
	// reached 4 of 10 Mbit/s.
	queuesPerSecond = 10
	// maxQueue bounds the host's memory for the frames that wait, in bytes.
	maxQueue = 1 << 20
)

// newBucket takes bit/s and bits. For the rate 0 it returns nil.
func newBucket(rate, burst uint64) (*bucket, error) {
	if rate == 0 {
		if burst != 0 {
			return nil, fmt.Errorf("burst of %d bit without a rate: give both, or none", burst)
		}
		return nil, nil
	}
	if rate < minRate {
		return nil, fmt.Errorf("rate %d bit/s: want at least %d", rate, minRate)
	}
	b := &bucket{rate: rate / 8, burst: burst / 8}
	if burst == 0 {
		b.burst = b.rate / burstsPerSecond
	}
	b.burst = max(b.burst, minBurst)
	if b.ticks() > math.MaxUint32 || b.burst > math.MaxUint32 {
		return nil, fmt.Errorf("burst of %d bit at %d bit/s: want less than 4 GiB and %.0f s", burst, rate, math.MaxUint32/netlink.TickInUsec()/1e6)
	}
	return b, nil
}

// ticks returns the duration of the burst in the unit of the kernel's interface.
func (b *bucket) ticks() float64 {
	return float64(b.burst) / float64(b.rate) * 1e6 * netlink.TickInUsec()
}

// limit returns how many bytes may wait: at least the largest frame. The guest chooses
// the burst, so the limit does not depend on it.
func (b *bucket) limit() uint64 { return min(max(b.rate/queuesPerSecond, minBurst), maxQueue) }

// install makes b the root queueing discipline.
func (b *bucket) install(link netlink.Link) error {
	err := netlink.QdiscReplace(&netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       b.rate, Buffer: uint32(b.ticks()), Limit: uint32(b.limit()),
	})
	if err != nil {
		return fmt.Errorf("set token bucket of %s: %w", link.Attrs().Name, err)
	}
	return nil
}

// clearRoot deletes the token bucket of a TAP.
func clearRoot(tap netlink.Link) error {
	return clearQdiscs(tap, func(q netlink.Qdisc) bool { return q.Type() == "tbf" && q.Attrs().Parent == netlink.HANDLE_ROOT })
}

func clearQdiscs(link netlink.Link, match func(netlink.Qdisc) bool) error {
	all, err := netlinksafe.QdiscList(link)
	if err != nil {
		return fmt.Errorf("list queueing disciplines of %s: %w", link.Attrs().Name, err)
	}
	for _, q := range all {
		if !match(q) {
			continue
		}
		if err := netlink.QdiscDel(q); err != nil && !gone(err) {
			return fmt.Errorf("delete %s of %s: %w", q.Type(), link.Attrs().Name, err)
		}
	}
	return nil
}
