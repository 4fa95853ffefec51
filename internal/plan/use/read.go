package use

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/kubernetes"
)

// Formats are those that Read knows.
var Formats = []string{"metrics", "prometheus-cpu", "prometheus-memory", "vpa"}

// Read adds what a text says that containers use.
//
//   - metrics: PodMetrics of metrics.k8s.io/v1beta1, one or a list, as kubectl get --raw
//     /apis/metrics.k8s.io/v1beta1/pods and kubectl get podmetrics -A -o json print them, or the
//     text of kubectl top pod -A --containers. A text may have several, one after the other.
//   - prometheus-cpu, prometheus-memory: the answer of Prometheus to query_range or query, or
//     what promtool query -o json prints, with the labels namespace, pod and container, in vCPUs
//     and bytes.
//   - vpa: VerticalPodAutoscalers of autoscaling.k8s.io/v1, of which the target counts.
func (u *Use) Read(format string, r io.Reader) error {
	var err error
	switch format {
	case "metrics":
		err = u.metrics(bufio.NewReader(r))
	case "prometheus-cpu":
		err = readPrometheus(r, cluster.VCPU, cluster.MostRequested.CPU, u.AddCPU)
	case "prometheus-memory":
		err = readPrometheus(r, 1, cluster.MostRequested.Memory, u.AddMemory)
	case "vpa":
		err = objects(r, u.recommend)
	default:
		err = fmt.Errorf("unknown format %q: choose one of %s", format, strings.Join(Formats, ", "))
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("ends early: the file is incomplete; make it again")
	}
	return err
}

// object has the fields of PodMetrics (metrics.k8s.io/v1beta1), of a VerticalPodAutoscaler
// (autoscaling.k8s.io/v1) and of their lists that matter here.
type object struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Items      []object `json:"items"`
	Containers []struct {
		Name  string              `json:"name"`
		Usage corev1.ResourceList `json:"usage"`
	} `json:"containers"`
	Spec struct {
		Target struct {
			Kind string `json:"kind"`
			Name string `json:"name"`
		} `json:"targetRef"`
	} `json:"spec"`
	Status struct {
		Recommendation struct {
			Containers []struct {
				Name   string              `json:"containerName"`
				Target corev1.ResourceList `json:"target"`
			} `json:"containerRecommendations"`
		} `json:"recommendation"`
	} `json:"status"`
}

// objects calls each for the objects of JSON documents and of their lists. That there are none is
// an error.
func objects(r io.Reader, each func(object) error) error {
	d := json.NewDecoder(r)
	for found := false; ; found = true {
		var o object
		switch err := d.Decode(&o); {
		case errors.Is(err, io.EOF) && found:
			return nil
		case errors.Is(err, io.EOF):
			return errors.New("is empty")
		case err != nil:
			return fmt.Errorf("not JSON of Kubernetes, at byte %d: %w", d.InputOffset(), err)
		}
		all := o.Items
		if !strings.HasSuffix(o.Kind, "List") {
			all = []object{o}
		}
		for _, one := range all {
			if one.Kind == "" { // the API server names only the kind of the list
				one.Kind = strings.TrimSuffix(o.Kind, "List")
			}
			if err := each(one); err != nil {
				return err
			}
		}
	}
}

func (u *Use) metrics(in *bufio.Reader) error {
	if head, _ := in.Peek(1); len(head) > 0 && head[0] != '{' { // a failure comes back from the next read
		return u.top(in)
	}
	return objects(in, func(o object) error {
		if o.Kind != "PodMetrics" {
			return fmt.Errorf("has %s %s: want PodMetrics, as kubectl get --raw /apis/metrics.k8s.io/v1beta1/pods prints them", o.Kind, o.Metadata.Name)
		}
		for _, c := range o.Containers {
			if err := u.measured(o.Metadata.Namespace, o.Metadata.Name, c.Name, c.Usage); err != nil {
				return err
			}
		}
		return nil
	})
}

// measured adds a measurement of both resources.
func (u *Use) measured(namespace, pod, container string, usage corev1.ResourceList) error {
	r, err := resources(usage)
	if err != nil {
		return fmt.Errorf("pod %s/%s: container %s: use is not valid: %w", namespace, pod, container, err)
	}
	if _, has := usage["cpu"]; has {
		u.AddCPU(Pod(namespace, pod), container, r.CPU)
	}
	if _, has := usage["memory"]; has {
		u.AddMemory(Pod(namespace, pod), container, r.Memory)
	}
	return nil
}

// topColumns are the columns of kubectl top pod -A --containers.
var topColumns = []string{"NAMESPACE", "POD", "NAME", "CPU(cores)", "MEMORY(bytes)"}

func (u *Use) top(in io.Reader) error {
	lines := bufio.NewScanner(in)
	want := strings.Join(topColumns, " ")
	for n := 1; lines.Scan(); n++ {
		columns := strings.Fields(lines.Text())
		switch {
		case strings.Join(columns, " ") == want, len(columns) == 0 && n > 1: // also the next measurement
			continue
		case n == 1 || len(columns) != len(topColumns):
			return fmt.Errorf("line %d: want the columns %s: make it with kubectl top pod -A --containers", n, want)
		}
		usage := corev1.ResourceList{}
		for i, name := range []string{"cpu", "memory"} {
			q, err := resource.ParseQuantity(columns[3+i])
			if err != nil {
				return fmt.Errorf("line %d: %s %q: %w", n, name, columns[3+i], err)
			}
			usage[corev1.ResourceName(name)] = q
		}
		if err := u.measured(columns[0], columns[1], columns[2], usage); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return lines.Err()
}

// recommend adds the recommendation of a VerticalPodAutoscaler. One that has none yet adds
// nothing.
func (u *Use) recommend(o object) error {
	if o.Kind != "VerticalPodAutoscaler" {
		return fmt.Errorf("has %s %s: want VerticalPodAutoscalers: make it with kubectl get verticalpodautoscalers -A -o json", o.Kind, o.Metadata.Name)
	}
	of := Workload{Namespace: o.Metadata.Namespace, Kind: o.Spec.Target.Kind, Name: o.Spec.Target.Name}
	for _, c := range o.Status.Recommendation.Containers {
		r, err := resources(c.Target)
		if err != nil {
			return fmt.Errorf("VerticalPodAutoscaler %s/%s: container %s: target is not valid: %w", of.Namespace, o.Metadata.Name, c.Name, err)
		}
		u.Recommend(of, c.Name, r)
	}
	return nil
}

func resources(list corev1.ResourceList) (r cluster.Resources, err error) {
	r, is := kubernetes.Requests(list)
	switch is {
	case kubernetes.Negative:
		err = errors.New("negative request")
	case kubernetes.Beyond:
		err = errors.New("request larger than any machine")
	}
	return r, err
}
