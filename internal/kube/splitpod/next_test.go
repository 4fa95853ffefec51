package splitpod

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func node(name, host, cpu string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}, Status: corev1.NodeStatus{
		Allocatable: corev1.ResourceList{"cpu": resource.MustParse(cpu), "pods": resource.MustParse("10")},
	}}
	if host != "" {
		n.Labels[HostLabel] = host
	}
	return n
}

func sized(cpu string) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}}}}
}

func on(node string, p *corev1.Pod) *corev1.Pod { p.Spec.NodeName = node; return p }

func TestPlace(t *testing.T) {
	all := func(pods ...*corev1.Pod) []*corev1.Pod { return pods }
	released := sized("3")
	released.Labels, released.Spec.NodeSelector = map[string]string{PodLabel: "x"}, map[string]string{HostLabel: "b"}
	whole, forged := sized("4"), newPod("", "a")
	whole.Spec.NodeSelector, forged.Spec.NodeSelector = released.Spec.NodeSelector, released.Spec.NodeSelector
	forged.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: Gate}}
	forged.Annotations[CompanionsAnnotation] = `[{"containers":[{"name":"b","resources":{"requests":{"cpu":"4"}}}],"volumes":[{"name":"v","csi":{"driver":"volumes.unnest.io"}}]}]`
	cordoned, tainted := node("b2", "b", "4"), node("b2", "b", "4")
	cordoned.Spec.Unschedulable = true
	tainted.Spec.Taints = []corev1.Taint{{Key: "db", Effect: corev1.TaintEffectNoSchedule}}
	done := on("b1", sized("4"))
	done.Status.Phase = corev1.PodSucceeded
	chosen := sized("1")
	chosen.Spec.NodeSelector = map[string]string{HostLabel: "a"}
	prefers := sized("3")
	prefers.Labels, prefers.Spec.NodeSelector = released.Labels, map[string]string{HostLabel: "b"}
	prefer(&prefers.Spec, "b2", "")
	prepared := newPod("a;b", "a", "b")
	for i := range prepared.Spec.Containers {
		prepared.Spec.Containers[i].Resources = sized("2").Spec.Containers[0].Resources
	}
	Prepare(admit(t, prepared), Placement{"b", []string{"b1", "b2"}})
	disk := with(sized("1"), claim("disk"))
	a, b := []*corev1.Node{node("a1", "a", "2"), node("a2", "a", "1")}, []*corev1.Node{node("b1", "b", "4"), node("b2", "b", "4")}
	both := slices.Concat(a, b)
	for _, tt := range []struct {
		what      string
		fractions []*corev1.Pod
		nodes     []*corev1.Node
		pods      []*corev1.Pod
		want      string // host and nodes, or a part of the error
	}{
		{"the host with more left", all(sized("1"), sized("1")), both, nil, "b b1 b2"},
		{"the only host with room", all(sized("1"), sized("1")), both, all(on("b1", sized("4"))), "a a1 a2"},
		{"a pod that has ended takes none", all(sized("1"), sized("1")), both, all(done), "b b1 b2"},
		{"the larger fraction needs the larger node", all(sized("1"), sized("2")), a, nil, "a a2 a1"},
		{"one node each", all(sized("1"), sized("1"), sized("1")), b, nil, "host b: 2 of 3 fit"},
		{"never two hosts", all(sized("2"), sized("2")), []*corev1.Node{node("a1", "a", "2"), node("b1", "b", "2")}, nil, "host a: 1 of 2 fit on its nodes; host b: 1 of 2"},
		{"no host known", all(sized("1"), sized("1")), []*corev1.Node{node("x", "", "4"), node("y", "", "4")}, nil, "no node has the label"},
		{"a released pod takes room", all(sized("1"), sized("4")), b, all(released), "b b1 b2"},
		{"two released pods do", all(sized("3"), sized("4")), b, all(released, released), "host b: 0 of 2 fit"},
		{"a pod that is not split takes none before the scheduler", all(sized("4"), sized("4")), b, all(whole), "b b1 b2"},
		{"companions that somebody has forged take none", all(sized("4"), sized("4")), b, all(forged), "b b1 b2"},
		{"cordoned", all(sized("1"), sized("1")), []*corev1.Node{b[0], cordoned}, nil, "host b: 1 of 2"},
		{"tainted", all(sized("1"), sized("1")), []*corev1.Node{b[0], tainted}, nil, "host b: 1 of 2"},
		{"what a released pod prefers", all(sized("4"), sized("1")), b, all(prefers), "b b1 b2"},
		{"companions that do not exist yet take room", all(sized("3"), sized("3")), b, all(prepared), "host b: 0 of 2 fit"},
		{"companions that exist take it once", all(sized("2"), sized("2")), b, all(prepared, companions(t, prepared)[0]), "b b1 b2"},
		{"the node of a volume", all(sized("1"), disk), b, nil, "b b1 b2"},
		{"the node of a volume is full", all(sized("1"), disk), b, all(on("b2", sized("4"))), "host b: 1 of 2"},
		{"the pod chooses", all(chosen, sized("1")), both, nil, "a a1 a2"},
	} {
		place, err := Place(tt.fractions, Cluster{Nodes: tt.nodes, Pods: tt.pods, Volumes: map[string]*corev1.NodeSelector{"disk": hostnames("b2")}})
		got := place.Host + " " + strings.Join(place.Nodes, " ")
		if err == nil && got != tt.want || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %q, %v; want %s", tt.what, got, err, tt.want)
		}
	}
}

func hostnames(names ...string) *corev1.NodeSelector {
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: names}}}}}
}

// world executes steps as the controller does.
type world struct {
	pod        *corev1.Pod
	companions []*corev1.Pod
	log        []string
}

// step does what is next, with the first so many changes of it only: the controller is killed.
func (w *world) step(t *testing.T, most int) bool {
	t.Helper()
	nodes := []*corev1.Node{node("a1", "a", "4"), node("a2", "a", "4"), node("a3", "a", "4")}
	s, err := Next(w.pod, w.companions, Cluster{Nodes: nodes, Pods: append([]*corev1.Pod{w.pod}, w.companions...)})
	if err != nil {
		t.Fatal(err)
	}
	changed := false
	do := func(what string, change func()) {
		if most--; most < 0 {
			return
		}
		change()
		w.log = append(w.log, what)
		changed = true
	}
	if s.Prepare.Host != "" {
		do("prepare", func() { Prepare(w.pod, s.Prepare) })
	}
	for _, c := range s.Create {
		do("create "+c.Name, func() { w.companions = append(w.companions, c) })
	}
	for _, p := range s.Release {
		do("release "+p.Name, func() {
			i := slices.IndexFunc(w.companions, func(c *corev1.Pod) bool { return c.Name == p.Name })
			if i >= 0 {
				Release(w.companions[i])
			} else {
				Release(w.pod)
			}
		})
	}
	if s.Ready != nil {
		do(fmt.Sprint("ready ", *s.Ready), func() {
			status := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[*s.Ready]
			w.pod.Status.Conditions = []corev1.PodCondition{{Type: ReadyCondition, Status: status}}
		})
	}
	return changed
}

// Whenever the controller is killed, the same follows: no pod is released before all companions
// exist, and the pod is the last.
func TestKilledBetweenSteps(t *testing.T) {
	want := "prepare, create web-0-f1, create web-0-f2, release web-0-f1, release web-0-f2, release web-0, ready false"
	for most := 1; most < 5; most++ {
		w := &world{pod: admit(t, newPod("a;b;c", "a", "b", "c"))}
		for w.step(t, most) {
		}
		if got := strings.Join(w.log, ", "); got != want {
			t.Errorf("%d changes at a time: got %s, want %s", most, got, want)
		}
		if w.pod.Annotations[KeyAnnotation] != "new-key" || w.companions[1].Annotations[KeyAnnotation] != "new-key" || w.companions[1].Spec.NodeSelector[HostLabel] != "a" {
			t.Errorf("fractions differ in key or host: %v, %v", w.pod, w.companions[1])
		}
	}
}

// No container of a companion starts before the init containers of the pod have ended, and its sidecars have
// started, whenever the controller is killed.
func TestInitContainersFirst(t *testing.T) {
	for most := 1; most < 5; most++ {
		p := newPod("a;b;c", "a", "b", "c")
		p.Spec.InitContainers = []corev1.Container{{Name: "i"}}
		w := &world{pod: admit(t, p)}
		for w.step(t, most) {
		}
		want := "prepare, create web-0-f1, create web-0-f2, release web-0, ready false"
		if got := strings.Join(w.log, ", "); got != want {
			t.Errorf("%d changes at a time: got %s, want %s", most, got, want)
		}
		w.pod.Status.Conditions = append(w.pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue})
		for w.step(t, most) {
		}
		if got := strings.Join(w.log, ", "); got != want+", release web-0-f1, release web-0-f2" {
			t.Errorf("%d changes at a time, initialized: got %s", most, got)
		}
	}
}

// A released pod follows its companions.
func TestKeep(t *testing.T) {
	now := metav1.NewTime(time.Unix(1, 0))
	ready := corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	for _, tt := range []struct {
		what   string
		change func(w *world)
		want   string
	}{
		{"a companion is not ready", func(w *world) {}, "nothing"},
		{"all are ready", func(w *world) { on("a1", w.pod); w.companions[0].Status = ready }, "ready true"},
		{"a companion is gone", func(w *world) { w.companions = nil }, "rebuild: companion web-0-f1 is gone"},
		{"a companion's node is lost", func(w *world) { w.companions[0].DeletionTimestamp = &now }, "rebuild: companion web-0-f1 is being deleted"},
		{"a companion was evicted", func(w *world) {
			w.companions[0].Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "memory"}
		}, "rebuild: companion web-0-f1 has failed: Evicted memory"},
		{"the deadline of both has passed", func(w *world) {
			limit := int64(60)
			w.pod.Spec.ActiveDeadlineSeconds, w.pod.Status.StartTime = &limit, &now
			w.companions[0].Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: deadlineExceeded}
		}, "again after 1s"},
		{"the deadline of a companion has passed, whose pod has not started", func(w *world) {
			limit := int64(60)
			w.pod.Spec.ActiveDeadlineSeconds = &limit
			w.companions[0].Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: deadlineExceeded}
		}, "rebuild: companion web-0-f1 has failed: DeadlineExceeded "},
		{"a companion has done its work", func(w *world) { w.companions[0].Status.Phase = corev1.PodSucceeded }, "nothing"},
		{"the pod is deleted", func(w *world) { w.pod.DeletionTimestamp = &now }, "delete web-0-f1"},
		{"the pod has succeeded", func(w *world) { w.pod.Status.Phase = corev1.PodSucceeded }, "delete web-0-f1"},
		{"the pod has failed", func(w *world) { w.pod.Status.Phase = corev1.PodFailed }, "delete web-0-f1"},
		{"both are deleted", func(w *world) { w.pod.DeletionTimestamp, w.companions[0].DeletionTimestamp = &now, &now }, "nothing"},
		{"the pod has other labels", func(w *world) { w.pod.Labels["tier"] = "front" }, `update {"app":"web","tier":"front"}`},
	} {
		w := &world{pod: admit(t, newPod("a;b", "a", "b"))}
		for w.step(t, 1) {
		}
		tt.change(w)
		s, err := Next(w.pod, w.companions, Cluster{})
		got := outcome(s, err)
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.what, got, tt.want)
		}
	}
}

// outcome says what a step does, or why there is none.
func outcome(s Step, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case s.Rebuild != "":
		return "rebuild: " + s.Rebuild
	case len(s.Delete) > 0:
		return "delete " + s.Delete[0].Name
	case len(s.Update) > 0:
		return "update " + s.Update[0].Annotations[LabelsAnnotation]
	case s.Ready != nil:
		return fmt.Sprint("ready ", *s.Ready)
	case s.Again != 0:
		return fmt.Sprint("again after ", s.Again)
	}
	return "nothing"
}

// A pod of which a fraction gets no node is made again after a while. One that nobody makes again waits, and so does one whose init
// containers have not ended for long.
func TestUnscheduled(t *testing.T) {
	start := time.Unix(1e9, 0)
	yes := true
	for _, tt := range []struct {
		what   string
		after  time.Duration
		change func(w *world)
		want   string
	}{
		{"at first", time.Minute, func(*world) {}, "again after 9m0s"},
		{"at last", patience, func(*world) {}, "rebuild: the scheduler has found no node for fraction web-0-f1 since 2001-09-09T01:46:40Z: 0/2 nodes"},
		{"the first fraction", patience, func(w *world) {
			w.pod.Status.Conditions = append(w.pod.Status.Conditions, w.companions[0].Status.Conditions...)
			on("a1", w.companions[0])
		}, "rebuild: the scheduler has found no node for fraction web-0 since"},
		{"the first fraction, and companions that become ready", patience, func(w *world) {
			w.pod.Status.Conditions = append(w.pod.Status.Conditions, w.companions[0].Status.Conditions...)
			on("a1", w.companions[0]).Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		}, "rebuild: the scheduler has found no node for fraction web-0 since 2001-09-09T01:46:40Z"},
		{"a bare pod", patience, func(w *world) { w.pod.OwnerReferences = nil }, "the scheduler has found no node for fraction web-0-f1 since"},
		{"init containers ended later", patience, func(w *world) {
			w.pod.Status.Conditions = append(w.pod.Status.Conditions, corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(start.Add(patience))})
		}, "again after 10m0s"},
		{"it has a node", patience, func(w *world) { on("a1", w.companions[0]) }, "nothing"},
		{"it is gated", patience, func(w *world) { w.companions[0].Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated }, "nothing"},
		{"a quota was in the way before", time.Hour, func(w *world) { w.pod.Status.Conditions[0].Reason = ForbiddenReason }, "ready false"},
	} {
		w := &world{pod: admit(t, newPod("a;b", "a", "b"))}
		w.pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Controller: &yes}}
		for w.step(t, 1) {
		}
		w.pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(start)
		w.companions[0].Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/2 nodes"}}
		tt.change(w)
		s, err := Next(w.pod, w.companions, Cluster{Now: start.Add(tt.after)})
		got := outcome(s, err)
		if !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: got %s, want %s", tt.what, got, tt.want)
		}
	}
}

// Of two pods whose first fractions use up a quota, the older one gets it.
func TestYield(t *testing.T) {
	start := time.Unix(1e9, 0)
	yes := true
	waiting := func(uid string, created, refused time.Duration) *corev1.Pod {
		p := admit(t, newPod("a;b", "a", "b"))
		p.Name, p.UID, p.CreationTimestamp = uid, types.UID(uid), metav1.NewTime(start.Add(created))
		p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Controller: &yes}}
		p.Status.Conditions = []corev1.PodCondition{{Type: ReadyCondition, Reason: ForbiddenReason, LastTransitionTime: metav1.NewTime(start.Add(refused))}}
		return p
	}
	const s = time.Second
	first, same, second, released := waiting("first", 0, s), waiting("same", 0, s), waiting("second", s, s), waiting("released", -s, s)
	Release(released)
	bare, before := waiting("bare", s, s), waiting("before", -s, -time.Hour)
	bare.OwnerReferences = nil
	fresh := newPod("a;b", "a", "b") // of a request
	fresh.UID = ""
	all := []*corev1.Pod{second, same, released, before, first}
	for _, tt := range []struct {
		p     *corev1.Pod
		after time.Duration
		want  string
	}{
		{first, s, ""}, {same, s, "pod first waits"}, {second, s, "pod "}, {bare, s, ""}, {before, s, "it gives others"}, {first, s + patience, "it gives others"},
	} {
		if got := Yield(tt.p, all, start.Add(tt.after)); !strings.HasPrefix(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("%s after %s: got %q, want %q", tt.p.Name, tt.after, got, tt.want)
		}
	}
	if Ahead(fresh, all, start) == nil || Ahead(fresh, all, start.Add(s+patience)) != nil || Ahead(fresh, []*corev1.Pod{released, before}, start) != nil {
		t.Error("a new pod does not wait for those that are refused, or too long")
	}
}

// A companion without its pod is known, and no other pod.
func TestOrphaned(t *testing.T) {
	p := admit(t, newPod("a;b", "a", "b"))
	Prepare(p, Placement{Host: "a"})
	c := companions(t, p)[0]
	if Orphaned(p) || Orphaned(c) {
		t.Error("a fraction of a pod that exists counts as left over")
	}
	c.OwnerReferences = nil
	if !Orphaned(c) {
		t.Error("a companion without its pod is not known")
	}
	c.Name += "-debug" // kubectl debug --copy-to --keep-labels --keep-annotations
	if Orphaned(c) {
		t.Error("a copy of a companion counts as left over")
	}
}

// Each fraction prefers its node, and what the pod prefers.
func TestPreferencesAreKept(t *testing.T) {
	p := newPod("a;b", "a", "b")
	prefer(&p.Spec, "mine", "")
	Prepare(admit(t, p), Placement{"a", []string{"a1", "a2"}})
	for i, f := range []*corev1.Pod{p, companions(t, p)[0]} {
		var nodes []string
		for _, term := range f.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			nodes = append(nodes, term.Preference.MatchFields[0].Values...)
		}
		if want := []string{"mine", []string{"a1", "a2"}[i]}; !slices.Equal(nodes, want) || preferred(f) != want[1] {
			t.Errorf("fraction %d prefers %v, and first %s; want %v", i, nodes, preferred(f), want)
		}
	}
}
