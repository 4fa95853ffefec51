package trace

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"unnest/internal/plan/cluster"
)

// podName is the name of a pod, or of what made it.
type podName struct{ namespace, name string }

func (n podName) String() string { return n.namespace + "/" + n.name }

type seenPod struct{ file, uid string }

// again reports whether the same pod was read before. Another pod of its name is an error,
// because the dumps are of two clusters.
func (t *kubectlDump) again(p *podKubectl) (bool, error) {
	name := podName{p.Metadata.Namespace, p.Metadata.Name}
	before, known := t.seen[name]
	if !known {
		t.seen[name] = seenPod{t.path, p.Metadata.UID}
		return false, nil
	}
	if p.Metadata.UID != "" && p.Metadata.UID == before.uid {
		return true, nil
	}
	return false, t.twoClusters("pod", name, before.file)
}

func (t *kubectlDump) twoClusters(kind string, name podName, before string) error {
	return fmt.Errorf("%s and %s have different objects of the same name, %s %s: they are dumps of two clusters, or of two times; plan them one by one",
		display(before), display(t.path), kind, name)
}

// daemon is a DaemonSet, or static pods of one name.
type daemon struct {
	file, uid string
	request   cluster.Resources // the largest of its pods
	nodes     map[string]bool
}

// daemon adds a pod to its DaemonSet.
func (t *kubectlDump) daemon(p *podKubectl, r cluster.Resources) error {
	name := podName{p.Metadata.Namespace, p.daemonSet()}
	d := t.daemons[name]
	if d == nil {
		d = &daemon{file: t.path, uid: p.ownerUID("DaemonSet"), nodes: map[string]bool{}}
		t.daemons[name] = d
	}
	if d.uid != p.ownerUID("DaemonSet") {
		return t.twoClusters("DaemonSet", name, d.file)
	}
	d.request = larger(d.request, r)
	d.nodes[p.Spec.NodeName] = true
	return nil
}

// finish gives all users what runs on every VM, and says what the figures leave out.
func (t *kubectlDump) finish(users []cluster.User) []cluster.User {
	names := slices.SortedFunc(maps.Keys(t.daemons), func(a, b podName) int {
		return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	})
	var sum cluster.PerVM
	for _, name := range names {
		d := t.daemons[name]
		sum.Request = sum.Request.Add(d.request)
		sum.Pods++
		t.rep.DaemonSets = append(t.rep.DaemonSets, cluster.DaemonSet{Name: name.String(), Request: d.request, Nodes: d.nodes})
	}
	t.rep.Rules, t.rep.Selectors = t.rules.list(), t.rules.keys()
	for i := range users {
		users[i].PerVM = sum
	}
	t.rep.Remarks = append(t.rep.Remarks, t.rep.asks.remarks()...)
	return users
}

// extended counts the pods that request what no VM model has.
type extended map[string]int

// add counts a pod, and reports whether it requests anything of the kind.
func (e *extended) add(p *podKubectl) bool {
	names := p.extended()
	if len(names) == 0 {
		return false
	}
	if *e == nil {
		*e = extended{}
	}
	(*e)[strings.Join(names, " and ")]++
	return true
}

func (e extended) remarks() (all []string) {
	for _, names := range slices.Sorted(maps.Keys(e)) {
		all = append(all, fmt.Sprintf("Left out: %d pods that request %s, which the catalogue's VMs do not have.", e[names], names))
	}
	return all
}
