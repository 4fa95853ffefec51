package reflector

import (
	"fmt"

	"unnest/internal/hostapi/segment"
)

// Counters count one fraction's frames since the segment was created or recovered.
// The layout is that of struct counters in bpf/reflector.c.
type Counters struct {
	Frames    uint64 // reflected
	Bytes     uint64 // of the reflected frames, with their Ethernet headers
	Broadcast uint64 // of the reflected frames, to all

	// Dropped frames.
	Spoofed  uint64 // with the source address of another
	Limited  uint64 // broadcasts beyond the Limit
	Oversize uint64 // longer than the longest packet of IPv6
	Unknown  uint64 // not IP, or to no fraction of the segment
}

// Counters returns the counters of each fraction that has sent frames. Fraction 0
// stands for queues without an owner.
func (s *Segment) Counters() (map[segment.Fraction]Counters, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.programs == nil {
		return nil, fmt.Errorf("read counters of segment %s: it is closed", s.name)
	}
	all := map[segment.Fraction]Counters{}
	for f := segment.Reflector; f <= segment.MaxFractions; f++ {
		var perCPU []Counters
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
		if sum != (Counters{}) {
			all[f] = sum
		}
	}
	return all, nil
}
