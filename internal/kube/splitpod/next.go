package splitpod

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Step is what the controller does next. At most one field is set. After it the controller looks
// again, so it can end between any two steps.
type Step struct {
	Prepare Placement     // to note in the pod, with its labels and segment; without a host: nothing
	Create  []*corev1.Pod // companions
	Release []*corev1.Pod // whose gate to remove, in this order: the pod is the last, or alone the first if it has init containers
	Delete  []*corev1.Pod // with the grace period of the pod
	Connect []*corev1.Pod // fractions with the number and the nodes of their segment, which they lack; the pod is the first
	Update  []*corev1.Pod // companions that have other labels of the pod than it has now
	Rebuild string        // why the pod has to be deleted, so that its workload makes another one
	Ready   *bool         // what ReadyCondition should be
	Again   time.Duration // after which to look again, though nothing changes
}

// Cluster is what Next knows beyond a pod and its companions. Next always reads Now. It reads the rest only if Unplaced is true.
type Cluster struct {
	Nodes   []*corev1.Node
	Pods    []*corev1.Pod
	Volumes map[string]*corev1.NodeSelector // by claim of the pod, as Claims returns them: which nodes reach its volume
	Now     time.Time
}

// patience is how long a released fraction may have no node, and how long a pod may wait for a quota. Autoscalers need it to add nodes.
const patience = 10 * time.Minute

// Next returns what the controller does next for a split pod with these companions: those that it
// owns, by label and owner. An error says why the pod has to wait.
func Next(p *corev1.Pod, companions []*corev1.Pod, in Cluster) (Step, error) {
	companions = slices.Clone(companions)
	slices.SortFunc(companions, byNumber)
	switch {
	case p.DeletionTimestamp != nil, p.Status.Phase == corev1.PodSucceeded, p.Status.Phase == corev1.PodFailed:
		return Step{Delete: slices.DeleteFunc(companions, func(c *corev1.Pod) bool { return c.DeletionTimestamp != nil })}, nil
	case gated(p):
		return hold(p, companions, in)
	}
	return keep(p, companions, in)
}

// prepared reports whether Prepare has been done.
func prepared(p *corev1.Pod) bool {
	return p.Labels[PodLabel] == string(p.UID) && p.Spec.NodeSelector[HostLabel] != ""
}

// hold makes the companions of a pod that waits for them, and releases all when they exist.
func hold(p *corev1.Pod, companions []*corev1.Pod, in Cluster) (Step, error) {
	want, err := Companions(p)
	if err != nil {
		return Step{}, err
	}
	if !prepared(p) {
		if !placeless(p) {
			return Step{}, errors.New("the pod has other scheduling gates")
		}
		place, err := Place(append([]*corev1.Pod{p}, want...), in)
		return Step{Prepare: place}, err
	}
	for _, c := range companions {
		if c.DeletionTimestamp != nil {
			return Step{}, fmt.Errorf("companion %s is being deleted", c.Name)
		}
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

// deadlineExceeded is why a pod has failed that has run for longer than its activeDeadlineSeconds.
const deadlineExceeded = "DeadlineExceeded"

// keep looks after a pod that has been released. It releases the companions of one whose init containers
// have ended, and whose sidecars have started.
func keep(p *corev1.Pod, companions []*corev1.Pod, in Cluster) (Step, error) {
	want, err := Companions(p)
	if err != nil {
		return Step{}, err
	}
	ready := p.Spec.NodeName != "" // so that it does not change before all have nodes: unscheduled counts from it
	var stale []*corev1.Pod
	for _, w := range want {
		i := slices.IndexFunc(companions, func(c *corev1.Pod) bool { return c.Name == w.Name })
		switch {
		case i < 0:
			return Step{Rebuild: fmt.Sprintf("companion %s is gone", w.Name)}, nil
		case companions[i].DeletionTimestamp != nil:
			return Step{Rebuild: fmt.Sprintf("companion %s is being deleted", w.Name)}, nil
		case companions[i].Status.Reason == deadlineExceeded && p.Spec.ActiveDeadlineSeconds != nil && p.Status.StartTime != nil:
			return Step{Again: time.Second}, nil // the pod's own deadline is about to end it, and then says why
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
		connected, err := connect(p, companions, in.Nodes, in.Pods)
		if err != nil || len(connected) > 0 {
			return Step{Connect: connected}, err
		}
	}
	held := slices.DeleteFunc(slices.Clone(companions), func(c *corev1.Pod) bool { return !gated(c) })
	switch {
	case len(held) > 0 && isTrue(p, corev1.PodInitialized):
		return Step{Release: held}, nil
	case len(stale) > 0:
		return Step{Update: stale}, nil
	}
	noted := slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == ReadyCondition && c.Reason != ForbiddenReason
	})
	if ready != isTrue(p, ReadyCondition) || !noted {
		return Step{Ready: &ready}, nil
	}
	return unscheduled(p, companions, in.Now)
}

// unscheduled waits for the scheduler to find a node for each fraction, and then has the pod made again, so that it gets another place. It
// does not delete a pod that nobody makes again.
func unscheduled(p *corev1.Pod, companions []*corev1.Pod, now time.Time) (Step, error) {
	var released time.Time // the last ones, or somewhat later; conditions of the scheduler are as old as the gate
	for _, c := range p.Status.Conditions {
		if (c.Type == ReadyCondition || c.Type == corev1.PodInitialized) && c.LastTransitionTime.After(released) {
			released = c.LastTransitionTime.Time
		}
	}
	for _, f := range append(companions, p) {
		for _, c := range f.Status.Conditions {
			if f.Spec.NodeName != "" || c.Type != corev1.PodScheduled || c.Reason != corev1.PodReasonUnschedulable {
				continue
			}
			why := fmt.Sprintf("the scheduler has found no node for fraction %s since %s: %s", f.Name, released.UTC().Format(time.RFC3339), c.Message)
			switch left := released.Add(patience).Sub(now); {
			case left > 0:
				return Step{Again: left}, nil
			case metav1.GetControllerOf(p) == nil:
				return Step{}, errors.New(why + "; delete the pod and create it again, so that it gets another place")
			}
			return Step{Rebuild: why}, nil
		}
	}
	return Step{}, nil
}

// Refused returns since when the API server has refused a companion of a pod that waits for it; zero: it has not.
func Refused(p *corev1.Pod) time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == ReadyCondition && c.Reason == ForbiddenReason && gated(p) {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// Ahead returns one of the pods, all of one namespace, that waits for room in a quota and is older than p, which may not exist yet; nil:
// none. What p holds of the quota could be all that it needs.
func Ahead(p *corev1.Pod, pods []*corev1.Pod, now time.Time) *corev1.Pod {
	for _, o := range pods {
		age := o.CreationTimestamp.Compare(p.CreationTimestamp.Time)
		if now.Before(Refused(o).Add(patience)) && (p.UID == "" || age < 0 || age == 0 && o.UID < p.UID) {
			return o
		}
	}
	return nil
}

// Yield returns why a pod of which a companion is refused has to be deleted, so that its workload makes another one; empty: it waits.
// pods are those of its namespace.
func Yield(p *corev1.Pod, pods []*corev1.Pod, now time.Time) string {
	first, since := Ahead(p, pods, now), Refused(p)
	switch {
	case metav1.GetControllerOf(p) == nil: // nobody makes it again
	case first != nil:
		return fmt.Sprintf("pod %s waits for a quota, too, and is older", first.Name)
	case !since.IsZero() && !now.Before(since.Add(patience)):
		return "it gives others what it has of the quota"
	}
	return ""
}

// Prepare notes in the pod what its fractions need before they exist.
func Prepare(p *corev1.Pod, place Placement) {
	if p.Spec.NodeSelector == nil {
		p.Spec.NodeSelector = map[string]string{}
	}
	p.Spec.NodeSelector[HostLabel] = place.Host
	if fractions, err := further(p); err == nil && len(place.Nodes) == 1+len(fractions) {
		prefer(&p.Spec, place.Nodes[0], "")
		for i := range fractions {
			fractions[i].Node = place.Nodes[i+1]
		}
		text, _ := json.Marshal(fractions) // it was JSON before
		p.Annotations[CompanionsAnnotation] = string(text)
	}
	metav1.SetMetaDataLabel(&p.ObjectMeta, PodLabel, string(p.UID))
	metav1.SetMetaDataLabel(&p.ObjectMeta, FractionLabel, "0")
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, SegmentAnnotation, string(p.UID))
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

// Orphaned reports whether the pod is a companion that has been left over, as by kubectl delete --cascade=orphan.
func Orphaned(p *corev1.Pod) bool {
	_, ok := p.Annotations[LabelsAnnotation]
	return ok && p.Labels[PodLabel] != "" && strings.HasSuffix(p.Name, "-f"+p.Labels[FractionLabel]) && metav1.GetControllerOf(p) == nil && p.DeletionTimestamp == nil
}

// Unplaced reports whether Next needs the nodes and pods of the cluster.
func Unplaced(p *corev1.Pod) bool { return placeless(p) || !gated(p) && unconnected(p) }

// placeless reports whether the pod waits for a place, and for nothing else.
func placeless(p *corev1.Pod) bool {
	return gated(p) && !prepared(p) && len(p.Spec.SchedulingGates) == 1
}
