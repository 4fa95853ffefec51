package reflector

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/hostapi/segment"
)

// Counters count one fraction's frames since the segment was created or recovered.
type Counters struct {
	Frames    uint64 // reflected
	Bytes     uint64 // of the reflected frames, with their Ethernet headers
	Broadcast uint64 // of the reflected frames, to all

	// Dropped frames.
	Spoofed  uint64 // with the source address of another
	Limited  uint64 // broadcasts beyond the Limit
	Oversize uint64 // longer than the longest packet of IPv6
	Unknown  uint64 // not IP, or to no fraction of the segment
	// Full counts reflected frames that a full queue has dropped. It is fraction 0's: the
	// TAP counts the frames of all senders together.
	Full uint64
}

// Counters returns the counters of each fraction that has sent frames. Fraction 0
// stands for queues without an owner, and for the TAP.
func (s *Segment) Counters() (map[segment.Fraction]Counters, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.programs == nil {
		return nil, fmt.Errorf("read counters of segment %s: it is closed", s.name)
	}
	full, err := s.droppedByTAP()
	if err != nil {
		return nil, fmt.Errorf("read counters of segment %s: %w", s.name, err)
	}
	all := map[segment.Fraction]Counters{}
	for f := segment.Reflector; f <= segment.MaxFractions; f++ {
		var perCPU []reflectorCounters
		if err := s.programs.Counts.Lookup(uint32(f), &perCPU); err != nil {
			return nil, fmt.Errorf("read counters of segment %s: fraction %d: %w", s.name, f, err)
		}
		var sum Counters
		for _, c := range perCPU {
			sum.Frames += c.Frames
			sum.Bytes += c.Bytes
			sum.Broadcast += c.Broadcast
			sum.Spoofed += c.Spoofed
			sum.Limited += c.Limited
			sum.Oversize += c.Oversize
			sum.Unknown += c.Unknown
		}
		if f == segment.Reflector {
			sum.Full = full - s.droppedBefore
		}
		if sum != (Counters{}) {
			all[f] = sum
		}
	}
	return all, nil
}

// droppedByTAP returns how many frames the TAP has dropped because a queue was full.
func (s *Segment) droppedByTAP() (uint64, error) {
	tap, err := s.links.LinkByIndex(s.index)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		return s.droppedBefore, nil
	}
	if err != nil {
		return 0, fmt.Errorf("inspect TAP: %w", err)
	}
	if tap.Attrs().Statistics == nil {
		return s.droppedBefore, nil
	}
	return tap.Attrs().Statistics.TxDropped, nil
}
