package plan

import (
	"context"
	"iter"
	"runtime"
	"sync"
)

// onAll calls work for the items on all processors, and returns the results in the order of
// the items. It calls done with the number of results so far. When the context ends, it
// returns at once, and running calls of work are abandoned. After an error it takes no more
// items; of several errors it returns that of the first item, so the error is deterministic.
func onAll[T, R any](ctx context.Context, items iter.Seq[T], work func(T) (R, error), done func(int)) ([]R, error) {
	var (
		mu      sync.Mutex // guards all below
		results []R
		count   int
		failed  = -1 // index of the first item that failed
		failure error
		ended   bool
	)
	next, stop := iter.Pull(items)
	take := func() (item T, index int, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if ended || failed >= 0 {
			return item, 0, false
		}
		if item, ok = next(); ok {
			results = append(results, *new(R))
		}
		return item, len(results) - 1, ok
	}
	report := func(index int, result R, err error) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case ended:
		case err == nil:
			results[index] = result
			count++
			done(count)
		case failed < 0 || index < failed:
			failed, failure = index, err
		}
	}
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for item, index, ok := take(); ok; item, index, ok = take() {
				result, err := work(item)
				report(index, result, err)
			}
		})
	}
	finished := make(chan struct{})
	go func() {
		workers.Wait()
		close(finished)
	}()
	select {
	case <-ctx.Done():
	case <-finished:
	}
	mu.Lock()
	defer mu.Unlock()
	defer stop()
	ended = true
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if failed >= 0 {
		return nil, failure
	}
	return results, nil
}
