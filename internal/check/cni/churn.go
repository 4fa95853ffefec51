package cni

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"unnest.io/unnest/internal/check"
)

// ChurnOptions configure Churn.
type ChurnOptions struct {
	Network
	// Pods is the number of pods that exist at the same time; 0: 10.
	Pods int
	// Parallel is the number of pods that are added or deleted at the same time; 0: 8.
	Parallel int
	// Rounds is how often each pod is replaced by a new one.
	Rounds int
	// Retry bounds the time for which an ADD or DEL is retried; 0: 1 minute.
	Retry time.Duration
}

// ChurnResult is what Churn has measured. unnest-conformance prints it as JSON.
type ChurnResult struct {
	Version string `json:"version"` // of the specification
	Adds    int    `json:"adds"`    // successful ADDs
	Dels    int    `json:"dels"`    // successful DELs
	// AddRetries counts ADDs that asked to be retried (code 11), DelRetries failed DELs.
	AddRetries int `json:"add_retries"`
	DelRetries int `json:"del_retries"`
	// Verified counts successful verifications of a pod and its peers.
	Verified int `json:"verified"`
	// Add and Del are the durations of successful calls. Ready is the time from the
	// first attempt of an ADD until the pod reaches its peers.
	Add   Latency `json:"add"`
	Del   Latency `json:"del"`
	Ready Latency `json:"ready"`
	// Failures have one line each, which names the pod.
	Failures []string      `json:"failures"`
	Duration time.Duration `json:"duration_ns"`
}

// Latency holds quantiles; all are 0 if there is no sample.
type Latency struct {
	P50 time.Duration `json:"p50_ns"`
	P90 time.Duration `json:"p90_ns"`
	P99 time.Duration `json:"p99_ns"`
	Max time.Duration `json:"max_ns"`
}

func latencyOf(samples []time.Duration) Latency {
	if len(samples) == 0 {
		return Latency{}
	}
	slices.Sort(samples)
	at := func(percent int) time.Duration { return samples[(len(samples)*percent+99)/100-1] } // nearest rank
	return Latency{P50: at(50), P90: at(90), P99: at(99), Max: samples[len(samples)-1]}
}

// churn is a running Churn.
type churn struct {
	o   ChurnOptions
	net *network

	mu                sync.Mutex
	result            ChurnResult
	adds, dels, ready []time.Duration
}

// member is a pod that is attached to the network.
type member struct {
	*pod
	result *types100.Result
}

// Churn adds pods, replaces each of them in random order, and deletes them, as a busy node
// does. It verifies each pod after its ADD and before its DEL. It retries as a runtime
// does: an ADD if the plugin asks for that, a DEL after any error. At the end, also when
// ctx ends, it deletes all pods and runs GC without valid attachments. The error is the
// cause of the end of ctx, or says why nothing could be done; errors of pods are in
// Failures.
func Churn(ctx context.Context, o ChurnOptions) (ChurnResult, error) {
	o.Pods, o.Parallel, o.Retry = cmp.Or(o.Pods, 10), cmp.Or(o.Parallel, 8), cmp.Or(o.Retry, time.Minute)
	begin := time.Now()
	opened, err := open(o.Network)
	if err != nil {
		return ChurnResult{}, err
	}
	defer opened.close()
	n, err := opened.newest(ctx)
	if err != nil {
		return ChurnResult{}, err
	}
	c := &churn{o: o, net: n, result: ChurnResult{Version: n.version, Failures: []string{}}}
	members := make([]*member, o.Pods)
	for round := range o.Rounds + 1 {
		c.eachInRandomOrder(members, func(m **member) {
			if round > 0 {
				c.detach(ctx, *m)
			}
			*m = c.attach(ctx)
		})
	}
	c.eachInRandomOrder(members, func(m **member) { c.detach(ctx, *m) })
	c.fail("GC", c.collect(context.WithoutCancel(ctx)))
	c.result.Add, c.result.Del, c.result.Ready = latencyOf(c.adds), latencyOf(c.dels), latencyOf(c.ready)
	c.result.Duration = time.Since(begin)
	return c.result, context.Cause(ctx)
}

func (c *churn) eachInRandomOrder(members []*member, do func(**member)) {
	order := make(chan int, len(members))
	for _, i := range rand.Perm(len(members)) {
		order <- i
	}
	close(order)
	check.Each(c.o.Parallel, func(int) {
		for i := range order {
			do(&members[i])
		}
	})
}

// record changes the result under the lock.
func (c *churn) record(change func(*ChurnResult)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.result)
}

// fail records a failure, if err is not nil.
func (c *churn) fail(subject string, err error) {
	if err != nil {
		c.record(func(r *ChurnResult) { r.Failures = append(r.Failures, subject+": "+check.OneLine(err)) })
	}
}

// attach returns a new pod on the network, or nil.
func (c *churn) attach(ctx context.Context) *member {
	if ctx.Err() != nil {
		return nil
	}
	p, err := newPod()
	if err != nil {
		c.fail("pod", err)
		return nil
	}
	m := &member{pod: p}
	begin := time.Now()
	if err := c.add(ctx, m); err != nil {
		c.fail(p.id, err)
		c.fail(p.id, p.remove())
		return nil
	}
	c.verify(ctx, m, "after ADD")
	c.record(func(*ChurnResult) { c.ready = append(c.ready, time.Since(begin)) })
	return m
}

// The pauses between attempts.
const (
	firstWait = 100 * time.Millisecond
	longWait  = 5 * time.Second
)

// retry calls try until it is done, with growing pauses.
func retry(ctx context.Context, within time.Duration, try func() (done bool, err error)) error {
	end := time.Now().Add(within)
	for wait := firstWait; ; wait = min(2*wait, longWait) {
		done, err := try()
		if done {
			return err
		}
		if time.Now().Add(wait).After(end) {
			return fmt.Errorf("retried for %v: %w", within, err)
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(wait):
		}
	}
}

// add sends a DEL after each ADD that fails, as runtimes do, and retries if the plugin
// asks for that.
func (c *churn) add(ctx context.Context, m *member) error {
	return retry(ctx, c.o.Retry, func() (done bool, err error) {
		begin := time.Now()
		m.result, err = c.net.add(ctx, attachment(m.pod, eth0))
		if err == nil {
			took := time.Since(begin)
			c.record(func(r *ChurnResult) { r.Adds++; c.adds = append(c.adds, took) })
			return true, nil
		}
		if delErr := c.del(m); delErr != nil {
			return true, errors.Join(err, fmt.Errorf("after the failed ADD: %w", delErr))
		}
		coded := (*types.Error)(nil)
		if !errors.As(err, &coded) || coded.Code != types.ErrTryAgainLater {
			return true, err
		}
		c.record(func(r *ChurnResult) { r.AddRetries++ })
		return false, err
	})
}

// del continues when the churn is interrupted.
func (c *churn) del(m *member) error {
	ctx := context.Background()
	return retry(ctx, c.o.Retry, func() (done bool, err error) {
		begin := time.Now()
		if err = c.net.del(ctx, attachment(m.pod, eth0)); err != nil {
			c.record(func(r *ChurnResult) { r.DelRetries++ })
			return false, err
		}
		took := time.Since(begin)
		c.record(func(r *ChurnResult) { r.Dels++; c.dels = append(c.dels, took) })
		return true, m.clean()
	})
}

// collect runs GC without valid attachments.
func (c *churn) collect(ctx context.Context) error {
	return retry(ctx, c.o.Retry, func() (done bool, err error) {
		err = c.net.gc(ctx, nil)
		return err == nil, err
	})
}

func (c *churn) verify(ctx context.Context, m *member, when string) {
	err := context.Cause(ctx)
	if err == nil {
		err = verify(m.pod, eth0, m.result)
	}
	if err == nil {
		err = c.net.reach(ctx, m.pod, m.result)
	}
	switch {
	case err == nil:
		c.record(func(r *ChurnResult) { r.Verified++ })
	case ctx.Err() == nil:
		c.fail(m.id+" "+when, err)
	}
}

// detach verifies a pod and deletes it. It does nothing if attach has failed.
func (c *churn) detach(ctx context.Context, m *member) {
	if m == nil {
		return
	}
	c.verify(ctx, m, "before DEL")
	c.fail(m.id, c.del(m))
	c.fail(m.id, m.remove())
}
