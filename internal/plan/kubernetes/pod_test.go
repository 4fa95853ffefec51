package kubernetes

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
	"pgregory.net/rapid"

	"unnest.io/unnest/internal/plan/cluster"
)

// What a pod requests is what Kubernetes' scheduler counts, whatever it is made of.
func TestKubectlRequestIsKubernetes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pod := drawPod(t)
		text, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		converted, err := ParsePod(text)
		if err != nil || converted.Outcome != Planned {
			t.Fatalf("%s: %v, %v", text, converted.Outcome, err)
		}
		list := helpers.PodRequests(pod, helpers.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true})
		want := cluster.Resources{CPU: list.Cpu().ScaledValue(resource.Nano), Memory: list.Memory().Value()}
		if got := converted.Request(); got != want {
			t.Errorf("%s:\ngot %+v, Kubernetes counts %+v", text, got, want)
		}
		running := len(pod.Spec.Containers)
		for _, c := range pod.Spec.InitContainers {
			if c.RestartPolicy != nil {
				running++
			}
		}
		if len(converted.Containers) != running {
			t.Errorf("%s: got %d containers, want the %d that run for good", text, len(converted.Containers), running)
		}
	})
}

// drawPod draws a pod that the API server admits: with requests of the pod as a whole,
// those are at least what its containers request (KEP-2837).
func drawPod(t *rapid.T) *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	pod := &corev1.Pod{}
	pod.Name, pod.Namespace = "pod", "shop"
	container := func(kind string, i int) corev1.Container {
		return corev1.Container{Name: fmt.Sprint(kind, i), Resources: corev1.ResourceRequirements{Requests: drawRequests(t, kind)}}
	}
	for i := range rapid.IntRange(0, 5).Draw(t, "init containers") {
		c := container("init", i)
		if rapid.Bool().Draw(t, "sidecar") {
			c.RestartPolicy = &always
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	for i := range rapid.IntRange(1, 4).Draw(t, "containers") {
		pod.Spec.Containers = append(pod.Spec.Containers, container("main", i))
	}
	if rapid.Bool().Draw(t, "with pod-level resources") {
		sum := helpers.AggregateContainerRequests(pod, helpers.PodResourcesOptions{})
		requests := drawRequests(t, "pod level")
		for name, q := range requests {
			q.Add(sum[name])
			requests[name] = q
		}
		pod.Spec.Resources = &corev1.ResourceRequirements{Requests: requests}
	}
	drawResize(t, pod)
	if rapid.Bool().Draw(t, "with overhead") {
		pod.Spec.Overhead = drawRequests(t, "overhead")
	}
	return pod
}

// drawResize draws what the node has given the containers of a pod that is resized in place:
// all of them twice, half or none of what they ask for, possibly for good. Kubernetes counts the
// larger sum of all containers, and the planner that of each: they are equal as long as no
// container grows while another shrinks.
func drawResize(t *rapid.T, pod *corev1.Pod) {
	factor := rapid.SampledFrom([]float64{0, 0, .5, 2}).Draw(t, "resized by")
	if factor == 0 || pod.Spec.Resources != nil {
		return
	}
	if rapid.Bool().Draw(t, "infeasible") {
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Reason: corev1.PodReasonInfeasible}}
	}
	has := func(c *corev1.Container) corev1.ContainerStatus {
		list := corev1.ResourceList{}
		for name, q := range c.Resources.Requests {
			if name == corev1.ResourceMemory { // in whole bytes
				list[name] = *resource.NewQuantity(int64(math.Ceil(factor*float64(q.Value()))), resource.BinarySI)
				continue
			}
			list[name] = *resource.NewMilliQuantity(int64(factor*float64(q.MilliValue())), resource.DecimalSI)
		}
		return corev1.ContainerStatus{Name: c.Name, AllocatedResources: list, Resources: &corev1.ResourceRequirements{Requests: list}}
	}
	for i := range pod.Spec.InitContainers {
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, has(&pod.Spec.InitContainers[i]))
	}
	for i := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, has(&pod.Spec.Containers[i]))
	}
}

// drawRequests draws CPU, memory, both or none, in the forms of quantities, and what
// does not count.
func drawRequests(t *rapid.T, what string) corev1.ResourceList {
	list := corev1.ResourceList{}
	if rapid.Bool().Draw(t, what+" has CPU") {
		list[corev1.ResourceCPU] = resource.MustParse(rapid.SampledFrom([]string{"0", "1m", "50m", "250m", "0.5", "1", "1500m", "2"}).Draw(t, what+" CPU"))
	}
	if rapid.Bool().Draw(t, what+" has memory") {
		list[corev1.ResourceMemory] = resource.MustParse(rapid.SampledFrom([]string{"0", "1", "64M", "64Mi", "1Gi", "1.5Gi", "2e9"}).Draw(t, what+" memory"))
	}
	if rapid.Bool().Draw(t, what+" has storage") {
		list[corev1.ResourceEphemeralStorage] = resource.MustParse("1Gi")
	}
	return list
}
