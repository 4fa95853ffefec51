package splitpod

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Companions returns the pods of the further fractions of a split pod, as they are to be created.
// They belong to the pod, so they are deleted with it. They do not have its labels: Services,
// ReplicaSets, PodDisruptionBudgets and autoscalers count the pod once. For NetworkPolicies, the
// policy client reads the pod's labels from an annotation.
func Companions(p *corev1.Pod) (all []*corev1.Pod, err error) {
	fractions, err := further(p)
	for i, f := range fractions {
		all = append(all, companion(p, i+1, f))
	}
	return all, err
}

// further returns the fractions that are noted in the pod.
func further(p *corev1.Pod) (all []fraction, err error) {
	text, ok := p.Annotations[CompanionsAnnotation]
	if !ok {
		return nil, errNotSplit
	}
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return nil, fmt.Errorf("read annotation %s: %w", CompanionsAnnotation, err)
	}
	return all, nil
}

func companion(p *corev1.Pod, number int, f fraction) *corev1.Pod {
	spec := *p.Spec.DeepCopy()
	spec.Containers, spec.InitContainers, spec.Volumes = f.Containers, nil, f.Volumes
	spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: Gate}}
	spec.ReadinessGates, spec.EphemeralContainers, spec.NodeName = nil, nil, ""
	spec.Hostname = hostname(p)
	// Those that the pod has tell where the first fraction may be. No two fractions are on one node.
	spec.TopologySpreadConstraints = nil
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	spec.Affinity.PodAffinity = nil
	spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{PodLabel: string(p.UID)}}, TopologyKey: corev1.LabelHostname,
	}}}
	if f.Node != "" {
		prefer(&spec, f.Node, preferred(p))
	}
	for _, v := range spec.Volumes {
		if ofHost(v) && v.CSI.VolumeAttributes != nil {
			v.CSI.VolumeAttributes["pod"] = string(p.UID)
		}
	}
	for i := range spec.Containers {
		environment(p, spec.Containers[i].Env)
	}
	c := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: companionName(p.Name, number),
			Labels:          map[string]string{PodLabel: string(p.UID), FractionLabel: strconv.Itoa(number)},
			Annotations:     map[string]string{SegmentAnnotation: p.Annotations[SegmentAnnotation], KeyAnnotation: p.Annotations[KeyAnnotation], LabelsAnnotation: labels(p)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(p, corev1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Spec: spec,
	}
	for key, value := range p.Annotations {
		if kubernetesAnnotation(key) && !strings.HasPrefix(key, appArmorPrefix) || key == ModeAnnotation {
			c.Annotations[key] = value
		}
	}
	return c
}

// companionName keeps within the 253 bytes of a name.
func companionName(pod string, number int) string {
	suffix := "-f" + strconv.Itoa(number)
	return strings.TrimRight(pod[:min(len(pod), 253-len(suffix))], "-.") + suffix
}

// hostname returns the host name of companions: that which the kubelet gives the pod. For a pod without a name yet, it is the beginning.
func hostname(p *corev1.Pod) string {
	if p.Spec.Hostname != "" || p.Spec.HostnameOverride != nil {
		return p.Spec.Hostname
	}
	name := cmp.Or(p.Name, p.GenerateName)
	return strings.TrimRight(name[:min(len(name), 63)], "-.")
}

// labels returns the pod's labels without ours, in JSON.
func labels(p *corev1.Pod) string {
	own := maps.Clone(p.Labels)
	delete(own, PodLabel)
	delete(own, FractionLabel)
	text, _ := json.Marshal(own) // a map of strings always marshals
	return string(text)
}

// environment gives variables the pod's metadata in place of the companion's.
func environment(p *corev1.Pod, variables []corev1.EnvVar) {
	for i := range variables {
		v := &variables[i]
		if v.ValueFrom == nil || v.ValueFrom.FieldRef == nil {
			continue
		}
		value := ""
		switch path := v.ValueFrom.FieldRef.FieldPath; {
		case path == "metadata.name":
			value = p.Name
		case path == "metadata.uid":
			value = string(p.UID)
		case strings.HasPrefix(path, "metadata.labels["):
			value = p.Labels[subscript(path)]
		case strings.HasPrefix(path, "metadata.annotations["):
			value = p.Annotations[subscript(path)]
		default:
			continue
		}
		v.Value, v.ValueFrom = strings.ReplaceAll(value, "$(", "$$("), nil // the kubelet expands values
	}
}

// subscript returns KEY of metadata.labels['KEY'].
func subscript(path string) string {
	_, key, _ := strings.Cut(path, "['")
	return strings.TrimSuffix(key, "']")
}

// EffectiveLabels returns the labels by which NetworkPolicies select a pod: those of a companion
// are its own and, if they do not differ from these, the labels of the pod whose fraction it is.
func EffectiveLabels(p *corev1.Pod) map[string]string {
	owner := metav1.GetControllerOf(p)
	text, ok := p.Annotations[LabelsAnnotation]
	if !ok || owner == nil || owner.Kind != "Pod" || p.Labels[PodLabel] != string(owner.UID) {
		return p.Labels
	}
	all := map[string]string{}
	if json.Unmarshal([]byte(text), &all) != nil {
		return p.Labels
	}
	maps.Copy(all, p.Labels)
	return all
}
