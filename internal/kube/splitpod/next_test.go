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
	released.Spec.NodeSelector = map[string]string{HostLabel: "b"}
	cordoned, tainted := node("b2", "b", "4"), node("b2", "b", "4")
	cordoned.Spec.Unschedulable = true
	tainted.Spec.Taints = []corev1.Taint{{Key: "db", Effect: corev1.TaintEffectNoSchedule}}
	done := on("b1", sized("4"))
	done.Status.Phase = corev1.PodSucceeded
	chosen := sized("1")
	chosen.Spec.NodeSelector = map[string]string{HostLabel: "a"}
	a, b := []*corev1.Node{node("a1", "a", "2"), node("a2", "a", "1")}, []*corev1.Node{node("b1", "b", "4"), node("b2", "b", "4")}
	both := slices.Concat(a, b)
	for _, tt := range []struct {
		what      string
		fractions []*corev1.Pod
		nodes     []*corev1.Node
		pods      []*corev1.Pod
		want      string // host, or a part of the error
	}{
		{"the host with more left", all(sized("1"), sized("1")), both, nil, "b"},
		{"the only host with room", all(sized("1"), sized("1")), both, all(on("b1", sized("4"))), "a"},
		{"a pod that has ended takes none", all(sized("1"), sized("1")), both, all(done), "b"},
		{"the larger fraction needs the larger node", all(sized("1"), sized("2")), a, nil, "a"},
		{"one node each", all(sized("1"), sized("1"), sized("1")), b, nil, "host b: 2 of 3 fit"},
		{"never two hosts", all(sized("2"), sized("2")), []*corev1.Node{node("a1", "a", "2"), node("b1", "b", "2")}, nil, "host a: 1 of 2 fit on its nodes; host b: 1 of 2"},
		{"no host known", all(sized("1"), sized("1")), []*corev1.Node{node("x", "", "4"), node("y", "", "4")}, nil, "no node has the label"},
		{"a released pod takes room", all(sized("3"), sized("4")), b, all(released), "b"},
		{"two released pods do", all(sized("3"), sized("4")), b, all(released, released), "host b: 0 of 2 fit"},
		{"cordoned", all(sized("1"), sized("1")), []*corev1.Node{b[0], cordoned}, nil, "host b: 1 of 2"},
		{"tainted", all(sized("1"), sized("1")), []*corev1.Node{b[0], tainted}, nil, "host b: 1 of 2"},
		{"the pod chooses", all(chosen, sized("1")), both, nil, "a"},
	} {
		host, err := Place(tt.fractions, tt.nodes, tt.pods)
		if got := host + fmt.Sprint(err); err == nil && host != tt.want || err != nil && !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %q, %v; want %s", tt.what, host, err, tt.want)
		}
	}
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
	s, err := Next(w.pod, w.companions, nodes, append([]*corev1.Pod{w.pod}, w.companions...))
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
	if s.Prepare != "" {
		do("prepare", func() { Prepare(w.pod, s.Prepare, fmt.Sprint("key of ", len(w.log))) })
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
		{"all are ready", func(w *world) { w.companions[0].Status = ready }, "ready true"},
		{"a companion is gone", func(w *world) { w.companions = nil }, "rebuild: companion web-0-f1 is gone"},
		{"a companion's node is lost", func(w *world) { w.companions[0].DeletionTimestamp = &now }, "rebuild: companion web-0-f1 is being deleted"},
		{"a companion was evicted", func(w *world) {
			w.companions[0].Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "memory"}
		}, "rebuild: companion web-0-f1 has failed: Evicted memory"},
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
		s, err := Next(w.pod, w.companions, nil, nil)
		got := "nothing"
		switch {
		case err != nil:
			got = err.Error()
		case s.Rebuild != "":
			got = "rebuild: " + s.Rebuild
		case len(s.Delete) > 0:
			got = "delete " + s.Delete[0].Name
		case len(s.Update) > 0:
			got = "update " + s.Update[0].Annotations[LabelsAnnotation]
		case s.Ready != nil:
			got = fmt.Sprint("ready ", *s.Ready)
		}
		if got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.what, got, tt.want)
		}
	}
}
