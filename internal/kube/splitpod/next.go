package splitpod

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Step is what the controller does next. At most one field is set. After it the controller looks
// again, so it can end between any two steps.
type Step struct {
	Prepare string        // host to note in the pod, with its labels and segment
	Create  []*corev1.Pod // companions
	Release []*corev1.Pod // whose gate to remove, in this order: the pod is the last, or alone the first if it has init containers
	Delete  []*corev1.Pod // with the grace period of the pod
	Connect []*corev1.Pod // fractions with the number and the nodes of their segment, which they lack; the pod is the first
	Update  []*corev1.Pod // companions that have other labels of the pod than it has now
	Rebuild string        // why the pod has to be deleted, so that its workload makes another one
	Ready   *bool         // what ReadyCondition should be
}

// Next returns what the controller does next for a split pod with these companions: those that it
// owns, by label and owner. nodes and pods are all of the cluster. An error says why the pod has to
// wait.
func Next(p *corev1.Pod, companions []*corev1.Pod, nodes []*corev1.Node, pods []*corev1.Pod) (Step, error) {
	companions = slices.Clone(companions)
	slices.SortFunc(companions, byNumber)
	switch {
	case p.DeletionTimestamp != nil, p.Status.Phase == corev1.PodSucceeded, p.Status.Phase == corev1.PodFailed:
		return Step{Delete: slices.DeleteFunc(companions, func(c *corev1.Pod) bool { return c.DeletionTimestamp != nil })}, nil
	case gated(p):
		return hold(p, companions, nodes, pods)
	}
	return keep(p, companions, nodes, pods)
}

// prepared reports whether Prepare has been done.
func prepared(p *corev1.Pod) bool {
	return p.Labels[PodLabel] == string(p.UID) && p.Spec.NodeSelector[HostLabel] != ""
}

// hold makes the companions of a pod that waits for them, and releases all when they exist.
func hold(p *corev1.Pod, companions []*corev1.Pod, nodes []*corev1.Node, pods []*corev1.Pod) (Step, error) {
	want, err := Companions(p)
	if err != nil {
		return Step{}, err
	}
	if !prepared(p) {
		if len(p.Spec.SchedulingGates) > 1 {
			return Step{}, errors.New("the pod has other scheduling gates")
		}
		host, err := Place(append([]*corev1.Pod{p}, want...), nodes, pods)
		return Step{Prepare: host}, err
	}
	for _, c := range companions {
		if c.DeletionTimestamp != nil {
			return Step{}, fmt.Errorf("companion %s is being deleted", c.Name)
		}
	}
	stale := slices.DeleteFunc(slices.Clone(companions), func(c *corev1.Pod) bool { // of an earlier version, which had no host for a span network
		return !gated(c) || c.Spec.NodeSelector[HostLabel] == p.Spec.NodeSelector[HostLabel]
	})
	if len(stale) > 0 {
		return Step{Delete: stale}, nil
	}
	missing := slices.DeleteFunc(want, func(w *corev1.Pod) bool {
		return slices.ContainsFunc(companions, func(c *corev1.Pod) bool { return c.Name == w.Name })
	})
	if len(missing) > 0 {
		return Step{Create: missing}, nil
	}
	if len(p.Spec.InitContainers) > 0 && !byNetwork(p) {
		return Step{Release: []*corev1.Pod{p}}, nil // keep releases the companions
	}
	return Step{Release: slices.DeleteFunc(append(companions, p), func(c *corev1.Pod) bool { return !gated(c) })}, nil
}

// keep looks after a pod that has been released. It releases the companions of one whose init containers
// have ended, and whose sidecars have started.
func keep(p *corev1.Pod, companions []*corev1.Pod, nodes []*corev1.Node, pods []*corev1.Pod) (Step, error) {
	want, err := Companions(p)
	if err != nil {
		return Step{}, err
	}
	ready := true
	var stale []*corev1.Pod
	for _, w := range want {
		i := slices.IndexFunc(companions, func(c *corev1.Pod) bool { return c.Name == w.Name })
		switch {
		case i < 0:
			return Step{Rebuild: fmt.Sprintf("companion %s is gone", w.Name)}, nil
		case companions[i].DeletionTimestamp != nil:
			return Step{Rebuild: fmt.Sprintf("companion %s is being deleted", w.Name)}, nil
		case companions[i].Status.Phase == corev1.PodFailed:
			return Step{Rebuild: fmt.Sprintf("companion %s has failed: %s %s", w.Name, companions[i].Status.Reason, companions[i].Status.Message)}, nil
		}
		ready = ready && isTrue(companions[i], corev1.PodReady)
		if companions[i].Annotations[LabelsAnnotation] != labels(p) {
			c := companions[i].DeepCopy()
			c.Annotations = maps.Clone(c.Annotations)
			c.Annotations[LabelsAnnotation] = labels(p)
			stale = append(stale, c)
		}
	}
	if byNetwork(p) {
		connected, err := connect(p, companions, nodes, pods)
		if err != nil || len(connected) > 0 {
			return Step{Connect: connected}, err
		}
	}
	held := slices.DeleteFunc(companions, func(c *corev1.Pod) bool { return !gated(c) })
	switch {
	case len(held) > 0 && isTrue(p, corev1.PodInitialized):
		return Step{Release: held}, nil
	case len(stale) > 0:
		return Step{Update: stale}, nil
	}
	if ready == isTrue(p, ReadyCondition) && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == ReadyCondition }) {
		return Step{}, nil
	}
	return Step{Ready: &ready}, nil
}

// Prepare notes in the pod what its fractions need before they exist.
func Prepare(p *corev1.Pod, host, key string) {
	set := func(m *map[string]string, key, value string) {
		if *m == nil {
			*m = map[string]string{}
		}
		(*m)[key] = value
	}
	set(&p.Spec.NodeSelector, HostLabel, host)
	set(&p.Labels, PodLabel, string(p.UID))
	set(&p.Labels, FractionLabel, "0")
	set(&p.Annotations, SegmentAnnotation, string(p.UID))
	if p.Annotations[KeyAnnotation] == "" { // an earlier version has admitted the pod
		set(&p.Annotations, KeyAnnotation, key)
	}
}

// Release removes the gate.
func Release(p *corev1.Pod) {
	p.Spec.SchedulingGates = slices.DeleteFunc(p.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) bool { return g.Name == Gate })
}

func gated(p *corev1.Pod) bool {
	return slices.Contains(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: Gate})
}

func isTrue(p *corev1.Pod, condition corev1.PodConditionType) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == condition && c.Status == corev1.ConditionTrue
	})
}

// Owns reports whether the companion is of the pod.
func Owns(p, companion *corev1.Pod) bool {
	return metav1.IsControlledBy(companion, p) && companion.Labels[PodLabel] == string(p.UID)
}

// Unplaced reports whether Next needs the nodes and pods of the cluster.
func Unplaced(p *corev1.Pod) bool { return gated(p) && !prepared(p) || !gated(p) && unconnected(p) }
