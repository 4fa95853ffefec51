package splitpod

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Options are what admission knows beyond a pod.
type Options struct {
	Span string // SpanNetwork, or else the fractions are on one host
	Key  string // of the pod's segment and volumes: a new secret
	// Claim returns the access modes of a PersistentVolumeClaim in the pod's namespace.
	Claim func(name string) ([]corev1.PersistentVolumeAccessMode, error)
}

// Admit changes a new pod that asks to be split: it keeps the containers and volumes of the first
// fraction, notes the others, and holds the pod until they have a place. An error names the field
// that cannot be kept, and the fix.
func Admit(p *corev1.Pod, o Options) error {
	if err := refuse(p, o.Span); err != nil {
		return err
	}
	names, err := parse(p)
	if err != nil {
		return err
	}
	fractions := make([]fraction, len(names))
	for i, f := range names {
		for _, c := range p.Spec.Containers {
			if slices.Contains(f, c.Name) {
				fractions[i].Containers = append(fractions[i].Containers, c)
			}
		}
	}
	if err := o.share(p, fractions); err != nil {
		return err
	}
	if err := ports(fractions); err != nil {
		return err
	}
	further, err := json.Marshal(fractions[1:])
	if err != nil {
		return fmt.Errorf("note fractions: %w", err)
	}
	p.Annotations[CompanionsAnnotation], p.Annotations[KeyAnnotation] = string(further), o.Key
	if o.Span == SpanNetwork {
		p.Annotations[SpanAnnotation] = o.Span
	}
	p.Spec.Containers, p.Spec.Volumes = fractions[0].Containers, fractions[0].Volumes
	p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: Gate})
	p.Spec.ReadinessGates = append(p.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: ReadyCondition})
	return nil
}

// ports gives the first container the names of the further fractions' ports, because Services find
// a named port in the pod. A port of a container is information only.
func ports(fractions []fraction) error {
	first := &fractions[0].Containers[0]
	first.Ports = slices.Clone(first.Ports)
	for _, f := range fractions[1:] {
		for _, c := range f.Containers {
			for _, port := range c.Ports {
				if port.HostPort != 0 {
					return fmt.Errorf("container %q has hostPort %d, which would be of another node than the pod's; put it into the first fraction", c.Name, port.HostPort)
				}
				known := slices.ContainsFunc(fractions[0].Containers, func(c corev1.Container) bool {
					return slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == port.Name })
				})
				if port.Name != "" && !known {
					first.Ports = append(first.Ports, port)
				}
			}
		}
	}
	return nil
}

// refuse returns why a pod cannot be split whatever its fractions are; nil: it can.
func refuse(p *corev1.Pod, span string) error {
	s := &p.Spec
	owner := metav1.GetControllerOf(p)
	for _, r := range []struct {
		is         bool
		field, fix string
	}{
		{s.HostNetwork, "hostNetwork: a node's localhost is not the pod's", "remove it"},
		{s.HostPID, "hostPID: fractions would see processes of different nodes", "remove it"},
		{s.HostIPC, "hostIPC: fractions would be in the IPC namespaces of different nodes", "remove it"},
		{s.ShareProcessNamespace != nil && *s.ShareProcessNamespace, "shareProcessNamespace: processes of several nodes have no common namespace", "remove it"},
		{span == SpanNetwork && ownsNetwork(s), "securityContext: a privileged container, or one with NET_ADMIN, could send into other segments of its node", "take that from it"},
		{len(s.ResourceClaims) > 0, "resourceClaims: devices of several nodes cannot be claimed for one pod", "remove them"},
		{s.Resources != nil, "resources: they cannot be divided between nodes", "set those of the containers"},
		{strings.Contains(hostname(p), "."), "name: companions cannot have its host name, because it has dots", "set hostname"},
		{s.NodeName != "", "nodeName: the pod has one node already", "use nodeSelector or affinity"},
		{owner != nil && owner.Kind == "DaemonSet", "owner: a pod of a DaemonSet belongs to one node", "remove the annotation from the DaemonSet's template"},
		{slices.ContainsFunc(s.Volumes, ofHost), "volumes: those of the driver " + VolumeDriver + " are for the webhook of split pods only", "use an emptyDir"},
		{p.Annotations[corev1.MirrorPodAnnotationKey] != "", "static pod: its node starts it without admission", "remove the annotation from the node's file"},
	} {
		if r.is {
			return fmt.Errorf("split the pod: %s; %s, or remove the annotation %s", r.field, r.fix, SplitAnnotation)
		}
	}
	for _, key := range []string{CompanionsAnnotation, SegmentAnnotation, KeyAnnotation, LabelsAnnotation, SpanAnnotation, NetworkAnnotation} {
		if _, ok := p.Annotations[key]; ok {
			return fmt.Errorf("annotation %s: it is for the controller of split pods only; remove it", key)
		}
	}
	for _, key := range []string{PodLabel, FractionLabel} {
		if _, ok := p.Labels[key]; ok {
			return fmt.Errorf("label %s: it is for the controller of split pods only; remove it", key)
		}
	}
	if _, ok := s.NodeSelector[HostLabel]; ok {
		return fmt.Errorf("nodeSelector %s: the controller of split pods chooses the host; remove it", HostLabel)
	}
	return nil
}

// ownsNetwork reports whether a container may change the pod's network devices.
func ownsNetwork(s *corev1.PodSpec) bool {
	return slices.ContainsFunc(slices.Concat(s.InitContainers, s.Containers), func(c corev1.Container) bool {
		x := c.SecurityContext
		return x != nil && (x.Privileged != nil && *x.Privileged ||
			x.Capabilities != nil && slices.ContainsFunc(x.Capabilities.Add, func(k corev1.Capability) bool {
				name := strings.TrimPrefix(strings.ToUpper(string(k)), "CAP_") // as runtimes read it
				return name == "NET_ADMIN" || name == "ALL"
			}))
	})
}

// kubernetesAnnotation reports whether an annotation of the pod is for its node too, such as that of
// its bandwidth.
func kubernetesAnnotation(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return domain != "kubectl.kubernetes.io" && (domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io"))
}
