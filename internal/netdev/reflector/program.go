package reflector

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf/rlimit"

	"unnest/internal/hostapi/segment"
)

//go:generate go tool bpf2go reflector bpf/reflector.c -- -O2 -Wall -Wextra -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu

// load loads the programs, with maps in which nobody is in the segment yet.
func load(l Limit) (*reflectorObjects, error) {
	// Kernels before 5.11 count maps and programs against RLIMIT_MEMLOCK.
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, fmt.Errorf("remove memory lock limit: %w", err)
	}
	spec, err := loadReflector()
	if err != nil {
		return nil, fmt.Errorf("read reflector: %w", err)
	}
	gap := uint64(time.Second) / uint64(l.Rate)
	err = errors.Join(
		spec.Variables["broadcast_gap"].Set(gap),
		spec.Variables["broadcast_burst"].Set(gap*uint64(l.Burst-1)),
	)
	if err != nil {
		return nil, fmt.Errorf("set limit of broadcasts: %w", err)
	}
	var o reflectorObjects
	if err := spec.LoadAndAssign(&o, nil); err != nil {
		return nil, fmt.Errorf("load reflector: %w", err)
	}
	return &o, nil
}

// lead has frames for a fraction go to a queue, whose number may be one that the
// kernel reduces to the queue's (segment.Move).
func (s *Segment) lead(f segment.Fraction, queue int) error {
	if err := s.programs.Marks.Put(uint32(f), uint32(queue+1)); err != nil {
		return fmt.Errorf("lead frames to fraction %d: %w", f, err)
	}
	return nil
}

// strand has frames for a fraction dropped.
func (s *Segment) strand(f segment.Fraction) error {
	if err := s.programs.Marks.Put(uint32(f), uint32(0)); err != nil {
		return fmt.Errorf("drop frames to fraction %d: %w", f, err)
	}
	return nil
}

// own says whose frames come by a queue; they are dropped if f is 0.
func (s *Segment) own(queue int, f segment.Fraction) error {
	if err := s.programs.Owners.Put(uint32(queue), uint32(f)); err != nil {
		return fmt.Errorf("make queue %d fraction %d's: %w", queue, f, err)
	}
	return nil
}
