package trace

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"unnest/internal/plan/cluster"
)

// podKubectl has the fields of a pod (core/v1) that matter here.
type podKubectl struct {
	Metadata struct {
		Name      string            `json:"name"`
		Namespace string            `json:"namespace"`
		UID       string            `json:"uid"`
		Deletion  string            `json:"deletionTimestamp"`
		Labels    map[string]string `json:"labels"`
		Notes     map[string]string `json:"annotations"`
		Owners    []ownerKubectl    `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		NodeName     string                       `json:"nodeName"`
		HostNetwork  bool                         `json:"hostNetwork"`
		HostPID      bool                         `json:"hostPID"`
		HostIPC      bool                         `json:"hostIPC"`
		ShareProcess bool                         `json:"shareProcessNamespace"`
		Overhead     map[string]resource.Quantity `json:"overhead"`
		Resources    resourcesKubectl             `json:"resources"`
		Claims       []struct{}                   `json:"resourceClaims"`
		rulesKubectl
		Init       []containerKubectl `json:"initContainers"`
		Containers []containerKubectl `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase      string `json:"phase"`
		Conditions []struct {
			Type   string `json:"type"`
			Reason string `json:"reason"`
		} `json:"conditions"`
		statusKubectl
		Init       []statusKubectl `json:"initContainerStatuses"`
		Containers []statusKubectl `json:"containerStatuses"`
	} `json:"status"`
}

type ownerKubectl struct {
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	UID        string `json:"uid"`
	Controller bool   `json:"controller"`
}

type resourcesKubectl struct {
	Requests map[string]resource.Quantity `json:"requests"`
}

// statusKubectl is what a pod or container has while it is resized in place (KEP-1287).
type statusKubectl struct {
	Name      string                       `json:"name"`
	Allocated map[string]resource.Quantity `json:"allocatedResources"`
	Resources resourcesKubectl             `json:"resources"`
}

type containerKubectl struct {
	Name          string           `json:"name"`
	RestartPolicy string           `json:"restartPolicy"`
	Resources     resourcesKubectl `json:"resources"`
	Ports         []struct {
		HostPort int32 `json:"hostPort"`
	} `json:"ports"`
}

// sidecar reports whether an init container keeps running next to the other containers.
func (c *containerKubectl) sidecar() bool { return c.RestartPolicy == "Always" }

// LinksAnnotation is the annotation of a pod with the traffic between its containers: names
// and weights, such as "web:cache=5,web:log=0.5".
const LinksAnnotation = "unnest.io/links"

// annotatedLinks reads the annotation. It may name containers and sidecars.
func annotatedLinks(pod cluster.Pod, text string) ([]cluster.Link, error) {
	if text == "" {
		return nil, nil
	}
	index := containerIndex(&pod)
	var links []cluster.Link
	for one := range strings.SplitSeq(text, ",") {
		names, weight, _ := strings.Cut(one, "=")
		a, b, _ := strings.Cut(strings.TrimSpace(names), ":")
		w, err := strconv.ParseFloat(strings.TrimSpace(weight), 64)
		if err != nil || !(w >= 0) || math.IsInf(w, 1) {
			return nil, fmt.Errorf("pod %s: annotation %s: %q: want A:B=WEIGHT, such as web:cache=5", pod.Name, LinksAnnotation, one)
		}
		i, knownA := index[a]
		j, knownB := index[b]
		if !knownA || !knownB || i == j {
			return nil, fmt.Errorf("pod %s: annotation %s: %q: want two containers or sidecars of the pod", pod.Name, LinksAnnotation, one)
		}
		links = append(links, cluster.Link{A: i, B: j, Weight: w})
	}
	return links, nil
}

// daemonSet returns the name of the pod's DaemonSet, empty if it has none.
func (p *podKubectl) daemonSet() string {
	for _, o := range p.Metadata.Owners {
		if o.Kind == "DaemonSet" {
			return o.Name
		}
	}
	return ""
}

func (p *podKubectl) ownerUID(kind string) string {
	for _, o := range p.Metadata.Owners {
		if o.Kind == kind {
			return o.UID
		}
	}
	return ""
}

// static reports whether a kubelet runs the pod from a file of its node.
func (p *podKubectl) static() bool {
	return p.Metadata.Notes["kubernetes.io/config.mirror"] != "" || p.ownerUID("Node") != "" ||
		slices.ContainsFunc(p.Metadata.Owners, func(o ownerKubectl) bool { return o.Kind == "Node" })
}

// whole reports whether the pod must not be split: it uses namespaces or ports of its node,
// its containers see each other's processes, or a kubelet runs it from a file.
func (p *podKubectl) whole() bool {
	s := &p.Spec
	if s.HostNetwork || s.HostPID || s.HostIPC || s.ShareProcess || p.static() {
		return true
	}
	for _, c := range slices.Concat(s.Init, s.Containers) {
		for _, port := range c.Ports {
			if port.HostPort > 0 {
				return true
			}
		}
	}
	return false
}

// extended returns the names of the resources besides CPU, memory and local storage that the
// pod requests, sorted.
func (p *podKubectl) extended() (names []string) {
	lists := []map[string]resource.Quantity{p.Spec.Resources.Requests, p.Spec.Overhead}
	for _, c := range slices.Concat(p.Spec.Init, p.Spec.Containers) {
		lists = append(lists, c.Resources.Requests)
	}
	for _, list := range lists {
		for name, q := range list {
			if name != "cpu" && name != "memory" && name != "ephemeral-storage" && !q.IsZero() {
				names = append(names, name)
			}
		}
	}
	if len(p.Spec.Claims) > 0 {
		names = append(names, "devices by a ResourceClaim")
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// origin returns where the pod is from. A ReplicaSet of a Deployment counts as the Deployment.
func (p *podKubectl) origin() *cluster.Origin {
	o := &cluster.Origin{Namespace: p.Metadata.Namespace, Name: p.Metadata.Name, Node: p.Spec.NodeName}
	for _, owner := range p.Metadata.Owners {
		if o.Kind == "" || owner.Controller {
			o.Kind, o.Workload = owner.Kind, owner.Name
		}
	}
	if hash := p.Metadata.Labels["pod-template-hash"]; o.Kind == "ReplicaSet" && hash != "" {
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
func (p *podKubectl) convert() (cluster.Pod, Reason) {
	pod := cluster.Pod{Name: p.Metadata.Name, Whole: p.whole(), Origin: p.origin()}
	var sum, sidecars, peak cluster.Resources
	why := kept
	add := func(c *containerKubectl, of []statusKubectl, runs bool) cluster.Resources {
		r, bad := p.effective(c, of)
		why = max(why, bad)
		if !sum.Fits(most) || !sidecars.Fits(most) {
			why = max(why, Beyond) // and no sum overflows
			return cluster.Resources{}
		}
		if runs {
			sum = sum.Add(r)
			pod.Containers = append(pod.Containers, cluster.Container{Name: c.Name, Request: r})
		}
		return r
	}
	for i := range p.Spec.Init {
		c := &p.Spec.Init[i]
		r := add(c, p.Status.Init, c.sidecar())
		if c.sidecar() {
			sidecars = sidecars.Add(r)
			peak = larger(peak, sidecars)
		} else {
			peak = larger(peak, sidecars.Add(r))
		}
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i], p.Status.Containers, true)
	}
	overhead, bad := requests(p.Spec.Overhead)
	whole, badToo := p.podLevel()
	needs := larger(sum, peak)
	if _, has := p.Spec.Resources.Requests["cpu"]; has {
		needs.CPU = max(whole.CPU, sum.CPU)
	}
	if _, has := p.Spec.Resources.Requests["memory"]; has {
		needs.Memory = max(whole.Memory, sum.Memory)
	}
	pod.Overhead = overhead.Add(needs.Sub(sum))
	pod.Origin.Startup, pod.Origin.Fixed = peak, len(p.Spec.Resources.Requests) > 0
	pod.Origin.Sidecars = len(pod.Containers) - len(p.Spec.Containers)
	if why = max(why, bad, badToo); why == kept && !pod.Request().Fits(most) {
		why = Beyond
	}
	return pod, why
}

// effective returns the largest of what a container asks for, what its node has allocated, and
// what it has. A resize that the node cannot make (Infeasible) asks for nothing.
func (p *podKubectl) effective(c *containerKubectl, of []statusKubectl) (cluster.Resources, Reason) {
	asked, why := requests(c.Resources.Requests)
	for i := range of {
		if of[i].Name == c.Name {
			return p.resized(asked, why, &of[i])
		}
	}
	return asked, why
}

// podLevel is effective for the requests of the pod as a whole.
func (p *podKubectl) podLevel() (cluster.Resources, Reason) {
	asked, why := requests(p.Spec.Resources.Requests)
	return p.resized(asked, why, &p.Status.statusKubectl)
}

func (p *podKubectl) resized(asked cluster.Resources, why Reason, s *statusKubectl) (cluster.Resources, Reason) {
	allocated, bad := requests(s.Allocated)
	has, badToo := requests(s.Resources.Requests)
	if p.infeasible() && (len(s.Allocated) > 0 || len(s.Resources.Requests) > 0) {
		asked = cluster.Resources{}
	}
	return larger(asked, larger(allocated, has)), max(why, bad, badToo)
}

func (p *podKubectl) infeasible() bool {
	for _, c := range p.Status.Conditions {
		if c.Type == "PodResizePending" {
			return c.Reason == "Infeasible"
		}
	}
	return false
}

// requests returns the CPU and memory of a list of resources, rounded up.
func requests(list map[string]resource.Quantity) (cluster.Resources, Reason) {
	cpu, memory := list["cpu"], list["memory"]
	switch {
	case cpu.Sign() < 0 || memory.Sign() < 0:
		return cluster.Resources{}, Negative
	case cpu.CmpInt64(most.CPU/cluster.VCPU) > 0 || memory.CmpInt64(most.Memory) > 0:
		return cluster.Resources{}, Beyond
	}
	return cluster.Resources{CPU: cpu.ScaledValue(resource.Nano), Memory: memory.Value()}, kept
}

func larger(a, b cluster.Resources) cluster.Resources {
	return cluster.Resources{CPU: max(a.CPU, b.CPU), Memory: max(a.Memory, b.Memory)}
}
