package cni

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// ChurnOptions are what Churn needs to know.
type ChurnOptions struct {
	Network
	// Peers have to be reached from every pod. Without any, the gateways in the
	// results are pinged.
	Peers []Peer
	// CallBack is the address of a server of ServeCalls, which has to reach every
	// pod by a connection of its own; "": nobody.
	CallBack string
	// Pods live at the same time; 0: 10.
	Pods int
	// Parallel is the number of pods that come and go at once; 0: 8.
	Parallel int
	// Rounds is how often each pod is replaced by a new one.
	Rounds int
	// Retry bounds how long an ADD that may be tried again, or a DEL, is; 0: one
	// minute.
	Retry time.Duration
}

// Churned is what a Churn has seen. It is the summary that its program prints.
type Churned struct {
	Version string `json:"version"` // of the specification
	Adds    int    `json:"adds"`    // that succeeded
	Dels    int    `json:"dels"`
	// AddRetries are ADDs that asked to be tried again (code 11), DelRetries DELs
	// that failed, for whatever reason.
	AddRetries int `json:"add_retries"`
	DelRetries int `json:"del_retries"`
	// Verified is how often a pod was looked at and its peers were reached.
	Verified int `json:"verified"`
	// Add and Del are the times of those that succeeded; Ready is the time from
	// the first try of an ADD until the peers were reached.
	Add   Latency `json:"add"`
	Del   Latency `json:"del"`
	Ready Latency `json:"ready"`
	// Failures are one line each; they name the pod.
	Failures []string      `json:"failures"`
	Duration time.Duration `json:"duration_ns"`
}

// Latency are quantiles, in nanoseconds; all 0 without a sample.
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

// churn is a Churn under way.
type churn struct {
	o   ChurnOptions
	net *network

	mu              sync.Mutex
	seen            Churned
	adds, dels, ups []time.Duration
}

// resident is a pod on the network.
type resident struct {
	*pod
	result *types100.Result
}

// Churn adds pods, replaces each of them in random order, and deletes them, as a
// busy node does. Each is verified after its ADD and before its DEL. A plugin may
// ask to be tried again, and a DEL may fail for a while, as far as a runtime
// would go along. In the end all pods are deleted, also when ctx ends, and GC is
// told that there is none. The error says why nothing could be done, or that ctx
// has ended; what went wrong with pods is in the failures.
func Churn(ctx context.Context, o ChurnOptions) (Churned, error) {
	o.Pods, o.Parallel, o.Retry = cmp.Or(o.Pods, 10), cmp.Or(o.Parallel, 8), cmp.Or(o.Retry, time.Minute)
	begin := time.Now()
	opened, err := open(o.Network)
	if err != nil {
		return Churned{}, err
	}
	defer opened.close()
	n, err := opened.newest(ctx)
	if err != nil {
		return Churned{}, err
	}
	c := &churn{o: o, net: n, seen: Churned{Version: n.version, Failures: []string{}}}
	residents := make([]*resident, o.Pods)
	for round := range o.Rounds + 1 {
		c.eachInRandomOrder(residents, func(r **resident) {
			if round > 0 {
				c.leave(ctx, *r)
			}
			*r = c.enter(ctx)
		})
	}
	c.eachInRandomOrder(residents, func(r **resident) { c.leave(ctx, *r) })
	if err := c.collect(context.WithoutCancel(ctx)); err != nil {
		c.fail("GC", err)
	}
	c.seen.Add, c.seen.Del, c.seen.Ready = latencyOf(c.adds), latencyOf(c.dels), latencyOf(c.ups)
	c.seen.Duration = time.Since(begin)
	return c.seen, context.Cause(ctx)
}

// newest returns the network at the newest version that all its plugins speak.
func (n *network) newest(ctx context.Context) (*network, error) {
	spoken, err := n.versions(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the plugins for their versions: %w", err)
	}
	for _, v := range slices.Backward(Versions) {
		if _, lacking := spoken.lacks(v); !lacking {
			return n.at(v)
		}
	}
	return nil, fmt.Errorf("the plugins have none of the versions %v in common", Versions)
}

func (c *churn) eachInRandomOrder(residents []*resident, do func(**resident)) {
	order := make(chan int, len(residents))
	for _, i := range rand.Perm(len(residents)) {
		order <- i
	}
	close(order)
	_ = each(c.o.Parallel, func(int) error {
		for i := range order {
			do(&residents[i])
		}
		return nil
	})
}

func (c *churn) note(how func(*Churned)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	how(&c.seen)
}

func (c *churn) fail(who string, err error) {
	line := fmt.Sprintf("%s: %s", who, strings.ReplaceAll(err.Error(), "\n", "; "))
	c.note(func(s *Churned) { s.Failures = append(s.Failures, line) })
}

// enter returns a new pod on the network, or nil.
func (c *churn) enter(ctx context.Context) *resident {
	if ctx.Err() != nil {
		return nil
	}
	p, err := newPod()
	if err != nil {
		c.fail("pod", err)
		return nil
	}
	r := &resident{pod: p}
	begin := time.Now()
	if err := c.add(ctx, r); err != nil {
		c.fail(p.id, err)
		c.remove(r)
		return nil
	}
	c.verify(ctx, r, "after ADD")
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ups = append(c.ups, time.Since(begin))
	return r
}

// The waits between tries.
const (
	firstWait = 100 * time.Millisecond
	longWait  = 5 * time.Second
)

// retry calls try until it says that it is done, with growing waits in between.
func retry(ctx context.Context, within time.Duration, try func() (done bool, err error)) error {
	end := time.Now().Add(within)
	for wait := firstWait; ; wait = min(2*wait, longWait) {
		done, err := try()
		if done {
			return err
		}
		if time.Now().Add(wait).After(end) {
			return fmt.Errorf("tried for %v: %w", within, err)
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(wait):
		}
	}
}

// add does what runtimes do: DEL after an ADD that failed, and, if it may be tried
// again, once more.
func (c *churn) add(ctx context.Context, r *resident) error {
	return retry(ctx, c.o.Retry, func() (done bool, err error) {
		begin := time.Now()
		r.result, err = c.net.add(ctx, attachment(r.pod, eth0))
		if err == nil {
			took := time.Since(begin)
			c.note(func(s *Churned) { s.Adds++; c.adds = append(c.adds, took) })
			return true, nil
		}
		if delErr := c.del(r); delErr != nil {
			return true, errors.Join(err, fmt.Errorf("after that: %w", delErr))
		}
		coded := (*types.Error)(nil)
		if !errors.As(err, &coded) || coded.Code != types.ErrTryAgainLater {
			return true, err
		}
		c.note(func(s *Churned) { s.AddRetries++ })
		return false, err
	})
}

// del goes on when the churn is interrupted.
func (c *churn) del(r *resident) error {
	ctx := context.Background()
	return retry(ctx, c.o.Retry, func() (done bool, err error) {
		begin := time.Now()
		if err = c.net.del(ctx, attachment(r.pod, eth0)); err != nil {
			c.note(func(s *Churned) { s.DelRetries++ })
			return false, err
		}
		took := time.Since(begin)
		c.note(func(s *Churned) { s.Dels++; c.dels = append(c.dels, took) })
		return true, r.clean()
	})
}

// collect tells that there is no pod, once more when that fails: a runtime does so
// from time to time.
func (c *churn) collect(ctx context.Context) error {
	return retry(ctx, c.o.Retry, func() (done bool, err error) {
		err = c.net.gc(ctx, nil)
		return err == nil, err
	})
}

func (c *churn) verify(ctx context.Context, r *resident, when string) {
	if ctx.Err() != nil {
		return
	}
	if err := c.look(ctx, r); err != nil {
		if ctx.Err() == nil {
			c.fail(r.id+" "+when, err)
		}
		return
	}
	c.note(func(s *Churned) { s.Verified++ })
}

func (c *churn) look(ctx context.Context, r *resident) error {
	if err := verify(r.pod, eth0, r.result); err != nil {
		return err
	}
	peers := c.o.Peers
	if len(peers) == 0 {
		peers = gateways(r.result)
	}
	for _, p := range peers {
		if err := p.reach(ctx, r.path); err != nil {
			return err
		}
	}
	if c.o.CallBack == "" {
		return nil
	}
	return beCalled(ctx, r.path, c.o.CallBack)
}

// leave verifies a pod and deletes it; nil is a pod that never came.
func (c *churn) leave(ctx context.Context, r *resident) {
	if r == nil {
		return
	}
	c.verify(ctx, r, "before DEL")
	if err := c.del(r); err != nil {
		c.fail(r.id, err)
	}
	c.remove(r)
}

func (c *churn) remove(r *resident) {
	if err := r.remove(); err != nil {
		c.fail(r.id, err)
	}
}
