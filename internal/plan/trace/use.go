package trace

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"unnest/internal/plan/cluster"
	"unnest/internal/plan/kubernetes"
	"unnest/internal/plan/use"
)

// UseFormats are the formats that ReadUse knows.
var UseFormats = []string{"metrics", "prometheus-cpu", "prometheus-memory", "vpa"}

// ReadUse adds what a file says that containers use.
//
//   - metrics: PodMetrics of metrics.k8s.io/v1beta1, one or a list, as kubectl get --raw
//     /apis/metrics.k8s.io/v1beta1/pods and kubectl get podmetrics -A -o json print them, or the
//     text of kubectl top pod -A --containers. A file may have several, one after the other.
//   - prometheus-cpu, prometheus-memory: the answer of Prometheus to query_range or query, or
//     what promtool query -o json prints, with the labels namespace, pod and container, in vCPUs
//     and bytes.
//   - vpa: VerticalPodAutoscalers of autoscaling.k8s.io/v1, of which the target counts.
func ReadUse(ctx context.Context, format, path string, stdin io.Reader, into *use.Use) error {
	r, err := open(ctx, path, stdin)
	if err != nil {
		return fmt.Errorf("%w: name a file", err)
	}
	defer r.Close() //nolint:errcheck // only read
	in := bufio.NewReader(r)
	switch format {
	case "metrics":
		err = readMetrics(in, into)
	case "prometheus-cpu":
		err = readPrometheus(in, cluster.VCPU, most.CPU, into.AddCPU)
	case "prometheus-memory":
		err = readPrometheus(in, 1, most.Memory, into.AddMemory)
	case "vpa":
		err = objects(in, func(o useKubectl) error { return o.recommend(into) })
	default:
		err = fmt.Errorf("unknown format %q: choose one of %s", format, strings.Join(UseFormats, ", "))
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("ends early: the file is incomplete; make it again")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", display(path), err)
	}
	return nil
}

// useKubectl has the fields of PodMetrics (metrics.k8s.io/v1beta1), of a VerticalPodAutoscaler
// (autoscaling.k8s.io/v1) and of their lists that matter here.
type useKubectl struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Items      []useKubectl `json:"items"`
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
func objects(r io.Reader, each func(useKubectl) error) error {
	d := json.NewDecoder(r)
	for found := false; ; found = true {
		var o useKubectl
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
			all = []useKubectl{o}
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

func readMetrics(in *bufio.Reader, into *use.Use) error {
	if head, _ := in.Peek(1); len(head) > 0 && head[0] != '{' { // a failure comes back from the next read
		return readTop(in, into)
	}
	return objects(in, func(o useKubectl) error {
		if o.Kind != "PodMetrics" {
			return fmt.Errorf("has %s %s: want PodMetrics, as kubectl get --raw /apis/metrics.k8s.io/v1beta1/pods prints them", o.Kind, o.Metadata.Name)
		}
		for _, c := range o.Containers {
			if err := measured(into, o.Metadata.Namespace, o.Metadata.Name, c.Name, c.Usage); err != nil {
				return err
			}
		}
		return nil
	})
}

// measured adds a measurement of both resources.
func measured(into *use.Use, namespace, pod, container string, usage corev1.ResourceList) error {
	r, bad := kubernetes.Requests(usage)
	if bad != kubernetes.Planned {
		return fmt.Errorf("pod %s/%s: container %s: use is not valid: %s", namespace, pod, container, outcomes[bad])
	}
	if _, has := usage["cpu"]; has {
		into.AddCPU(use.Pod(namespace, pod), container, r.CPU)
	}
	if _, has := usage["memory"]; has {
		into.AddMemory(use.Pod(namespace, pod), container, r.Memory)
	}
	return nil
}

// topColumns are the columns of kubectl top pod -A --containers.
var topColumns = []string{"NAMESPACE", "POD", "NAME", "CPU(cores)", "MEMORY(bytes)"}

func readTop(in *bufio.Reader, into *use.Use) error {
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
		if err := measured(into, columns[0], columns[1], columns[2], usage); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return lines.Err()
}

// recommend adds the recommendation of a VerticalPodAutoscaler. One that has none yet adds
// nothing.
func (o useKubectl) recommend(into *use.Use) error {
	if o.Kind != "VerticalPodAutoscaler" {
		return fmt.Errorf("has %s %s: want VerticalPodAutoscalers: make it with kubectl get verticalpodautoscalers -A -o json", o.Kind, o.Metadata.Name)
	}
	of := use.Workload{Namespace: o.Metadata.Namespace, Kind: o.Spec.Target.Kind, Name: o.Spec.Target.Name}
	for _, c := range o.Status.Recommendation.Containers {
		r, bad := kubernetes.Requests(c.Target)
		if bad != kubernetes.Planned {
			return fmt.Errorf("VerticalPodAutoscaler %s/%s: container %s: target is not valid: %s", of.Namespace, o.Metadata.Name, c.Name, outcomes[bad])
		}
		into.Recommend(of, c.Name, r)
	}
	return nil
}
