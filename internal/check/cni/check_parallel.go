package cni

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// parallelChecks ask whether plugins get in each other's way.
var parallelChecks = []check{
	{"parallel-add-del", "Lifecycle & Ordering", Must, "", parallelAddDel},
	{"parallel-same-attachment", "Lifecycle & Ordering", Should, "", parallelSameAttachment},
}

// crashChecks ask whether a killed plugin leaves what DEL can take away.
var crashChecks = []check{
	{"crash-add", "Lifecycle & Ordering", Must, "", crashAdd},
	{"crash-del", "DEL", Must, "", crashDel},
}

// each calls do for 0 to n-1 at once.
func each(n int, do func(int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = do(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func parallelAddDel(t *trial) error {
	for range t.o.Parallel {
		p, err := t.pod()
		if err != nil {
			return err
		}
		t.touch(p, eth0)
	}
	results := make([]*types100.Result, len(t.pods))
	err := each(len(t.pods), func(i int) (err error) {
		results[i], err = t.add(t.ctx, attachment(t.pods[i], eth0))
		return err
	})
	if err != nil {
		return err
	}
	if err := distinct(t.pods, results); err != nil {
		return err
	}
	if err := each(len(t.pods), func(i int) error { return t.works(t.pods[i], eth0, results[i]) }); err != nil {
		return err
	}
	if err := each(len(t.pods), func(i int) error { return t.delFrom(t.pods[i], eth0) }); err != nil {
		return err
	}
	return each(len(t.pods), func(i int) error { return t.pods[i].clean() })
}

// distinct returns an error when two pods have an address or a MAC in common.
func distinct(pods []*pod, results []*types100.Result) error {
	owner := map[string]string{}
	for i, r := range results {
		var names []string
		for _, ip := range r.IPs {
			names = append(names, ip.Address.IP.String())
		}
		l, err := pods[i].link(eth0)
		if err != nil {
			return err
		}
		for _, name := range append(names, l.Attrs().HardwareAddr.String()) {
			if other, taken := owner[name]; taken {
				return fmt.Errorf("%s and %s both have %s", other, pods[i].id, name)
			}
			owner[name] = pods[i].id
		}
	}
	return nil
}

// parallelSameAttachment does what a runtime must not: one of the ADDs has to win.
func parallelSameAttachment(t *trial) error {
	p, err := t.pod()
	if err != nil {
		return err
	}
	t.touch(p, eth0)
	const adds = 4
	var results [adds]*types100.Result
	refusals := each(adds, func(i int) (err error) {
		results[i], err = t.add(t.ctx, attachment(p, eth0))
		return err
	})
	var won []*types100.Result
	for _, r := range results {
		if r != nil {
			won = append(won, r)
		}
	}
	if len(won) != 1 {
		return errors.Join(fmt.Errorf("%d of %d ADDs of the same container and interface have succeeded", len(won), adds), refusals)
	}
	return t.works(p, eth0, won[0])
}

// kill runs a command that is killed at a random moment within the time that it
// takes. It may have ended by then.
func (t *trial) kill(takes time.Duration, command func(context.Context) error) error {
	if err := t.ctx.Err(); err != nil {
		return context.Cause(t.ctx)
	}
	ctx := context.WithValue(context.WithoutCancel(t.ctx), killing{}, true)
	ctx, cancel := context.WithTimeout(ctx, 1+rand.N(takes))
	defer cancel()
	if err := command(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

func crashAdd(t *trial) error {
	begin := time.Now()
	if _, _, err := t.up(eth0); err != nil {
		return err
	}
	takes := time.Since(begin)
	if err := t.delFrom(t.pods[0], eth0); err != nil {
		return err
	}
	for range t.o.Kills {
		if err := t.crashOneAdd(takes); err != nil {
			return err
		}
	}
	return nil
}

func (t *trial) crashOneAdd(takes time.Duration) error {
	p, err := t.pod()
	if err != nil {
		return err
	}
	t.touch(p, eth0)
	err = t.kill(takes, func(ctx context.Context) error {
		_, err := t.add(ctx, attachment(p, eth0))
		return err
	})
	if err != nil {
		return err
	}
	if err := t.delFrom(p, eth0); err != nil {
		return fmt.Errorf("after ADD was killed: %w", err)
	}
	if err := t.empty(p); err != nil {
		return fmt.Errorf("after ADD was killed, and DEL: %w", err)
	}
	r, err := t.addTo(p, eth0)
	if err != nil {
		return fmt.Errorf("after ADD was killed, and DEL: %w", err)
	}
	if err := t.works(p, eth0, r); err != nil {
		return fmt.Errorf("after ADD was killed, DEL and ADD: %w", err)
	}
	return t.delFrom(p, eth0)
}

func crashDel(t *trial) error {
	p, err := t.pod()
	if err != nil {
		return err
	}
	takes := 50 * time.Millisecond
	for range t.o.Kills {
		if _, err := t.addTo(p, eth0); err != nil {
			return fmt.Errorf("after DEL was killed, and DEL: %w", err)
		}
		err := t.kill(takes, func(ctx context.Context) error { return t.del(ctx, attachment(p, eth0)) })
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := t.delFrom(p, eth0); err != nil {
			return fmt.Errorf("after DEL was killed: %w", err)
		}
		takes = max(takes, time.Since(begin))
		if err := t.empty(p); err != nil {
			return fmt.Errorf("after DEL was killed, and DEL: %w", err)
		}
	}
	return nil
}
