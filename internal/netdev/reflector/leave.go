package reflector

import (
	"errors"
	"fmt"

	"unnest/internal/hostapi/segment"
)

// Leave takes a fraction's queue away: its VM gets nothing and sends nothing by
// it any more, whether it still has the descriptor or not. The other fractions
// lose no frame. That the fraction is not in the segment is no error.
func (s *Segment) Leave(f segment.Fraction) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.leave(f); err != nil {
		return fmt.Errorf("have fraction %d leave segment %s: %w", f, s.name, err)
	}
	return nil
}

// leave first puts a queue of our own in the place of the VM's, so that nobody
// else has the number while it goes to another fraction, then removes that.
func (s *Segment) leave(f segment.Fraction) error {
	i, ok := s.queues.Index(f)
	if !ok {
		return nil
	}
	if err := errors.Join(s.strand(f), s.own(i, 0)); err != nil {
		return err
	}
	standIn, err := s.banish(s.held[f])
	if err != nil {
		return err
	}
	err = s.held[f].close()
	s.held[f] = standIn
	return errors.Join(err, s.remove(f))
}

// banish detaches a queue for good, and returns one of ours that has its number.
//
// The driver keeps a detached queue from receiving, but not from sending: what is
// written to it comes in by the number that it had last. So it is made to be one
// that no fraction has: the queues are filled up with some of ours, it is attached
// behind these, and detached again. The first time that it goes, the last of the
// fill takes its place. The others of the fill go from the last on, so that nothing
// moves.
func (s *Segment) banish(q queue) (standIn queue, err error) {
	var fill []queue
	defer func() {
		for i := len(fill) - 1; i >= 0; i-- {
			err = errors.Join(err, fill[i].close())
		}
	}()
	for range segment.MaxFractions + 1 - s.queues.Len() {
		one, err := s.addQueue()
		if err != nil {
			return -1, err
		}
		fill = append(fill, one)
	}
	if err := q.detach(); err != nil {
		return -1, fmt.Errorf("detach queue: %w", err)
	}
	last := len(fill) - 1
	standIn, fill = fill[last], fill[:last]
	if err := errors.Join(q.attach(), q.detach()); err != nil {
		return standIn, fmt.Errorf("banish queue: %w", err)
	}
	return standIn, nil
}

// remove removes a queue of ours. The last queue takes its number: until the
// kernel is done, either number leads to it and is its own.
func (s *Segment) remove(f segment.Fraction) error {
	move, _ := s.queues.Detaching(f)
	if m := move.Fraction; m != 0 {
		if err := errors.Join(s.own(move.To, m), s.lead(m, move.Either)); err != nil {
			return err
		}
	}
	if err := s.held[f].close(); err != nil {
		return fmt.Errorf("close queue: %w", err)
	}
	delete(s.held, f)
	s.queues.Detach(f)
	var err error
	if m := move.Fraction; m != 0 {
		err = s.lead(m, move.To)
	}
	return errors.Join(err, s.own(s.queues.Len(), 0))
}
