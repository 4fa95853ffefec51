package trace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/kubernetes"
)

// fixKubectl ends the errors about a file of the wrong form.
const fixKubectl = "make it with kubectl get pods -A -o json"

// readKubectl reads the output of "kubectl get nodes,pods -A -o json" or "-o yaml", of "kubectl get
// all", of one object, or a directory of such files. The user is the cluster, the namespace, or the value of a label: see
// Options.Owner. Completed pods are left out; pods that wait to be scheduled are kept. Package
// kubernetes says what pods request and demand. A row is a pod or another object.
func readKubectl(ctx context.Context, paths []string, o *Options, rep *Report) ([]cluster.User, error) {
	t := &kubectlDump{o: o, rep: rep, dump: kubernetes.NewDump(), seen: map[string]seenPod{}, daemons: map[string]seenPod{}}
	files, walked, err := dumpFiles(paths)
	if err != nil {
		return nil, err
	}
	users, err := gather(files, o, rep, func(path string, g *grouping) error {
		t.path, t.items, t.g = path, 0, g
		err := t.read(ctx)
		if walked[path] && errors.Is(err, errNoObjects) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return t.finish(users), nil
}

// errNoObjects is the error of a file that has none of what kubectl prints. In a directory of many
// files it is none.
var errNoObjects = errors.New("no list of pods")

type kubectlDump struct {
	path    string
	items   int               // of the file
	pending []json.RawMessage // items of the list that do not name their kind
	g       *grouping
	o       *Options
	rep     *Report
	dump    *kubernetes.Dump
	seen    map[string]seenPod // by NAMESPACE/NAME
	daemons map[string]seenPod // of each DaemonSet
}

func (t *kubectlDump) read(ctx context.Context) error {
	r, err := open(ctx, t.path, t.o.Stdin)
	if err != nil {
		return fatal{err}
	}
	defer r.Close()
	in, err := kubernetes.AsJSON(r, slices.Contains(yamlNames, filepath.Ext(strings.TrimSuffix(t.path, ".gz"))))
	if err != nil {
		return err
	}
	d := json.NewDecoder(in)
	found := false
	for {
		switch is, err := t.document(ctx, d); {
		case errors.Is(err, io.EOF) && found:
			return nil
		case errors.Is(err, io.EOF):
			return fmt.Errorf("has %w: %s", errNoObjects, fixKubectl)
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
		return false, fmt.Errorf("begins with %v, not with an object, so it has %w: %s", start, errNoObjects, fixKubectl)
	}
	is := false
	object := map[string]json.RawMessage{} // unless it is a list
	t.pending = nil
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return is, noEOF(err)
		}
		if key == "items" {
			is = true
			err = t.list(ctx, d, text(object["kind"]))
		} else {
			var value json.RawMessage
			err = d.Decode(&value)
			object[fmt.Sprint(key)] = value
		}
		if err != nil {
			return is, noEOF(err)
		}
	}
	if _, err = d.Token(); err != nil {
		return is, noEOF(err)
	}
	switch {
	case is:
		for _, raw := range t.pending {
			if err := t.item(raw, cmp.Or(text(object["kind"]), "List")); err != nil {
				return true, err
			}
		}
		return true, nil
	case object["metadata"] == nil && object["spec"] == nil:
		return false, nil
	case object["kind"] == nil:
		return false, errors.New("an object has no kind, so it is not known what it is: add kind, or make the file with kubectl get -o json")
	}
	raw, err := json.Marshal(object)
	if err != nil {
		return false, err
	}
	t.items++
	return true, t.item(raw, "")
}

// text returns a JSON text, empty if there is none.
func text(raw json.RawMessage) (s string) {
	_ = json.Unmarshal(raw, &s) // another type is no kind
	return s
}

// noEOF turns io.EOF, within a document, into io.ErrUnexpectedEOF.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// list reads items. Without the kind of the list, which may follow, those that do not name theirs
// wait for it.
func (t *kubectlDump) list(ctx context.Context, d *json.Decoder, kind string) error {
	switch start, err := d.Token(); {
	case err == nil && start == nil:
		return nil // "items": null is empty
	case err != nil || start != json.Delim('['):
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
		if err := t.item(raw, kind); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// item reads one object. list is the kind of its list, for objects without one.
func (t *kubectlDump) item(raw []byte, list string) error {
	var of struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(raw, &of); err != nil {
		return t.broken(err)
	}
	if of.Kind == "" && list == "" {
		t.pending = append(t.pending, raw)
		return nil
	}
	var err error
	why := OtherKind
	switch cmp.Or(of.Kind, kubernetes.ItemKind(list, raw), "Pod") {
	case "Pod":
		return t.pod(raw)
	case "Node":
		var again bool
		why = Node
		if again, err = t.dump.Node(raw); again {
			why = Repeated
		}
	case "PodDisruptionBudget":
		why, err = Budget, t.dump.Budget(raw)
	case "PersistentVolume":
		err = t.dump.Volume(raw)
	case "CSINode":
		err = t.dump.CSINode(raw)
	case "Namespace":
		err = t.dump.Namespace(raw)
	}
	if err != nil {
		return t.broken(err)
	}
	t.rep.add(request{why: why})
	return nil
}

func (t *kubectlDump) broken(err error) error {
	return t.rep.broken(Broken{display(t.path), "item", t.items, err}, t.o)
}

// outcomes are the reasons for which pods are not planned.
var outcomes = map[kubernetes.Outcome]Reason{kubernetes.Negative: Negative, kubernetes.Beyond: Beyond, kubernetes.Finished: Finished, kubernetes.Terminating: Terminating, kubernetes.OfDaemonSet: Daemon, kubernetes.Extended: Extended}

func (t *kubectlDump) pod(raw []byte) error {
	p, err := kubernetes.ParsePod(raw)
	if err != nil {
		t.rep.Bound = append(t.rep.Bound, kubernetes.NodeOf(raw))
		return t.broken(err)
	}
	again, err := t.again(p)
	if err != nil {
		return fatal{err}
	}
	if t.o.Links {
		if p.Links, err = p.AnnotatedLinks(); err != nil {
			t.rep.Bound = append(t.rep.Bound, p.Origin.Node)
			return t.broken(err)
		}
	}
	user, name := t.owner(p)
	why := outcomes[p.Outcome]
	if !again && why != Finished && why != Terminating {
		t.dump.Count(p)
	}
	switch {
	case again:
		why = Repeated
	case why == Daemon:
		err = t.daemon(p)
	case why == Finished || why == Terminating:
	case user == "":
		why = NoOwner
	case why == Extended:
		t.rep.asks.add(p)
		fallthrough
	case why == Negative || why == Beyond:
		t.rep.Bound = append(t.rep.Bound, p.Origin.Node)
	}
	if err != nil {
		return fatal{err}
	}
	if !t.rep.add(request{p.Request(), why}) {
		return nil
	}
	if p.Request() == (cluster.Resources{}) {
		t.rep.notes[BestEffort]++
	}
	if err := t.g.room(int64(len(p.Containers))); err != nil {
		return err
	}
	t.dump.Plan(p)
	p.Name = name
	*t.g.user(user).pod(name) = p.Pod
	return nil
}

// owner returns the user of a pod, empty if it is unknown, and the name of the pod within the
// user.
func (t *kubectlDump) owner(p *kubernetes.Pod) (user, pod string) {
	o := p.Origin
	name := o.Namespace + "/" + o.Name
	switch {
	case t.o.OneOwner:
		return WholeCluster, name
	case t.o.OwnerLabel != "":
		return p.Object.Labels[t.o.OwnerLabel], name
	}
	return o.Namespace, o.Name
}

type seenPod struct{ file, uid string }

// again reports whether the same pod was read before. Another pod of its name is an error,
// because the dumps are of two clusters.
func (t *kubectlDump) again(p *kubernetes.Pod) (bool, error) {
	name := p.Object.Namespace + "/" + p.Object.Name
	uid := string(p.Object.UID)
	before, known := t.seen[name]
	if !known {
		t.seen[name] = seenPod{t.path, uid}
		return false, nil
	}
	if uid != "" && uid == before.uid {
		return true, nil
	}
	return false, t.twoClusters("pod", name, before.file)
}

func (t *kubectlDump) twoClusters(kind, name, before string) error {
	return fmt.Errorf("%s and %s have different objects of the same name, %s %s: they are dumps of two clusters, or of two times; plan them one by one",
		display(before), display(t.path), kind, name)
}

// daemon adds a pod to its DaemonSet.
func (t *kubectlDump) daemon(p *kubernetes.Pod) error {
	name, uid := p.Object.Namespace+"/"+p.DaemonSet(), p.OwnerUID("DaemonSet")
	if before, known := t.daemons[name]; known && before.uid != uid {
		return t.twoClusters("DaemonSet", name, before.file)
	}
	t.daemons[name] = seenPod{t.path, uid}
	t.dump.Daemon(p)
	return nil
}

// finish gives all users what runs on every VM, and says what the figures leave out.
func (t *kubectlDump) finish(users []cluster.User) []cluster.User {
	f := t.dump.Finish()
	t.rep.Nodes, t.rep.DaemonSets, t.rep.Rules, t.rep.Selectors, t.rep.Limits = t.dump.Nodes, f.DaemonSets, f.Rules, f.Selectors, f.Limits
	for i := range users {
		users[i].PerVM, users[i].Limits = f.PerVM, f.Limits
	}
	t.rep.Remarks = append(t.rep.Remarks, t.rep.asks.remarks()...)
	for _, why := range []Reason{Negative, Beyond} {
		if n := t.rep.excluded[why]; n > 0 {
			t.rep.Remarks = append(t.rep.Remarks, fmt.Sprintf("Left out: %d pods with a %s.", n, why))
		}
	}
	var blind []string
	for _, d := range f.DaemonSets {
		if d.Request.Memory == 0 {
			blind = append(blind, d.Name)
		}
	}
	if len(blind) > 0 {
		t.rep.Remarks = append(t.rep.Remarks, fmt.Sprintf("DaemonSets that request no memory (%s) take none on planned VMs: what they use is missing to the pods there.", strings.Join(blind, ", ")))
	}
	return users
}

// extended counts the pods that request what no VM model has.
type extended map[string]int

func (e *extended) add(p *kubernetes.Pod) {
	if *e == nil {
		*e = extended{}
	}
	(*e)[strings.Join(p.Extended(), " and ")]++
}

func (e extended) remarks() (all []string) {
	for _, names := range slices.Sorted(maps.Keys(e)) {
		all = append(all, fmt.Sprintf("Left out: %d pods that request %s, which the catalogue's VMs do not have.", e[names], names))
	}
	return all
}
