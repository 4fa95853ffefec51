package trace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// fixKubectl ends the errors about a file of the wrong form.
const fixKubectl = "make it with kubectl get pods -A -o json"

// readKubectl reads the output of "kubectl get pods -A -o json". The user is the namespace,
// or the value of the label Options.OwnerLabel. Completed pods are left out; pods that wait
// to be scheduled are kept. A pod requests what Kubernetes schedules by: see convert. A row
// is a pod.
func readKubectl(ctx context.Context, paths []string, o *Options, rep *Report) ([]cluster.User, error) {
	return gather(paths, o, rep, func(path string, g *grouping) error {
		return (&kubectlDump{path: path, g: g, o: o, rep: rep}).read(ctx)
	})
}

type kubectlDump struct {
	path string
	pods int
	g    *grouping
	o    *Options
	rep  *Report
}

func (t *kubectlDump) read(ctx context.Context) error {
	r, err := open(ctx, t.path, t.o.Stdin)
	if err != nil {
		return fatal{err}
	}
	defer r.Close()
	d := json.NewDecoder(r)
	found := false
	for {
		switch is, err := t.document(ctx, d); {
		case errors.Is(err, io.EOF) && found:
			return nil
		case errors.Is(err, io.EOF):
			return errors.New("has no list of pods: " + fixKubectl)
		case err != nil:
			return t.jsonError(d, err)
		default:
			found = found || is
		}
	}
}

func (t *kubectlDump) jsonError(d *json.Decoder, err error) error {
	var syntax *json.SyntaxError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("ends early, at byte %d after %d pods: the file is incomplete; make it again", d.InputOffset(), t.pods)
	case errors.As(err, &syntax):
		return fmt.Errorf("not JSON at byte %d: %w: %s", syntax.Offset, err, fixKubectl)
	}
	return err
}

// document reads one JSON document, pod by pod, and reports whether it has a list. io.EOF
// says that there is no further document.
func (t *kubectlDump) document(ctx context.Context, d *json.Decoder) (bool, error) {
	start, err := d.Token()
	if err != nil {
		return false, err
	}
	if start != json.Delim('{') {
		return false, fmt.Errorf("begins with %v, not with an object: %s", start, fixKubectl)
	}
	is := false
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return is, noEOF(err)
		}
		if key == "items" {
			is = true
			err = t.items(ctx, d)
		} else {
			var skipped json.RawMessage
			err = d.Decode(&skipped)
		}
		if err != nil {
			return is, noEOF(err)
		}
	}
	_, err = d.Token()
	return is, noEOF(err)
}

// noEOF turns io.EOF, within a document, into io.ErrUnexpectedEOF.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (t *kubectlDump) items(ctx context.Context, d *json.Decoder) error {
	if start, err := d.Token(); err != nil || start != json.Delim('[') {
		return errors.Join(err, errors.New("items is not a list: "+fixKubectl))
	}
	for d.More() {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return err
		}
		t.pods++
		if err := t.item(raw); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

func (t *kubectlDump) item(raw []byte) error {
	var p podKubectl
	err := json.Unmarshal(raw, &p)
	switch {
	case err != nil:
	case p.Kind != "" && p.Kind != "Pod":
		return fmt.Errorf("has a %s, not only pods: %s", p.Kind, fixKubectl)
	case p.Metadata.Name == "" || len(p.Spec.Containers) == 0:
		err = fmt.Errorf("pod %q has no name or no containers", p.Metadata.Name)
	}
	pod, why := p.convert()
	if err == nil && t.o.Links {
		pod.Links, err = annotatedLinks(pod, p.Metadata.Notes[LinksAnnotation])
	}
	if err != nil {
		return t.rep.broken(Broken{display(t.path), t.pods, err}, t.o)
	}
	user := p.Metadata.Namespace
	if t.o.OwnerLabel != "" {
		user = p.Metadata.Labels[t.o.OwnerLabel]
	}
	switch {
	case p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed":
		why = Finished
	case user == "":
		why = NoOwner
	case why == kept && pod.Request() == cluster.Resources{} && !t.o.KeepEmpty:
		why = NoRequest
	}
	if why == kept && p.daemon() {
		t.rep.notes[Daemon]++
	}
	if !t.rep.add(request{pod.Request(), why}) {
		return nil
	}
	if t.o.OwnerLabel != "" {
		pod.Name = p.Metadata.Namespace + "/" + pod.Name
	}
	if err := t.g.room(int64(len(pod.Containers))); err != nil {
		return err
	}
	*t.g.user(user).pod(pod.Name) = pod
	return nil
}

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
