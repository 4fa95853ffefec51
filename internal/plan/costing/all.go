package costing

import (
	"context"
	"iter"
	"runtime"
	"sync"

	"golang.org/x/sync/errgroup"
)

// All calls work for the items on all processors, and returns the results in the order of
// the items. It calls done with the number of results so far. When the context ends, it
// returns at once, and running calls of work are abandoned. After an error it takes no more
// items; of several errors it returns that of the first item, so the error is deterministic.
func All[T, R any](ctx context.Context, items iter.Seq[T], work func(T) (R, error), done func(int)) ([]R, error) {
	type outcome struct {
		result R
		err    error
	}
	type job struct {
		item T
		*outcome
	}
	var outcomes []*outcome
	jobs, counter := make(chan job), &counter{done: done}
	g, going := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(jobs)
		for item := range items {
			j := job{item, new(outcome)}
			select {
			case jobs <- j:
				outcomes = append(outcomes, j.outcome)
			case <-going.Done():
				return nil
			}
		}
		return nil
	})
	for range runtime.GOMAXPROCS(0) { // each keeps its stack, which searches make large
		g.Go(func() error {
			for j := range jobs {
				if j.result, j.err = work(j.item); j.err != nil {
					return j.err
				}
				counter.add()
			}
			return nil
		})
	}
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		_ = g.Wait() // outcomes have the errors, in the order of the items
	}()
	select {
	case <-ctx.Done():
	case <-finished:
	}
	counter.stop()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var results []R
	for _, o := range outcomes {
		if o.err != nil {
			return nil, o.err
		}
		results = append(results, o.result)
	}
	return results, nil
}

// counter counts results until it is stopped.
type counter struct {
	sync.Mutex
	done    func(int)
	n       int
	stopped bool
}

func (c *counter) add() {
	c.Lock()
	defer c.Unlock()
	if c.n++; !c.stopped && c.done != nil {
		c.done(c.n)
	}
}

func (c *counter) stop() {
	c.Lock()
	defer c.Unlock()
	c.stopped = true
}
