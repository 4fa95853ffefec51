package cni

import (
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"unnest.io/unnest/internal/check"
)

// statusCases check that STATUS is correct.
var statusCases = []testCase{
	{"status", "STATUS", Must, "1.1.0", func(t *trial) { check.Must(t.status(t.ctx)) }},
	{"status-no-delegate", "STATUS", Should, "1.1.0", statusNoDelegate},
}

// gcCases check that GC keeps valid attachments. They act as a runtime that has lost its
// results, because libcni itself deletes those whose results it has.
var gcCases = []testCase{
	{"gc-keeps-valid", "GC", Must, "1.1.0", gcKeepsValid},
	{"gc-leaked", "GC", Must, "1.1.0", gcLeaked},
}

// capacityCases exhaust the network.
var capacityCases = []testCase{
	{"capacity-exhausted", "ADD", Must, "", capacityExhausted},
	{"status-exhausted", "STATUS", Should, "1.1.0", statusExhausted},
	{"gc-frees-leaked", "GC", Should, "1.1.0", gcFreesLeaked},
}

func statusNoDelegate(t *trial) {
	if t.ipam == "" {
		check.Skip(noIPAM)
	}
	a := check.Get(t.raw(t.ctx, parameters{"CNI_COMMAND": "STATUS", "CNI_PATH": t.dir}, check.Get(t.config(nil))))
	check.Get(a.failure())
}

// collect runs GC with the given pods as the valid ones.
func (t *trial) collect(valid ...*pod) {
	var all []types.GCAttachment
	for _, p := range valid {
		all = append(all, types.GCAttachment{ContainerID: p.id, IfName: eth0})
	}
	check.Must(t.withoutResults().gc(t.ctx, all))
}

func (t *trial) fill(n int) (pods []*pod, results []*types100.Result) {
	for i := range n {
		check.Within(fmt.Sprintf("pod %d of %d", i+1, n), func() {
			p, r := t.up(eth0)
			pods, results = append(pods, p), append(results, r)
		})
	}
	return pods, results
}

// allWork ends the check unless each pod works.
func (t *trial) allWork(when string, pods []*pod, results []*types100.Result) {
	check.Within(when, func() {
		for i, p := range pods {
			t.works(p, eth0, results[i])
		}
	})
}

func gcKeepsValid(t *trial) {
	pods, results := t.fill(2)
	t.collect(pods...)
	t.allWork("a valid pod after GC", pods, results)
}

func gcLeaked(t *trial) {
	pods, results := t.fill(2)
	check.Must(pods[0].remove())
	t.collect(pods[1])
	t.allWork("the valid pod after GC of another", pods[1:], results[1:])
	check.Within("DEL of what GC has removed", func() { t.delFrom(pods[0], eth0) })
}

// exhaust adds as many pods as the network can hold.
func (t *trial) exhaust() ([]*pod, []*types100.Result) {
	if t.o.Capacity == 0 {
		check.Skip("the capacity of the network is unknown")
	}
	return t.fill(t.o.Capacity)
}

func capacityExhausted(t *trial) {
	pods, results := t.exhaust()
	late := t.pod()
	_, err := t.tryAdd(late, eth0)
	mustFail(fmt.Sprintf("ADD of pod %d", len(pods)+1), err)
	t.allWork("another pod after a failed ADD", pods, results)
	t.delFrom(late, eth0)
	t.delFrom(pods[0], eth0)
	check.Within("after another pod has left", func() { t.works(late, eth0, t.addTo(late, eth0)) })
}

func statusExhausted(t *trial) {
	t.exhaust()
	mustFail("STATUS of a full network", t.status(t.ctx))
}

func gcFreesLeaked(t *trial) {
	leaked, _ := t.exhaust()
	for _, p := range leaked {
		check.Must(p.remove())
	}
	t.collect()
	check.Within("after GC of all pods", func() { t.fill(t.o.Capacity) })
}
