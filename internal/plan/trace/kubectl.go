package trace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"unnest/internal/plan/cluster"
)

// fixKubectl ends the errors about a file of the wrong form.
const fixKubectl = "make it with kubectl get pods -A -o json"

// readKubectl reads the output of "kubectl get pods -A -o json", of "kubectl get all", or of
// one object. The user is the cluster, the namespace, or the value of a label: see
// Options.Owner. Completed pods are left out; pods that wait to be scheduled are kept. A pod
// requests what Kubernetes schedules by: see convert. A row is a pod or another object.
func readKubectl(ctx context.Context, paths []string, o *Options, rep *Report) ([]cluster.User, error) {
	t := &kubectlDump{o: o, rep: rep, seen: map[podName]seenPod{}, daemons: map[podName]*daemon{}}
	users, err := gather(paths, o, rep, func(path string, g *grouping) error {
		t.path, t.items, t.g = path, 0, g
		return t.read(ctx)
	})
	if err != nil {
		return nil, err
	}
	return t.finish(users), nil
}

type kubectlDump struct {
	path    string
	items   int // of the file
	g       *grouping
	o       *Options
	rep     *Report
	seen    map[podName]seenPod
	daemons map[podName]*daemon
	rules   rules
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
		return fmt.Errorf("ends early, at byte %d after %d items: the file is incomplete; make it again", d.InputOffset(), t.items)
	case errors.As(err, &syntax):
		return fmt.Errorf("not JSON at byte %d: %w: %s", syntax.Offset, err, fixKubectl)
	}
	return err
}

// document reads one JSON document, a list item by item, and reports whether it has objects.
// io.EOF says that there is no further document.
func (t *kubectlDump) document(ctx context.Context, d *json.Decoder) (bool, error) {
	start, err := d.Token()
	if err != nil {
		return false, err
	}
	if start != json.Delim('{') {
		return false, fmt.Errorf("begins with %v, not with an object: %s", start, fixKubectl)
	}
	is := false
	object := map[string]json.RawMessage{} // unless it is a list
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return is, noEOF(err)
		}
		if key == "items" {
			is = true
			err = t.list(ctx, d)
		} else {
			var value json.RawMessage
			err = d.Decode(&value)
			object[fmt.Sprint(key)] = value
		}
		if err != nil {
			return is, noEOF(err)
		}
	}
	if _, err = d.Token(); err != nil || is || object["metadata"] == nil || object["kind"] == nil {
		return is, noEOF(err)
	}
	raw, err := json.Marshal(object)
	if err != nil {
		return false, err
	}
	t.items++
	return true, t.item(raw)
}

// noEOF turns io.EOF, within a document, into io.ErrUnexpectedEOF.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (t *kubectlDump) list(ctx context.Context, d *json.Decoder) error {
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
		t.items++
		if err := t.item(raw); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// item reads one object.
func (t *kubectlDump) item(raw []byte) error {
	var of struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(raw, &of); err != nil {
		return t.broken(err)
	}
	switch of.Kind {
	case "", "Pod":
		return t.pod(raw)
	case "Node":
		return t.node(raw)
	case "PodDisruptionBudget":
		return t.budget(raw)
	}
	t.rep.add(request{why: OtherKind})
	return nil
}

func (t *kubectlDump) broken(err error) error {
	return t.rep.broken(Broken{display(t.path), "item", t.items, err}, t.o)
}

func (t *kubectlDump) pod(raw []byte) error {
	p := &podKubectl{}
	err := json.Unmarshal(raw, p)
	if err == nil && (p.Metadata.Name == "" || len(p.Spec.Containers) == 0) {
		err = fmt.Errorf("pod %q has no name or no containers", p.Metadata.Name)
	}
	if err != nil {
		return t.broken(err)
	}
	again, err := t.again(p)
	if err != nil {
		return fatal{err}
	}
	pod, why := p.convert()
	if t.o.Links {
		if pod.Links, err = annotatedLinks(pod, p.Metadata.Notes[LinksAnnotation]); err != nil {
			return t.broken(err)
		}
	}
	user, name := t.owner(p)
	switch {
	case again:
		why = Repeated
	case p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed":
		why = Finished
	case p.Metadata.Deletion != "":
		why = Terminating
	case why == kept && p.daemonSet() != "":
		why = Daemon
		err = t.daemon(p, pod.Request())
	case user == "":
		why = NoOwner
	case why == kept && t.rep.asks.add(p):
		why = Extended
		t.rep.Bound = append(t.rep.Bound, p.Spec.NodeName)
	}
	if err != nil {
		return fatal{err}
	}
	if !t.rep.add(request{pod.Request(), why}) {
		return nil
	}
	if pod.Request() == (cluster.Resources{}) {
		t.rep.notes[BestEffort]++
	}
	if err := t.g.room(int64(len(pod.Containers))); err != nil {
		return err
	}
	t.rules.add(p, &pod)
	pod.Name = name
	*t.g.user(user).pod(name) = pod
	return nil
}

// owner returns the user of a pod, empty if it is unknown, and the name of the pod within the
// user.
func (t *kubectlDump) owner(p *podKubectl) (user, pod string) {
	name := p.Metadata.Namespace + "/" + p.Metadata.Name
	switch {
	case t.o.OneOwner:
		return WholeCluster, name
	case t.o.OwnerLabel != "":
		return p.Metadata.Labels[t.o.OwnerLabel], name
	}
	return p.Metadata.Namespace, p.Metadata.Name
}
