package localhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"unnest/internal/check/localhost/agent"
	"unnest/internal/testbed/place"
)

const (
	// startLimit is how long an agent may take to answer first, and to end, in
	// patiences: it may be behind SSH, in an emulated guest.
	startLimit = 60
	// orderLimit bounds any order, in patiences. Agents give up long before.
	orderLimit = 200
)

// fraction is an agent that is ordered.
type fraction struct {
	number int // from 1
	order  *agent.Client
	about  agent.Description
	stdin  io.Closer
	kill   context.CancelFunc
	ended  chan struct{} // closed after exit is set
	exit   error
	wait   time.Duration // for its end
}

func (f *fraction) String() string { return fmt.Sprintf("fraction %d", f.number) }

// begin starts all agents, or none.
func begin(ctx context.Context, o Options) ([]*fraction, error) {
	fractions := make([]*fraction, len(o.Fractions))
	errs := make([]error, len(o.Fractions))
	var all sync.WaitGroup
	for i, where := range o.Fractions {
		all.Go(func() { fractions[i], errs[i] = start(ctx, i+1, where, o.Patience) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		for i, f := range fractions {
			if errs[i] == nil {
				_ = f.end() // the first error says more
			}
		}
		return nil, err
	}
	return fractions, nil
}

func start(ctx context.Context, number int, where Fraction, patience time.Duration) (*fraction, error) {
	orders, stdin := io.Pipe()
	stdout, answers := io.Pipe()
	// Agents are let end, also when ctx does.
	living, kill := context.WithCancel(context.WithoutCancel(ctx))
	process, err := where.Place.Start(living, place.Command{Args: where.Args, Stdin: orders, Stdout: answers})
	if err != nil {
		kill()
		return nil, fmt.Errorf("fraction %d: %w", number, err)
	}
	f := &fraction{number: number, stdin: stdin, kill: kill, ended: make(chan struct{}), wait: startLimit * patience,
		order: agent.NewClient(stdout, stdin, patience)}
	go func() {
		f.exit = process.Wait()
		_, _ = orders.Close(), answers.Close() // never fail
		close(f.ended)
	}()
	go keepAlive(stdin, patience)
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit*patience, fmt.Errorf("no answer after %v", startLimit*patience))
	defer cancel()
	if f.about, err = agent.Do(ctx, f.order, agent.About{}); err != nil {
		return nil, errors.Join(fmt.Errorf("fraction %d: %q does not start an agent: %w", number, strings.Join(where.Args, " "), err), f.end())
	}
	return f, nil
}

// keepAlive sends blank lines until stdin is closed. Whoever carries an agent's input
// learns only by sending that the agent has ended.
func keepAlive(stdin io.Writer, every time.Duration) {
	for {
		time.Sleep(every)
		if _, err := io.WriteString(stdin, "\n"); err != nil {
			return
		}
	}
}

// end lets the agent end and kills it when it does not.
func (f *fraction) end() error {
	defer f.kill()
	_ = f.stdin.Close() // never fails
	select {
	case <-f.ended:
	case <-time.After(f.wait):
		f.kill()
		<-f.ended
		return fmt.Errorf("%s: the agent had to be killed", f)
	}
	if f.exit != nil {
		return fmt.Errorf("%s: %w", f, f.exit)
	}
	return nil
}

func end(fractions []*fraction) error {
	errs := make([]error, len(fractions))
	var all sync.WaitGroup
	for i, f := range fractions {
		all.Go(func() { errs[i] = f.end() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// lost returns an error when an agent has ended before it was told to.
func lost(fractions []*fraction) error {
	for _, f := range fractions {
		select {
		case <-f.ended:
			return fmt.Errorf("%s is lost: %w", f, agent.ErrLost)
		default:
		}
	}
	return nil
}

// do gives a fraction an order. Errors name the fraction.
func do[A any](t *trial, f *fraction, o agent.Order[A]) (A, error) {
	limit := orderLimit * t.patience
	ctx, cancel := context.WithTimeoutCause(t.ctx, limit, fmt.Errorf("no answer after %v", limit))
	defer cancel()
	answer, err := agent.Do(ctx, f.order, o)
	if err != nil {
		return answer, fmt.Errorf("%s: %w", f, err)
	}
	return answer, nil
}
