package pods

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ready reports whether the container of a pod runs.
func ready(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning && p.Status.PodIP != "" &&
		len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Running != nil
}

// gone says why a pod will not run any more: "pod x on node1 was evicted: The node was low on
// resource: memory". It is nil while the pod may run.
func gone(p *corev1.Pod) error {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return fmt.Errorf("pod %s on %s was evicted: %s: %s", p.Name, nodeOf(p), c.Reason, inLine(c.Message))
		}
	}
	switch {
	case p.DeletionTimestamp != nil:
		return fmt.Errorf("pod %s on %s is being deleted by somebody else", p.Name, nodeOf(p))
	case p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded:
		return nil
	case p.Status.Reason == "Evicted":
		return fmt.Errorf("pod %s on %s was evicted: %s", p.Name, nodeOf(p), inLine(p.Status.Message))
	}
	why := strings.TrimSpace(p.Status.Reason + " " + inLine(p.Status.Message))
	for _, c := range p.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil && why == "" {
			why = fmt.Sprintf("%s, exit code %d", t.Reason, t.ExitCode)
		}
	}
	return fmt.Errorf("pod %s on %s has ended: %s", p.Name, nodeOf(p), why)
}

// hopeless says why a pod that has not started never will.
func hopeless(p *corev1.Pod) error {
	for _, c := range p.Status.ContainerStatuses {
		w := c.State.Waiting
		if w == nil {
			continue
		}
		switch w.Reason {
		case "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError":
			return fmt.Errorf("image %s cannot be pulled on %s (%s): load bin/images/unnest-load.tar of `make images` into the node's container runtime, or push it to a registry and name it by --image",
				c.Image, nodeOf(p), inLine(w.Reason+" "+w.Message))
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff":
			return fmt.Errorf("pod %s on %s: %s", p.Name, nodeOf(p), inLine(w.Reason+" "+w.Message))
		}
	}
	return gone(p)
}

// waits says what a pod that has not started waits for.
func waits(p *corev1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return "it is not scheduled: " + inLine(c.Message)
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			return inLine(strings.TrimSpace(w.Reason + " " + w.Message))
		}
	}
	return "phase " + string(p.Status.Phase)
}

// nodeOf is the node that the pod is on, or is made for.
func nodeOf(p *corev1.Pod) string {
	if p.Spec.NodeName != "" {
		return p.Spec.NodeName
	}
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Values[0]
	}
	return "no node"
}

func inLine(text string) string { return strings.Join(strings.Fields(text), " ") }
