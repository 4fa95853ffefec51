package kubernetes

import (
	"cmp"
	"maps"
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
)

// podName is the name of a pod, or of what made it.
type podName struct{ namespace, name string }

func (n podName) String() string { return n.namespace + "/" + n.name }

// daemon is a DaemonSet.
type daemon struct {
	request cluster.Resources // the largest of its pods
	nodes   map[string]bool
	pod     *pod // one of them
}

// Daemon adds a pod to its DaemonSet.
func (d *Dump) Daemon(p *Pod) {
	name := podName{p.Object.Namespace, p.DaemonSet()}
	set := d.daemons[name]
	if set == nil {
		set = &daemon{nodes: map[string]bool{}, pod: d.add(p)}
		set.pod.daemon = true
		d.daemons[name] = set
	}
	set.request = set.request.Max(p.Request())
	set.nodes[p.Object.Spec.NodeName] = true
}

// sets returns the DaemonSets, and what they run on every VM.
func (d *Dump) sets() (all []cluster.DaemonSet, sum cluster.PerVM) {
	names := slices.SortedFunc(maps.Keys(d.daemons), func(a, b podName) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	for _, name := range names {
		set := d.daemons[name]
		sum.Request = sum.Request.Add(set.request)
		sum.Pods++
		all = append(all, cluster.DaemonSet{Name: name.String(), Request: set.request, Nodes: set.nodes, Rules: set.pod.rules})
	}
	return all, sum
}
