package trace

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"unnest/internal/plan/cluster"
)

// podKubectl has the fields of a pod (core/v1) that matter here.
type podKubectl struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name      string            `json:"name"`
		Namespace string            `json:"namespace"`
		Labels    map[string]string `json:"labels"`
		Notes     map[string]string `json:"annotations"`
		Owners    []struct {
			Kind string `json:"kind"`
		} `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		HostNetwork bool                         `json:"hostNetwork"`
		Overhead    map[string]resource.Quantity `json:"overhead"`
		Resources   resourcesKubectl             `json:"resources"`
		Init        []containerKubectl           `json:"initContainers"`
		Containers  []containerKubectl           `json:"containers"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

type resourcesKubectl struct {
	Requests map[string]resource.Quantity `json:"requests"`
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

func (p *podKubectl) daemon() bool {
	for _, o := range p.Metadata.Owners {
		if o.Kind == "DaemonSet" {
			return true
		}
	}
	return false
}

// convert returns the pod with its requests, or why it has none.
//
// Kubernetes counts, for each resource, the larger of two sums: the requests of all
// containers and sidecars (init containers that always restart), and the peak during
// start-up, when each init container runs next to the sidecars started before it. It adds
// the overhead of the runtime class (KEP-753, "Resources calculation for scheduling and pod
// admission"; PodRequests in k8s.io/component-helpers/resource). Requests of the pod as a
// whole (KEP-2837) replace those of its containers.
//
// Containers and sidecars become containers. What the pod requests beyond them becomes
// Overhead, because it belongs to none of them.
func (p *podKubectl) convert() (cluster.Pod, Reason) {
	pod := cluster.Pod{Name: p.Metadata.Name, Whole: p.Spec.HostNetwork}
	var sum, sidecars, peak cluster.Resources
	why := kept
	add := func(c *containerKubectl, runs bool) cluster.Resources {
		r, bad := requests(c.Resources.Requests)
		why = max(why, bad)
		for _, port := range c.Ports {
			pod.Whole = pod.Whole || port.HostPort > 0
		}
		if runs {
			sum = sum.Add(r)
			pod.Containers = append(pod.Containers, cluster.Container{Name: c.Name, Request: r})
		}
		return r
	}
	for i := range p.Spec.Init {
		c := &p.Spec.Init[i]
		r := add(c, c.sidecar())
		if c.sidecar() {
			sidecars = sidecars.Add(r)
			peak = larger(peak, sidecars)
		} else {
			peak = larger(peak, sidecars.Add(r))
		}
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i], true)
	}
	overhead, bad := requests(p.Spec.Overhead)
	whole, badToo := requests(p.Spec.Resources.Requests)
	needs := larger(sum, peak)
	if _, has := p.Spec.Resources.Requests["cpu"]; has {
		needs.CPU = max(whole.CPU, sum.CPU)
	}
	if _, has := p.Spec.Resources.Requests["memory"]; has {
		needs.Memory = max(whole.Memory, sum.Memory)
	}
	pod.Overhead = overhead.Add(needs.Sub(sum))
	if why = max(why, bad, badToo); why == kept && !pod.Request().Fits(most) {
		why = Beyond
	}
	return pod, why
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
