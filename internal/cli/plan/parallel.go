package plan

import (
	"context"
	"iter"
	"runtime"
	"sync"
)

// answer is what became of one item.
type answer[R any] struct {
	index int // in the order in which items come
	value R
	err   error
}

// onAll works on the items on all processors, and returns the results in the order of
// the items. done is told how many there are so far. When the context ends, it returns
// at once; what is being worked on then ends unseen. Of several errors it returns the
// first item's, whatever the processors do.
func onAll[T, R any](ctx context.Context, items iter.Seq[T], work func(T) (R, error), done func(int)) ([]R, error) {
	type task struct {
		index int
		item  T
	}
	tasks, answers := make(chan task), make(chan answer[R])
	stop := make(chan struct{}) // after an error, no item is taken any more
	go func() {
		defer close(tasks)
		i := 0
		for item := range items {
			select {
			case tasks <- task{i, item}:
				i++
			case <-stop:
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for t := range tasks {
				value, err := work(t.item)
				select {
				case answers <- answer[R]{t.index, value, err}:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	go func() {
		workers.Wait()
		close(answers)
	}()
	return collect(ctx, answers, stop, done)
}

// collect gathers answers until there are no more, or the context ends.
func collect[R any](ctx context.Context, answers <-chan answer[R], stop chan<- struct{}, done func(int)) ([]R, error) {
	var all []R
	var failed *answer[R]
	count := 0
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case a, open := <-answers:
			switch {
			case !open && ctx.Err() != nil:
				return nil, context.Cause(ctx)
			case !open && failed != nil:
				return nil, failed.err
			case !open:
				return all, nil
			case a.err == nil:
				for len(all) <= a.index {
					all = append(all, *new(R))
				}
				all[a.index] = a.value
				count++
				done(count)
			case failed == nil:
				failed = &a
				close(stop)
			case a.index < failed.index:
				failed = &a
			}
		}
	}
}
