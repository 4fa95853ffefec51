package reflector

import (
	"fmt"

	"unnest/internal/hostapi/segment"
)

// Counters say what was done with one fraction's frames since the segment was
// created or recovered.
type Counters struct {
	Frames    uint64 // that were reflected
	Bytes     uint64 // of these, with their Ethernet headers
	Broadcast uint64 // of these frames, to all

	// Frames that were dropped.
	Spoofed  uint64 // their source address is not the fraction's
	Limited  uint64 // broadcasts beyond the Limit
	Oversize uint64 // longer than the longest packet of IPv6
	Unknown  uint64 // to nobody in the segment, or not IP
}

// Counters returns the counters of each fraction that has ever sent anything,
// under 0 of what came by queues that were nobody's.
func (s *Segment) Counters() (map[segment.Fraction]Counters, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.programs == nil {
		return nil, fmt.Errorf("read counters of segment %s: it is closed", s.name)
	}
	all := map[segment.Fraction]Counters{}
	for f := segment.Reflector; f <= segment.MaxFractions; f++ {
		var perCPU []reflectorCounters
		if err := s.programs.Counts.Lookup(uint32(f), &perCPU); err != nil {
			return nil, fmt.Errorf("read counters of segment %s: fraction %d: %w", s.name, f, err)
		}
		if c := sum(perCPU); c != (Counters{}) {
			all[f] = c
		}
	}
	return all, nil
}

func sum(perCPU []reflectorCounters) Counters {
	var c Counters
	for _, one := range perCPU {
		c.Frames += one.Frames
		c.Bytes += one.Bytes
		c.Broadcast += one.Broadcast
		c.Spoofed += one.Spoofed
		c.Limited += one.Limited
		c.Oversize += one.Oversize
		c.Unknown += one.Unknown
	}
	return c
}
