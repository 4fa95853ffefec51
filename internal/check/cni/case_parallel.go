package cni

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"

	"unnest.io/unnest/internal/check"
)

// parallelCases check that concurrent plugin calls do not disturb each other.
var parallelCases = []testCase{
	{"parallel-add-del", "Lifecycle & Ordering", Must, "", parallelAddDel},
	{"parallel-same-attachment", "Lifecycle & Ordering", Should, "", parallelSameAttachment},
}

// crashCases check that DEL cleans up after a plugin that was killed.
var crashCases = []testCase{
	{"crash-add", "Lifecycle & Ordering", Must, "", crashAdd},
	{"crash-del", "DEL", Must, "", crashDel},
}

func parallelAddDel(t *trial) {
	for range t.o.Parallel {
		t.touch(t.pod(), eth0)
	}
	n, results := len(t.pods), make([]*types100.Result, len(t.pods))
	check.Each(n, func(i int) { results[i] = check.Get(t.add(t.ctx, attachment(t.pods[i], eth0))) })
	distinct(t.pods, results)
	check.Each(n, func(i int) { t.works(t.pods[i], eth0, results[i]) })
	check.Each(n, func(i int) { t.delFrom(t.pods[i], eth0) })
	check.Each(n, func(i int) { check.Must(t.pods[i].clean()) })
}

// distinct ends the check if two pods have the same address or MAC.
func distinct(pods []*pod, results []*types100.Result) {
	owner := map[string]string{}
	for i, r := range results {
		names := []string{check.Get(pods[i].link(eth0)).Attrs().HardwareAddr.String()}
		for _, ip := range r.IPs {
			names = append(names, ip.Address.IP.String())
		}
		for _, name := range names {
			if other, taken := owner[name]; taken {
				check.Failf("%s and %s both have %s", other, pods[i].id, name)
			}
			owner[name] = pods[i].id
		}
	}
}

// parallelSameAttachment does what a runtime must not do. Exactly one ADD must succeed.
func parallelSameAttachment(t *trial) {
	p := t.pod()
	t.touch(p, eth0)
	const adds = 4
	var results [adds]*types100.Result
	refusals := check.Run(func() {
		check.Each(adds, func(i int) { results[i] = check.Get(t.add(t.ctx, attachment(p, eth0))) })
	})
	added := slices.DeleteFunc(results[:], func(r *types100.Result) bool { return r == nil })
	if len(added) != 1 {
		check.Must(errors.Join(fmt.Errorf("%d of %d concurrent ADDs of the same container and interface succeeded, want 1", len(added), adds), refusals))
	}
	t.works(p, eth0, added[0])
}

// kill runs a command and kills it at a random moment within its usual duration. The
// command may end before.
func (t *trial) kill(takes time.Duration, command func(context.Context) error) {
	check.Must(context.Cause(t.ctx))
	ctx := context.WithValue(context.WithoutCancel(t.ctx), killing{}, true)
	ctx, cancel := context.WithTimeout(ctx, 1+rand.N(takes))
	defer cancel()
	if err := command(ctx); ctx.Err() == nil {
		check.Must(err)
	}
}

func crashAdd(t *trial) {
	begin := time.Now()
	first, _ := t.up(eth0)
	takes := time.Since(begin)
	t.delFrom(first, eth0)
	for range t.o.Kills {
		p := t.pod()
		t.touch(p, eth0)
		t.kill(takes, func(ctx context.Context) error {
			_, err := t.add(ctx, attachment(p, eth0))
			return err
		})
		check.Within("after ADD was killed", func() { t.delFrom(p, eth0) })
		check.Within("after ADD was killed, and DEL", func() {
			t.mustBeEmpty(p)
			t.works(p, eth0, t.addTo(p, eth0))
		})
		t.delFrom(p, eth0)
	}
}

func crashDel(t *trial) {
	p := t.pod()
	takes := 50 * time.Millisecond
	for range t.o.Kills {
		check.Within("after DEL was killed, and DEL", func() { t.addTo(p, eth0) })
		t.kill(takes, func(ctx context.Context) error { return t.del(ctx, attachment(p, eth0)) })
		begin := time.Now()
		check.Within("after DEL was killed", func() { t.delFrom(p, eth0) })
		takes = max(takes, time.Since(begin))
		check.Within("after DEL was killed, and DEL", func() { t.mustBeEmpty(p) })
	}
}
