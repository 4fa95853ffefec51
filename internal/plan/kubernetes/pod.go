package kubernetes

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	helpers "k8s.io/component-helpers/resource"
	"sigs.k8s.io/json"

	"unnest.io/unnest/internal/plan/cluster"
)

// Pod is a pod of a dump.
type Pod struct {
	cluster.Pod
	Object  *corev1.Pod
	Outcome Outcome

	unknown []string // fields of its spec that this version does not know
}

// Outcome says whether a pod can be planned, and why not.
type Outcome uint8

// The outcomes.
const (
	Planned     Outcome = iota
	Negative            // a request below zero
	Beyond              // more than any machine
	Finished            // it has completed
	Terminating         // it is being deleted
	OfDaemonSet         // it counts on every VM
	Extended            // it requests what no VM model has, such as GPUs
)

// ParsePod reads a pod (core/v1).
func ParsePod(raw []byte) (*Pod, error) {
	p := &Pod{Object: &corev1.Pod{}}
	strict, err := json.UnmarshalStrict(raw, p.Object, json.DisallowUnknownFields)
	if err != nil {
		return nil, err
	}
	if p.Object.Name == "" || len(p.Object.Spec.Containers) == 0 {
		return nil, fmt.Errorf("pod %q has no name or no containers", p.Object.Name)
	}
	for _, err := range strict {
		if _, field, ok := strings.Cut(err.Error(), `"spec.`); ok {
			p.unknown = append(p.unknown, "spec."+strings.TrimSuffix(field, `"`))
		}
	}
	p.Pod, p.Outcome = convert(p.Object)
	switch status := p.Object.Status.Phase; {
	case status == corev1.PodSucceeded || status == corev1.PodFailed:
		p.Outcome = Finished
	case p.Object.DeletionTimestamp != nil:
		p.Outcome = Terminating
	case p.Outcome == Planned && p.DaemonSet() != "":
		p.Outcome = OfDaemonSet
	case p.Outcome == Planned && len(p.Extended()) > 0:
		p.Outcome = Extended
	}
	return p, nil
}

// sidecar reports whether an init container keeps running next to the other containers.
func sidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// LinksAnnotation is the annotation of a pod with the traffic between its containers: names
// and weights, such as "web:cache=5,web:log=0.5".
const LinksAnnotation = "unnest.io/links"

// AnnotatedLinks reads the annotation. It may name containers and sidecars.
func (p *Pod) AnnotatedLinks() ([]cluster.Link, error) {
	text := p.Object.Annotations[LinksAnnotation]
	if text == "" {
		return nil, nil
	}
	index := map[string]int{}
	for i, c := range p.Containers {
		index[c.Name] = i
	}
	var links []cluster.Link
	for one := range strings.SplitSeq(text, ",") {
		names, weight, _ := strings.Cut(one, "=")
		a, b, _ := strings.Cut(strings.TrimSpace(names), ":")
		w, err := strconv.ParseFloat(strings.TrimSpace(weight), 64)
		if err != nil || !(w >= 0) || math.IsInf(w, 1) {
			return nil, fmt.Errorf("pod %s: annotation %s: %q: want A:B=WEIGHT, such as web:cache=5", p.Name, LinksAnnotation, one)
		}
		i, knownA := index[a]
		j, knownB := index[b]
		if !knownA || !knownB || i == j {
			return nil, fmt.Errorf("pod %s: annotation %s: %q: want two containers or sidecars of the pod", p.Name, LinksAnnotation, one)
		}
		links = append(links, cluster.Link{A: i, B: j, Weight: w})
	}
	return links, nil
}

// DaemonSet returns the name of the pod's DaemonSet, empty if it has none.
func (p *Pod) DaemonSet() string {
	for _, o := range p.Object.OwnerReferences {
		if o.Kind == "DaemonSet" {
			return o.Name
		}
	}
	return ""
}

// OwnerUID returns the UID of the pod's owner of a kind, empty if it has none.
func (p *Pod) OwnerUID(kind string) string {
	for _, o := range p.Object.OwnerReferences {
		if o.Kind == kind {
			return string(o.UID)
		}
	}
	return ""
}

// static reports whether a kubelet runs the pod from a file of its node.
func static(p *corev1.Pod) bool {
	return p.Annotations[corev1.MirrorPodAnnotationKey] != "" || slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Node" })
}

// whole reports whether the pod must not be split: it uses namespaces or ports of its node, its
// containers see each other's processes or files, or a kubelet runs it from a file.
func whole(p *corev1.Pod) bool {
	s := &p.Spec
	if s.HostNetwork || s.HostPID || s.HostIPC || s.ShareProcessNamespace != nil && *s.ShareProcessNamespace || static(p) || sharesVolume(p) {
		return true
	}
	for _, c := range slices.Concat(s.InitContainers, s.Containers) {
		for _, port := range c.Ports {
			if port.HostPort > 0 {
				return true
			}
		}
	}
	return false
}

// Extended returns the names of the resources besides CPU, memory and local storage that the
// pod requests, sorted.
func (p *Pod) Extended() (names []string) {
	s := &p.Object.Spec
	lists := []corev1.ResourceList{s.Overhead}
	if s.Resources != nil {
		lists = append(lists, s.Resources.Requests)
	}
	for _, c := range slices.Concat(s.InitContainers, s.Containers) {
		lists = append(lists, c.Resources.Requests)
	}
	for _, list := range lists {
		for name, q := range list {
			if name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourceEphemeralStorage && !q.IsZero() {
				names = append(names, string(name))
			}
		}
	}
	if len(s.ResourceClaims) > 0 {
		names = append(names, "devices by a ResourceClaim")
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// origin returns where the pod is from. A ReplicaSet of a Deployment counts as the Deployment.
func origin(p *corev1.Pod) *cluster.Origin {
	o := &cluster.Origin{Namespace: p.Namespace, Name: p.Name, Node: p.Spec.NodeName}
	for _, owner := range p.OwnerReferences {
		if o.Kind == "" || owner.Controller != nil && *owner.Controller {
			o.Kind, o.Workload = owner.Kind, owner.Name
		}
	}
	if hash := p.Labels["pod-template-hash"]; o.Kind == "ReplicaSet" && hash != "" {
		if name, ok := strings.CutSuffix(o.Workload, "-"+hash); ok {
			o.Kind, o.Workload = "Deployment", name
		}
	}
	return o
}

// convert returns the pod with its requests, or why it has none.
//
// Kubernetes counts, for each resource, the larger of two sums: the requests of all
// containers and sidecars (init containers that always restart), and the peak during
// start-up, when each init container runs next to the sidecars started before it. It adds
// the overhead of the runtime class (KEP-753, "Resources calculation for scheduling and pod
// admission"; PodRequests in k8s.io/component-helpers/resource). Requests of the pod as a
// whole (KEP-2837) replace those of its containers. A container that is resized in place
// counts as the larger of what it has and what it asks for: see effective.
//
// Containers and sidecars become containers. What the pod requests beyond them becomes
// Overhead, because it belongs to none of them.
func convert(p *corev1.Pod) (cluster.Pod, Outcome) {
	pod := cluster.Pod{Name: p.Name, Whole: whole(p), Origin: origin(p)}
	var sum, sidecars, peak cluster.Resources
	why := Planned
	add := func(c *corev1.Container, of []corev1.ContainerStatus, runs bool) cluster.Resources {
		r, bad := effective(p, c, of)
		why = max(why, bad)
		if !sum.Fits(cluster.MostRequested) || !sidecars.Fits(cluster.MostRequested) {
			why = max(why, Beyond) // and no sum overflows
			return cluster.Resources{}
		}
		if runs {
			if limit, _ := Requests(c.Resources.Limits); limit != (cluster.Resources{}) {
				if pod.Origin.Limits == nil {
					pod.Origin.Limits = map[string]cluster.Resources{}
				}
				pod.Origin.Limits[c.Name] = limit
			}
			sum = sum.Add(r)
			pod.Containers = append(pod.Containers, cluster.Container{Name: c.Name, Request: r})
		}
		return r
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		r := add(c, p.Status.InitContainerStatuses, sidecar(c))
		if sidecar(c) {
			sidecars = sidecars.Add(r)
			peak = peak.Max(sidecars)
		} else {
			peak = peak.Max(sidecars.Add(r))
		}
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i], p.Status.ContainerStatuses, true)
	}
	overhead, bad := Requests(p.Spec.Overhead)
	needs := sum.Max(peak)
	badToo := Planned
	if p.Spec.Resources != nil {
		var level cluster.Resources
		level, badToo = podLevel(p)
		if _, has := p.Spec.Resources.Requests[corev1.ResourceCPU]; has {
			needs.CPU = max(level.CPU, sum.CPU)
		}
		if _, has := p.Spec.Resources.Requests[corev1.ResourceMemory]; has {
			needs.Memory = max(level.Memory, sum.Memory)
		}
		pod.Origin.Fixed = len(p.Spec.Resources.Requests) > 0
	}
	pod.Overhead = overhead.Add(needs.Sub(sum))
	pod.Origin.Startup = peak
	pod.Origin.Sidecars = len(pod.Containers) - len(p.Spec.Containers)
	if why = max(why, bad, badToo); why == Planned && !pod.Request().Fits(cluster.MostRequested) {
		why = Beyond
	}
	pod.Whole = pod.Whole || why == Planned && !pod.Starts()
	return pod, why
}

// effective returns the largest of what a container asks for, what its node has allocated, and
// what it has. A resize that the node cannot make (Infeasible) asks for nothing.
func effective(p *corev1.Pod, c *corev1.Container, of []corev1.ContainerStatus) (cluster.Resources, Outcome) {
	asked, why := Requests(c.Resources.Requests)
	for i := range of {
		if of[i].Name == c.Name {
			return resized(p, asked, why, of[i].AllocatedResources, of[i].Resources)
		}
	}
	return asked, why
}

// podLevel is effective for the requests of the pod as a whole.
func podLevel(p *corev1.Pod) (cluster.Resources, Outcome) {
	asked, why := Requests(p.Spec.Resources.Requests)
	return resized(p, asked, why, p.Status.AllocatedResources, p.Status.Resources)
}

func resized(p *corev1.Pod, asked cluster.Resources, why Outcome, allocated corev1.ResourceList, has *corev1.ResourceRequirements) (cluster.Resources, Outcome) {
	var running corev1.ResourceList
	if has != nil {
		running = has.Requests
	}
	given, bad := Requests(allocated)
	now, badToo := Requests(running)
	if helpers.IsPodResizeInfeasible(p) && len(allocated)+len(running) > 0 {
		asked = cluster.Resources{}
	}
	return asked.Max(given).Max(now), max(why, bad, badToo)
}

// Requests returns the CPU and memory of a list of resources, rounded up.
func Requests(list corev1.ResourceList) (cluster.Resources, Outcome) {
	cpu, memory := list[corev1.ResourceCPU], list[corev1.ResourceMemory]
	switch {
	case cpu.Sign() < 0 || memory.Sign() < 0:
		return cluster.Resources{}, Negative
	case cpu.CmpInt64(cluster.MostRequested.CPU/cluster.VCPU) > 0 || memory.CmpInt64(cluster.MostRequested.Memory) > 0:
		return cluster.Resources{}, Beyond
	}
	return cluster.Resources{CPU: cpu.ScaledValue(resource.Nano), Memory: memory.Value()}, Planned
}
