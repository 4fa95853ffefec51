package splitcontroller

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"unnest.io/unnest/internal/kube/splitpod"
)

// api is an API server whose cache never changes. It refuses to create pods, and logs what changes them.
type api struct {
	client.Client
	pods    []*corev1.Pod
	nodes   []corev1.Node
	volume  corev1.PersistentVolume
	refusal error // of a new pod; nil: for want of a quota
	log     []string
	copies  []bool // of each list of the whole cluster: its objects are copies
}

func (a *api) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	switch o := o.(type) {
	case *corev1.Pod:
		for _, p := range a.pods {
			if p.Name == key.Name {
				*o = *p.DeepCopy()
				return nil
			}
		}
	case *corev1.PersistentVolumeClaim:
		o.Spec.VolumeName = "volume of " + key.Name
		return nil
	case *corev1.PersistentVolume:
		a.volume.DeepCopyInto(o)
		return nil
	}
	return apierrors.NewNotFound(corev1.Resource("pods"), key.Name)
}

func (a *api) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(options)
	own := o.UnsafeDisableDeepCopy != nil && *o.UnsafeDisableDeepCopy
	if o.Namespace == "" {
		a.copies = append(a.copies, !own)
	}
	switch list := list.(type) {
	case *corev1.PodList:
		for _, p := range a.pods {
			if own {
				list.Items = append(list.Items, *p)
			} else if o.LabelSelector == nil || o.LabelSelector.Matches(labelSet(p.Labels)) {
				list.Items = append(list.Items, *p.DeepCopy())
			}
		}
	case *corev1.NodeList:
		list.Items = a.nodes
	}
	return nil
}

func (a *api) Patch(_ context.Context, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
	data, err := patch.Data(o)
	a.log = append(a.log, "patch "+o.GetName()+" "+string(data))
	return err
}

func (a *api) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	return cmp.Or(a.refusal, error(apierrors.NewForbidden(corev1.Resource("pods"), o.GetName(), errors.New("exceeded quota"))))
}

func (a *api) Delete(_ context.Context, o client.Object, _ ...client.DeleteOption) error {
	a.log = append(a.log, "delete "+o.GetName())
	return nil
}

type statusWriter struct {
	client.SubResourceWriter
	a *api
}

func (a *api) Status() client.SubResourceWriter { return statusWriter{a: a} }

func (w statusWriter) Patch(ctx context.Context, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	return w.a.Patch(ctx, o, patch)
}

type labelSet map[string]string

func (s labelSet) Has(key string) bool              { _, ok := s[key]; return ok }
func (s labelSet) Get(key string) string            { return s[key] }
func (s labelSet) Lookup(key string) (string, bool) { v, ok := s[key]; return v, ok }

// splitPod is as admission leaves a pod of a ReplicaSet with two fractions of a processor each.
func splitPod(t *testing.T, name string, change func(*corev1.Pod)) *corev1.Pod {
	t.Helper()
	yes := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: name, UID: types.UID("uid of " + name), ResourceVersion: "1", Annotations: map[string]string{splitpod.SplitAnnotation: "a;b"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Controller: &yes}},
	}}
	for _, c := range []string{"a", "b"} {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c, Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("1")},
		}})
	}
	change(p)
	if err := splitpod.Admit(p, splitpod.Options{Key: "key"}); err != nil {
		t.Fatal(err)
	}
	return p
}

// newAPI has two nodes of one host, with a processor each.
func newAPI(pods ...*corev1.Pod) (*api, *reconciler, *events.FakeRecorder) {
	a := &api{pods: pods}
	for _, name := range []string{"n1", "n2"} {
		a.nodes = append(a.nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{splitpod.HostLabel: "host"}},
			Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse("1"), "pods": resource.MustParse("9")}}})
	}
	recorder := events.NewFakeRecorder(9)
	return a, &reconciler{Client: a, live: a, events: recorder, retry: time.Minute, prepared: map[types.UID]*corev1.Pod{}}, recorder
}

func (r *reconciler) run(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
}

// next returns an event that has been recorded.
func next(t *testing.T, r *events.FakeRecorder) string {
	t.Helper()
	select {
	case e := <-r.Events:
		return e
	default:
		t.Fatal("no event")
		return ""
	}
}

func unchanged(*corev1.Pod) {}

// Two pods that come at once do not get the same room, though the cache does not have the place of the first one yet. It is kept until
// the cache has it.
func TestPlacesAtOnce(t *testing.T) {
	first, second := splitPod(t, "first", unchanged), splitPod(t, "second", unchanged)
	a, r, recorder := newAPI(first, second)
	r.run(t, "first", "second")
	if len(a.log) != 1 || !strings.HasPrefix(a.log[0], "patch first ") {
		t.Errorf("got %q, want a place for the first pod only", a.log)
	}
	if event := next(t, recorder); !strings.Contains(event, "host host: 0 of 2 fit") {
		t.Errorf("event %s", event)
	}
	splitpod.Prepare(first, splitpod.Placement{Host: "host", Nodes: []string{"n1", "n2"}})
	r.run(t, "second")
	if len(r.prepared) != 0 || len(a.log) != 1 {
		t.Errorf("the cache has the place, and the controller keeps %v; changes %q", r.prepared, a.log)
	}
}

// A fraction whose volume is reached by no node with room for it has no place.
func TestPlaceOfVolume(t *testing.T) {
	p := splitPod(t, "web", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "disk"}}}}
		p.Spec.Containers[1].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	})
	a, r, recorder := newAPI(p)
	selector := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}}}}
	a.volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: selector}
	r.run(t, "web")
	if event := next(t, recorder); !strings.Contains(event, "host host: 1 of 2 fit") || len(a.log) > 0 {
		t.Errorf("event %s, changes %q", event, a.log)
	}
	a.nodes[0].Labels["zone"] = "a"
	r.run(t, "web")
	if len(a.log) != 1 || !strings.Contains(a.log[0], `\"node\":\"n1\"`) {
		t.Errorf("got %q, want the companion on the node of its volume", a.log)
	}
}

// A pod whose companion is refused says so, of this pod and no later one of its name. It makes room for an older one that waits, too.
func TestForbidden(t *testing.T) {
	pods := []*corev1.Pod{splitPod(t, "first", unchanged), splitPod(t, "second", unchanged)}
	for i, p := range pods {
		splitpod.Prepare(p, splitpod.Placement{Host: "host"})
		p.CreationTimestamp = metav1.NewTime(time.Unix(int64(i), 0))
	}
	a, r, recorder := newAPI(pods...)
	r.run(t, "first")
	if len(a.log) != 1 || !strings.Contains(a.log[0], `"uid":"uid of first"`) || !strings.Contains(a.log[0], splitpod.ForbiddenReason) {
		t.Fatalf("got %q, want the reason in the status of that pod", a.log)
	}
	pods[0].Status.Conditions = []corev1.PodCondition{{Type: splitpod.ReadyCondition, Status: corev1.ConditionFalse, Reason: splitpod.ForbiddenReason, LastTransitionTime: metav1.Now()}}
	r.run(t, "first", "second")
	if !slices.Equal(a.log[1:], []string{"delete second"}) {
		t.Errorf("got %q, want the younger pod deleted", a.log[1:])
	}
	admission := &admit{cache: a}
	if err := admission.queue(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}); err == nil || !strings.Contains(err.Error(), "pod first waits") {
		t.Errorf("the next pod: %v, want it refused", err)
	}
	for _, want := range []string{"SplitWaits", "SplitWaits", "SplitRebuild"} {
		if event := next(t, recorder); !strings.Contains(event, want) || !strings.Contains(event, "exceeded quota") {
			t.Errorf("event %s, want %s", event, want)
		}
	}
}

// A pod waits whose companion is refused for another reason than a quota, or has a name that is taken. The older it is, the later it is looked at
// again. It notes nothing, because it must not keep others from a quota. An event has no more than the API server takes.
func TestWaits(t *testing.T) {
	pods := corev1.Resource("pods")
	for _, tt := range []struct {
		refusal    error
		age, again time.Duration
		want       string
	}{
		{apierrors.NewAlreadyExists(pods, "web-f1"), 0, time.Minute, "create companion web-f1: another pod has this name; delete it"},
		{apierrors.NewForbidden(pods, "web-f1", errors.New("violates PodSecurity")), 30 * time.Minute, 3 * time.Minute, "violates PodSecurity"},
		{apierrors.NewForbidden(pods, "web-f1", errors.New("x"+strings.Repeat("ä", 999))), 24 * time.Hour, 12 * time.Minute, "xä"},
	} {
		p, other := splitPod(t, "web", unchanged), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-f1"}}
		p.CreationTimestamp = metav1.NewTime(time.Now().Add(-tt.age))
		splitpod.Prepare(p, splitpod.Placement{Host: "host"})
		a, r, recorder := newAPI(p, other)
		a.refusal = tt.refusal
		got, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}})
		if err != nil || got.RequeueAfter < tt.again || got.RequeueAfter > tt.again+10*time.Second || len(a.log) > 0 {
			t.Errorf("%s: again after %v, %v, changes %q; want %v and no change", tt.want, got.RequeueAfter, err, a.log, tt.again)
		}
		if event := next(t, recorder); !strings.HasPrefix(event, "Warning SplitWaits ") || !strings.Contains(event, tt.want) || len(event) > 1024 || !utf8.ValidString(event) {
			t.Errorf("%s: event of %d bytes: %s", tt.want, len(event), event)
		}
	}
}

// A pod with another gate waits without a look at the cluster. A place is found in the cache's own objects, and changes none.
func TestCacheIsRead(t *testing.T) {
	p, first := splitPod(t, "web", unchanged), splitPod(t, "first", unchanged)
	splitpod.Prepare(first, splitpod.Placement{Host: "host", Nodes: []string{"n1", "n2"}})
	p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: "other"})
	a, r, recorder := newAPI(p, first)
	r.run(t, "web")
	if event := next(t, recorder); !strings.Contains(event, "other scheduling gates") || len(a.copies) > 0 {
		t.Errorf("event %s after %d lists of the cluster", event, len(a.copies))
	}
	p.Spec.SchedulingGates = p.Spec.SchedulingGates[:1]
	pods, nodes := []*corev1.Pod{p.DeepCopy(), first.DeepCopy()}, (&corev1.NodeList{Items: a.nodes}).DeepCopy().Items
	r.run(t, "web")
	if event := next(t, recorder); !strings.Contains(event, "0 of 2 fit") || !slices.Equal(a.copies, []bool{false, false}) {
		t.Errorf("event %s, copies %v", event, a.copies)
	}
	if !reflect.DeepEqual(pods, a.pods) || !reflect.DeepEqual(nodes, a.nodes) {
		t.Error("objects of the cache are changed")
	}
}

// A companion that has lost its pod is deleted, once.
func TestOrphan(t *testing.T) {
	p := splitPod(t, "web", unchanged)
	splitpod.Prepare(p, splitpod.Placement{Host: "host"})
	companions, err := splitpod.Companions(p)
	if err != nil {
		t.Fatal(err)
	}
	companions[0].OwnerReferences = nil
	a, r, recorder := newAPI(companions[0])
	r.run(t, "web", "web-f1")
	if event := next(t, recorder); !strings.Contains(event, "it has lost its pod") {
		t.Errorf("event %s", event)
	}
	companions[0].DeletionTimestamp = &metav1.Time{Time: time.Now()}
	r.run(t, "web-f1")
	if !slices.Equal(a.log, []string{"delete web-f1"}) {
		t.Errorf("got %q", a.log)
	}
}

// client-go waits after five requests a second if nobody says otherwise.
func TestUnlimited(t *testing.T) {
	config := &rest.Config{Host: "x"}
	if got := unlimited(config); got.QPS >= 0 || got.Host != "x" || config.QPS != 0 {
		t.Errorf("%v of %v", got.QPS, config.QPS)
	}
}
