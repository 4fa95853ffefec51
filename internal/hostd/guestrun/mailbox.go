package guestrun

import (
	"context"
	"time"
)

// submit queues f for the run goroutine. ctx bounds the wait until run takes it.
func (g *Guest) submit(ctx context.Context, f func(context.Context)) error {
	select {
	case g.inbox <- f:
		return nil
	case <-g.Done:
		return g.Err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// call makes the run goroutine call f and waits for the answer, which f gives at once
// or which a later event gives. This is a request's only round trip to run.
func call[T any](ctx context.Context, g *Guest, f func(ctx context.Context, answer func(T, error))) (T, error) {
	type result struct {
		value T
		err   error
	}
	answered := make(chan result, 1) // run does not wait for a handler whose context has ended
	err := g.submit(ctx, func(ctx context.Context) {
		f(ctx, func(value T, err error) { answered <- result{value, err} })
	})
	var none T
	if err != nil {
		return none, err
	}
	select {
	case r := <-answered:
		return r.value, r.err
	case <-g.Done:
		return none, g.Err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// read makes the run goroutine compute something.
func read[T any](ctx context.Context, g *Guest, f func() T) (T, error) {
	return call(ctx, g, func(_ context.Context, answer func(T, error)) { answer(f(), nil) })
}

// after makes the run goroutine call f after a while, unless run has ended by then.
func (g *Guest) after(ctx context.Context, d time.Duration, f func(context.Context)) {
	time.AfterFunc(d, func() { _ = g.submit(ctx, f) })
}
