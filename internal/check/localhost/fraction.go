package localhost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"unnest.io/unnest/internal/check"
	"unnest.io/unnest/internal/check/localhost/agent"
	"unnest.io/unnest/internal/testbed/place"
)

const (
	// startLimit bounds the start and the end of an agent, as a multiple of the patience:
	// the agent may be behind SSH in an emulated guest.
	startLimit = 60
	// requestLimit bounds any request, as a multiple of the patience. Agents give up
	// long before.
	requestLimit = 200
)

// fraction is a running agent.
type fraction struct {
	number int // from 1
	client *agent.Client
	about  agent.Description
	stdin  io.Closer
	kill   context.CancelFunc
	ended  chan struct{} // closed after exit is set
	exit   error
	limit  time.Duration // for the end of the agent
}

func (f *fraction) String() string { return fmt.Sprintf("fraction %d", f.number) }

// startAll starts all agents, or none.
func startAll(ctx context.Context, o Options) ([]*fraction, error) {
	fractions := make([]*fraction, len(o.Fractions))
	err := check.Run(func() {
		check.Each(len(o.Fractions), func(i int) {
			fractions[i] = check.Get(start(ctx, i+1, o.Fractions[i], o.Patience))
		})
	})
	if err != nil {
		for _, f := range fractions {
			if f != nil {
				_ = f.end() // the first error says more
			}
		}
		return nil, err
	}
	return fractions, nil
}

func start(ctx context.Context, number int, where Fraction, patience time.Duration) (*fraction, error) {
	requests, stdin := io.Pipe()
	stdout, replies := io.Pipe()
	// The end of ctx does not kill agents: end lets them clean up.
	running, kill := context.WithCancel(context.WithoutCancel(ctx))
	process, err := where.Place.Start(running, place.Command{Args: where.Args, Stdin: requests, Stdout: replies})
	if err != nil {
		kill()
		return nil, fmt.Errorf("fraction %d: %w", number, err)
	}
	f := &fraction{number: number, stdin: stdin, kill: kill, ended: make(chan struct{}), limit: startLimit * patience,
		client: agent.NewClient(stdout, stdin, patience)}
	go func() {
		f.exit = process.Wait()
		_, _ = requests.Close(), replies.Close() // never fail
		close(f.ended)
	}()
	go keepAlive(stdin, patience)
	ctx, cancel := context.WithTimeoutCause(ctx, f.limit, fmt.Errorf("no answer after %v", f.limit))
	defer cancel()
	if f.about, err = agent.Do(ctx, f.client, agent.About{}); err != nil {
		return nil, errors.Join(fmt.Errorf("fraction %d: %q does not start an agent: %w", number, strings.Join(where.Args, " "), err), f.end())
	}
	return f, nil
}

// keepAlive sends blank lines until stdin is closed, because SSH notices only when it
// sends that an agent has ended.
func keepAlive(stdin io.Writer, every time.Duration) {
	for {
		time.Sleep(every)
		if _, err := io.WriteString(stdin, "\n"); err != nil {
			return
		}
	}
}

// end closes the input of the agent, which then ends, or kills it after the limit.
func (f *fraction) end() error {
	defer f.kill()
	_ = f.stdin.Close() // never fails
	select {
	case <-f.ended:
	case <-time.After(f.limit):
		f.kill()
		<-f.ended
		return fmt.Errorf("%s: the agent did not end within %v and was killed", f, f.limit)
	}
	if f.exit != nil {
		return fmt.Errorf("%s: %w", f, f.exit)
	}
	return nil
}

// lost returns an error if an agent has ended early.
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

// each calls do for several fractions at the same time.
func each(fractions []*fraction, do func(*fraction)) {
	check.Each(len(fractions), func(i int) { do(fractions[i]) })
}

// try sends a request to a fraction and returns its error, which names the fraction.
func try[A any](t *trial, f *fraction, r agent.Request[A]) (A, error) {
	limit := requestLimit * t.patience
	ctx, cancel := context.WithTimeoutCause(t.ctx, limit, fmt.Errorf("no answer after %v", limit))
	defer cancel()
	answer, err := agent.Do(ctx, f.client, r)
	if err != nil {
		return answer, fmt.Errorf("%s: %w", f, err)
	}
	return answer, nil
}

// do sends a request to a fraction, and ends the case if that fails.
func do[A any](t *trial, f *fraction, r agent.Request[A]) A { return check.Get(try(t, f, r)) }
