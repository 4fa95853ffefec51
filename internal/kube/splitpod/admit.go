package splitpod

import (
	"encoding/json"
	"fmt"
	"reflect"
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
	if err := appArmor(p, fractions[1:]); err != nil {
		return err
	}
	if err := o.share(p, fractions); err != nil {
		return err
	}
	for i, f := range fractions {
		if i == 0 {
			f.Containers = slices.Concat(f.Containers, p.Spec.InitContainers)
		}
		if field, name := f.foreign(); name != "" {
			return fmt.Errorf("%s names container %q, which is in another fraction; put both into one fraction", field, name)
		}
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

// appArmorPrefix begins the annotations that say a container's AppArmor profile. The field of the container has replaced them.
const appArmorPrefix = corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix

// appArmor moves the annotations of containers of further fractions into the containers: a pod must not have one of a container
// that it does not have.
func appArmor(p *corev1.Pod, fractions []fraction) error {
	for _, f := range fractions {
		for i := range f.Containers {
			c := &f.Containers[i]
			profile, ok := p.Annotations[appArmorPrefix+c.Name]
			if !ok {
				continue
			}
			delete(p.Annotations, appArmorPrefix+c.Name)
			context := corev1.SecurityContext{}
			if c.SecurityContext != nil {
				context = *c.SecurityContext
			}
			field := appArmorProfile(profile)
			if field == nil || context.AppArmorProfile != nil && !reflect.DeepEqual(field, context.AppArmorProfile) {
				return fmt.Errorf("annotation %s%s: %q is no profile, or another one than in the container's securityContext; remove it, and set appArmorProfile there", appArmorPrefix, c.Name, profile)
			}
			context.AppArmorProfile = field
			c.SecurityContext = &context
		}
	}
	return nil
}

// appArmorProfile returns the field for the value of an annotation; nil: the value is wrong.
func appArmorProfile(value string) *corev1.AppArmorProfile {
	name, local := strings.CutPrefix(value, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
	switch {
	case local:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	case value == corev1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case value == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	}
	return nil
}

// foreign returns a field of a fraction that asks for the resources of a container that the fraction does not have, and that container. The
// kubelet would never start the fraction.
func (f fraction) foreign() (field, name string) {
	for _, c := range f.Containers {
		for _, e := range c.Env {
			if e.ValueFrom != nil && f.lacks(e.ValueFrom.ResourceFieldRef) {
				return fmt.Sprintf("variable %q of container %q", e.Name, c.Name), e.ValueFrom.ResourceFieldRef.ContainerName
			}
		}
	}
	for _, v := range f.Volumes {
		var files []corev1.DownwardAPIVolumeFile
		if v.DownwardAPI != nil {
			files = v.DownwardAPI.Items
		}
		if v.Projected != nil {
			for _, s := range v.Projected.Sources {
				if s.DownwardAPI != nil {
					files = slices.Concat(files, s.DownwardAPI.Items)
				}
			}
		}
		for _, file := range files {
			if f.lacks(file.ResourceFieldRef) {
				return fmt.Sprintf("file %q of volume %q", file.Path, v.Name), file.ResourceFieldRef.ContainerName
			}
		}
	}
	return "", ""
}

func (f fraction) lacks(r *corev1.ResourceFieldSelector) bool {
	return r != nil && r.ContainerName != "" && !slices.ContainsFunc(f.Containers, func(c corev1.Container) bool { return c.Name == r.ContainerName })
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
