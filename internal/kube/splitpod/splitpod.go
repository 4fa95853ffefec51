// Package splitpod says what becomes of a pod that is to be split over several nodes of one host
// (Bacou et al. 2019, §4.1): which containers stay in the pod, which companion pods have the
// others, where all of them fit, and what a controller has to do next. docs/split-pods.md lists
// what a split pod promises.
//
// The fractions of a pod share one localhost by the CNI plugin hostlo, which reads the
// annotations of their segment.
package splitpod

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// SplitAnnotation asks for a split: the names of each fraction's containers with commas, and
// fractions with semicolons, such as "web,log;cache". The first fraction stays in the pod. Auto
// makes a fraction of each container, except that containers with a common volume that nodes
// cannot share stay together. Init containers run in the first fraction.
const (
	SplitAnnotation = "unnest.io/split"
	Auto            = "auto"
)

// What admission and the controller write into pods.
const (
	CompanionsAnnotation = "unnest.io/companions"      // of the pod: the further fractions and their nodes, in JSON
	SegmentAnnotation    = "unnest.io/segment"         // of all fractions: the pod's UID
	KeyAnnotation        = "unnest.io/segment-key"     // of all fractions
	ModeAnnotation       = "unnest.io/segment-mode"    // of all fractions, if the user writes it
	LabelsAnnotation     = "unnest.io/pod-labels"      // of companions: the pod's labels, in JSON
	SpanAnnotation       = "unnest.io/span"            // of the pod: network, if its nodes need not be of one host
	NetworkAnnotation    = "unnest.io/segment-network" // of all fractions, with that: number and nodes of the segment, in JSON
	PodLabel             = "unnest.io/split-pod"       // of all fractions: the pod's UID
	FractionLabel        = "unnest.io/fraction"        // of all fractions: 0 is the pod, 1 its first companion
	Gate                 = "unnest.io/fractions"       // of all fractions, until all exist and have a host
	ReadyCondition       = "unnest.io/fractions-ready" // of the pod: all companions are ready
	ForbiddenReason      = "FractionsForbidden"        // of that condition: the API server refuses a companion for want of a quota
)

// SpanNetwork is the value of SpanAnnotation: tunnels between nodes connect the fractions.
const SpanNetwork = "network"

// HostLabel is a node's label that says which nodes can share a segment: those of one host, or with SpanNetwork as its value
// all whose runtime calls the plugin hostlo. A kubelet cannot set it on its own node: NodeRestriction forbids such labels.
const HostLabel = "unnest.node-restriction.kubernetes.io/host"

// MaxFractions is how many guests a segment may have.
const MaxFractions = 16

// fraction is what a companion has of the pod's own. Everything else is as in the pod.
type fraction struct {
	Containers []corev1.Container `json:"containers"`
	Volumes    []corev1.Volume    `json:"volumes,omitempty"`
	Node       string             `json:"node,omitempty"` // where Prepare has found room
}

// parse returns the names of each fraction's containers.
func parse(p *corev1.Pod) ([][]string, error) {
	text := p.Annotations[SplitAnnotation]
	fail := func(format string, args ...any) error {
		return fmt.Errorf("annotation %s %q: %s", SplitAnnotation, text, fmt.Sprintf(format, args...))
	}
	var names []string
	for _, c := range p.Spec.Containers {
		names = append(names, c.Name)
	}
	if strings.TrimSpace(text) == Auto {
		if all := auto(p); len(all) > 1 {
			return all, nil
		}
		return nil, fail("nothing to split: the pod has one container, or its containers share volumes that nodes cannot share; remove the annotation")
	}
	var all [][]string
	seen := map[string]bool{}
	for part := range strings.SplitSeq(text, ";") {
		var f []string
		for name := range strings.SplitSeq(part, ",") {
			switch name = strings.TrimSpace(name); {
			case name == "":
				return nil, fail("fraction %d is empty, or has an empty name; write containers with commas and fractions with semicolons, such as %q, or %q", len(all)+1, "web,log;cache", Auto)
			case slices.ContainsFunc(p.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name }):
				return nil, fail("%q is an init container, and these run in the first fraction; remove its name", name)
			case !slices.Contains(names, name):
				return nil, fail("the pod has no container %q; its containers are %s", name, strings.Join(names, ", "))
			case seen[name]:
				return nil, fail("container %q is named twice; name it once", name)
			}
			seen[name] = true
			f = append(f, name)
		}
		all = append(all, f)
	}
	for _, name := range names {
		if !seen[name] {
			return nil, fail("container %q is in no fraction; add it to one", name)
		}
	}
	switch {
	case len(all) < 2:
		return nil, fail("one fraction is a whole pod; write two or more, with a semicolon between them, or remove the annotation")
	case len(all) > MaxFractions:
		return nil, fail("%d fractions; want at most %d", len(all), MaxFractions)
	}
	return all, nil
}

// auto returns a fraction for each container, with those together that must be. The first one is that of
// containers with a volume of an init container, if there is one. The last fraction takes the containers
// that would be too many.
func auto(p *corev1.Pod) (all [][]string) {
	early := map[string]bool{}     // containers with a volume of an init container
	users := map[string][]string{} // of volumes that nodes cannot share
	for _, v := range p.Spec.Volumes {
		if copied(v) {
			continue
		}
		prepared := userOf(p.Spec.InitContainers, v.Name) != ""
		for _, c := range p.Spec.Containers {
			if uses(c, v.Name) {
				users[v.Name] = append(users[v.Name], c.Name)
				early[c.Name] = early[c.Name] || prepared
			}
		}
	}
	for _, c := range p.Spec.Containers {
		f := []string{c.Name}
		all = slices.DeleteFunc(all, func(other []string) bool {
			together := slices.ContainsFunc(other, func(name string) bool {
				if early[name] && early[c.Name] {
					return true
				}
				for _, names := range users {
					if slices.Contains(names, name) && slices.Contains(names, c.Name) {
						return true
					}
				}
				return false
			})
			if together {
				f = append(other, f...)
			}
			return together
		})
		all = append(all, f)
	}
	order := func(f []string) int {
		if slices.ContainsFunc(f, func(name string) bool { return early[name] }) {
			return -1
		}
		return slices.IndexFunc(p.Spec.Containers, func(c corev1.Container) bool { return slices.Contains(f, c.Name) })
	}
	slices.SortFunc(all, func(a, b []string) int { return order(a) - order(b) })
	for len(all) > MaxFractions {
		all[len(all)-2] = append(all[len(all)-2], all[len(all)-1]...)
		all = all[:len(all)-1]
	}
	return all
}

// copied reports whether every fraction can have a copy of the volume, because nobody writes it.
func copied(v corev1.Volume) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.Projected != nil || v.DownwardAPI != nil || v.Image != nil
}

func uses(c corev1.Container, volume string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume }) ||
		slices.ContainsFunc(c.VolumeDevices, func(d corev1.VolumeDevice) bool { return d.Name == volume })
}

func userOf(containers []corev1.Container, volume string) string {
	i := slices.IndexFunc(containers, func(c corev1.Container) bool { return uses(c, volume) })
	if i < 0 {
		return ""
	}
	return containers[i].Name
}

// Asked reports whether the pod asks to be split.
func Asked(p *corev1.Pod) bool { _, ok := p.Annotations[SplitAnnotation]; return ok }

// IsSplit reports whether admission has split the pod.
func IsSplit(p *corev1.Pod) bool {
	_, ok := p.Annotations[CompanionsAnnotation]
	return ok && Asked(p)
}

var errNotSplit = errors.New("the pod is not split")
