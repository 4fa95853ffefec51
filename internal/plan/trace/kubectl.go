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
		return t.rep.broken(Broken{display(t.path), "item", t.pods, err}, t.o)
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
