package reflector

import (
	"errors"
	"fmt"
	"slices"

	"unnest.io/unnest/internal/hostapi/segment"
)

// Leave removes a fraction's queue, if it has one. Its VM receives and sends nothing
// any more, even if it still has the descriptor. The other fractions lose no frame,
// except one that the kernel steers at the moment when it renumbers a queue.
func (s *Segment) Leave(f segment.Fraction) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.leave(f); err != nil {
		return fmt.Errorf("remove fraction %d from segment %s: %w", f, s.name, err)
	}
	return nil
}

// leave first replaces the VM's queue by one of our own, so that the VM cannot use
// the number when it goes to another fraction, and then removes our queue.
func (s *Segment) leave(f segment.Fraction) error {
	i, ok := s.queues.index(f)
	if !ok {
		return nil
	}
	if err := errors.Join(s.setQueue(f, noQueue), s.setOwner(i, 0)); err != nil {
		return err
	}
	substitute, err := s.replace(s.held[f])
	if err != nil {
		return err
	}
	err = s.held[f].close()
	s.held[f] = substitute
	return errors.Join(err, s.remove(f))
}

// replace detaches a queue for good, and returns one of ours with its number.
//
// A detached queue receives nothing, but can still send: the kernel takes its frames
// for those of the number that it had last. So replace gives it a number that no
// fraction has. It opens filler queues up to the maximum and detaches the queue, so that
// the last filler takes over its number. It attaches the queue behind the fillers and
// detaches it again. It closes the other fillers from the last to the first, which
// renumbers no queue.
func (s *Segment) replace(q queue) (substitute queue, err error) {
	var fillers []queue
	defer func() {
		for _, f := range slices.Backward(fillers) {
			err = errors.Join(err, f.close())
		}
	}()
	for range segment.MaxFractions + 1 - s.queues.len() {
		filler, err := s.addQueue()
		if err != nil {
			return -1, err
		}
		fillers = append(fillers, filler)
	}
	if err := q.detach(); err != nil {
		return -1, fmt.Errorf("detach queue: %w", err)
	}
	last := len(fillers) - 1
	substitute, fillers = fillers[last], fillers[:last]
	if err := errors.Join(q.attach(), q.detach()); err != nil {
		return substitute, fmt.Errorf("renumber queue: %w", err)
	}
	return substitute, nil
}

// remove removes a queue of ours. The last queue takes over its number. Until the
// kernel has renumbered it, both numbers belong to the last queue's fraction.
func (s *Segment) remove(f segment.Fraction) error {
	move, _ := s.queues.detaching(f)
	if m := move.fraction; m != 0 {
		if err := errors.Join(s.setOwner(move.to, m), s.setQueue(m, move.either)); err != nil {
			return err
		}
	}
	if err := s.held[f].close(); err != nil {
		return fmt.Errorf("close queue: %w", err)
	}
	delete(s.held, f)
	s.queues.detach(f)
	var err error
	if m := move.fraction; m != 0 {
		err = s.setQueue(m, move.to)
	}
	return errors.Join(err, s.setOwner(s.queues.len(), 0))
}
