package cni

import (
	"errors"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// statusChecks ask whether STATUS tells the truth.
var statusChecks = []check{
	{"status", "STATUS", Must, "1.1.0", func(t *trial) error { return t.status(t.ctx) }},
	{"status-no-delegate", "STATUS", Should, "1.1.0", statusNoDelegate},
}

// gcChecks ask whether GC keeps what is valid. It is run by a runtime that has
// lost its results: libcni deletes by itself what it has results of.
var gcChecks = []check{
	{"gc-keeps-valid", "GC", Must, "1.1.0", gcKeepsValid},
	{"gc-leaked", "GC", Must, "1.1.0", gcLeaked},
}

// capacityChecks use up the network.
var capacityChecks = []check{
	{"capacity-exhausted", "ADD", Must, "", capacityExhausted},
	{"status-exhausted", "STATUS", Should, "1.1.0", statusExhausted},
	{"gc-frees-leaked", "GC", Should, "1.1.0", gcFreesLeaked},
}

func statusNoDelegate(t *trial) error {
	if t.ipam == "" {
		return notApplicable("the network has no IPAM plugin")
	}
	config, err := t.config(nil)
	if err != nil {
		return err
	}
	_, err = t.refused(parameters{"CNI_COMMAND": "STATUS", "CNI_PATH": t.dir}, config)
	return err
}

// valid is what GC gets to know of pods.
func valid(pods ...*pod) (all []types.GCAttachment) {
	for _, p := range pods {
		all = append(all, types.GCAttachment{ContainerID: p.id, IfName: eth0})
	}
	return all
}

// fill adds n pods.
func (t *trial) fill(n int) (pods []*pod, results []*types100.Result, err error) {
	for i := range n {
		p, r, err := t.up(eth0)
		if err != nil {
			return nil, nil, fmt.Errorf("pod %d of %d: %w", i+1, n, err)
		}
		pods, results = append(pods, p), append(results, r)
	}
	return pods, results, nil
}

func gcKeepsValid(t *trial) error {
	pods, results, err := t.fill(2)
	if err != nil {
		return err
	}
	if err := t.forgetful().gc(t.ctx, valid(pods...)); err != nil {
		return err
	}
	for i, p := range pods {
		if err := t.works(p, eth0, results[i]); err != nil {
			return fmt.Errorf("a valid pod after GC: %w", err)
		}
	}
	return nil
}

func gcLeaked(t *trial) error {
	pods, results, err := t.fill(2)
	if err != nil {
		return err
	}
	if err := pods[0].remove(); err != nil {
		return err
	}
	if err := t.forgetful().gc(t.ctx, valid(pods[1])); err != nil {
		return err
	}
	if err := t.works(pods[1], eth0, results[1]); err != nil {
		return fmt.Errorf("the valid pod after GC of another: %w", err)
	}
	if err := t.delFrom(pods[0], eth0); err != nil {
		return fmt.Errorf("DEL of what GC has removed: %w", err)
	}
	return nil
}

// exhaust adds as many pods as the network can hold.
func (t *trial) exhaust() ([]*pod, []*types100.Result, error) {
	if t.o.Capacity == 0 {
		return nil, nil, notApplicable("the network's capacity was not given")
	}
	return t.fill(t.o.Capacity)
}

func capacityExhausted(t *trial) error {
	pods, results, err := t.exhaust()
	if err != nil {
		return err
	}
	late, _, err := t.up(eth0)
	if err := failed(fmt.Sprintf("ADD of pod %d", len(pods)+1), err); err != nil {
		return err
	}
	for i, p := range pods {
		if err := t.works(p, eth0, results[i]); err != nil {
			return fmt.Errorf("another pod after a failed ADD: %w", err)
		}
	}
	if err := errors.Join(t.delFrom(late, eth0), t.delFrom(pods[0], eth0)); err != nil {
		return err
	}
	r, err := t.addTo(late, eth0)
	if err != nil {
		return fmt.Errorf("with room again: %w", err)
	}
	return t.works(late, eth0, r)
}

func statusExhausted(t *trial) error {
	if _, _, err := t.exhaust(); err != nil {
		return err
	}
	return failed("STATUS of a network that is full", t.status(t.ctx))
}

func gcFreesLeaked(t *trial) error {
	leaked, _, err := t.exhaust()
	if err != nil {
		return err
	}
	for _, p := range leaked {
		if err := p.remove(); err != nil {
			return err
		}
	}
	if err := t.forgetful().gc(t.ctx, nil); err != nil {
		return err
	}
	if _, _, err := t.fill(t.o.Capacity); err != nil {
		return fmt.Errorf("after GC of all: %w", err)
	}
	return nil
}
