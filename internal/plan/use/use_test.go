package use

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"unnest.io/unnest/internal/plan/cluster"
)

const mebibyte = 1 << 20

func milli(cpu, memory int64) cluster.Resources {
	return cluster.Resources{CPU: cpu * cluster.VCPU / 1000, Memory: memory * mebibyte}
}

// pod is a pod of the Deployment web with one container of 1 vCPU and 1 GiB.
func pod(name string) cluster.Pod {
	return cluster.Pod{Name: name, Origin: &cluster.Origin{Namespace: "shop", Name: name, Kind: "Deployment", Workload: "web"},
		Containers: []cluster.Container{{Name: "app", Request: milli(1000, 1024)}}}
}

// The pods of a workload request what the one that needs most does: 95 % of its samples of CPU,
// and its largest of memory, with headroom.
func TestRequestsOfWorkload(t *testing.T) {
	var u Use
	for i := range int64(100) {
		u.AddCPU(Pod("shop", "a"), "app", (i+1)*cluster.VCPU/1000)
	}
	u.AddMemory(Pod("shop", "a"), "app", 100*mebibyte)
	u.AddMemory(Pod("shop", "a"), "app", 90*mebibyte)
	u.AddCPU(Pod("shop", "b"), "app", 10*cluster.VCPU/1000)
	u.AddMemory(Pod("shop", "b"), "app", 200*mebibyte)
	u.AddCPU(Pod("shop", "gone"), "app", 1)
	pods := []cluster.Pod{pod("a"), pod("b"), pod("c")}
	s := New(&u, pods, nil, 20)
	want := milli(114, 240)
	for _, p := range s.User(cluster.User{Pods: pods}).Pods {
		if got := p.Containers[0].Request; got != want {
			t.Errorf("pod %s requests %s, want %s", p.Name, got, want)
		}
	}
	if pods[0].Containers[0].Request != milli(1000, 1024) {
		t.Error("the pods were changed")
	}
	if s.Known != 3 || s.Lowered != 3 || s.Raised != 0 || s.Unmatched != 1 || s.Before != milli(3000, 3072) || s.After != milli(342, 720) || u.Samples() != 1 {
		t.Errorf("sizing %+v, %d samples", s, u.Samples())
	}
	changes := []Change{{Name: Name{Workload{"shop", "Deployment", "web"}, "app"}, Pods: 3, From: milli(1000, 1024), To: want}}
	if diff := cmp.Diff(changes, s.Changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

// A recommendation counts if it is more than what was measured. Use above the request raises it.
func TestRecommendation(t *testing.T) {
	var u Use
	web := Workload{"shop", "Deployment", "web"}
	u.Recommend(web, "app", milli(500, 64))
	u.Recommend(web, "gone", milli(1, 1))
	u.AddCPU(Pod("shop", "a"), "app", cluster.VCPU/10)
	u.AddMemory(Pod("shop", "a"), "app", 2048*mebibyte)
	s := New(&u, []cluster.Pod{pod("a")}, nil, 0)
	if diff := cmp.Diff(milli(500, 2048), s.Changes[0].To); diff != "" || s.Raised != 1 || s.Lowered != 0 || s.Unmatched != 1 {
		t.Errorf("sizing %+v", s)
	}
}

// Resources without use, pods with requests as a whole and requests that are small already stay.
func TestRequestsThatStay(t *testing.T) {
	small, fixed, other := pod("small"), pod("fixed"), pod("other")
	small.Origin.Workload, fixed.Origin.Workload, other.Origin = "small", "fixed", nil
	small.Containers[0].Request, fixed.Origin.Fixed = milli(4, 16), true
	var u Use
	for _, name := range []string{"small", "fixed", "other"} {
		u.AddCPU(Pod("shop", name), "app", 0)
	}
	u.AddMemory(Pod("shop", "small"), "app", 1)
	s := New(&u, []cluster.Pod{small, fixed, other}, nil, 15)
	if len(s.Changes) != 0 || s.Fixed != 1 || s.Known != 1 || s.Containers != 3 {
		t.Errorf("sizing %+v", s)
	}
	idle := pod("idle")
	u.AddCPU(Pod("shop", "idle"), "app", 0)
	if got := New(&u, []cluster.Pod{idle}, nil, 15).User(cluster.User{Pods: []cluster.Pod{idle}}).Pods[0].Containers[0].Request; got != milli(10, 1024) {
		t.Errorf("an idle container requests %s, want the least CPU and its memory", got)
	}
}

// A pod never requests less than its init containers need, and its runtime's overhead stays.
func TestInitContainersKeepTheirRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) cluster.Resources {
			return milli(rapid.Int64Range(0, 2000).Draw(t, name+" CPU"), rapid.Int64Range(0, 2000).Draw(t, name+" memory"))
		}
		p := cluster.Pod{Name: "p", Origin: &cluster.Origin{Namespace: "n", Name: "p", Startup: draw("startup")}}
		var u Use
		for k := range rapid.IntRange(1, 4).Draw(t, "containers") {
			name := fmt.Sprint("c", k)
			p.Containers = append(p.Containers, cluster.Container{Name: name, Request: draw("container")})
			if rapid.Bool().Draw(t, "measured") {
				used := draw("used")
				u.AddCPU(Pod("n", "p"), name, used.CPU)
				u.AddMemory(Pod("n", "p"), name, used.Memory)
			}
		}
		before, runtime := sum(p.Containers), draw("runtime")
		p.Overhead = runtime.Add(before.Max(p.Origin.Startup).Sub(before))
		sized := New(&u, []cluster.Pod{p}, nil, 15).User(cluster.User{Pods: []cluster.Pod{p}}).Pods[0]
		want := runtime.Add(sum(sized.Containers).Max(p.Origin.Startup))
		if got := sized.Request(); got != want {
			t.Errorf("requests %s, want %s", got, want)
		}
	})
}

// No request is raised above the limit of the container, whose units are rounded down.
func TestRequestsWithinLimits(t *testing.T) {
	var u Use
	u.AddCPU(Pod("shop", "a"), "app", 3*cluster.VCPU)
	u.AddMemory(Pod("shop", "a"), "app", 3000*mebibyte)
	limited := pod("a")
	limited.Origin.Limits = map[string]cluster.Resources{"app": {CPU: 1500 * cluster.VCPU / 1000, Memory: 2_000_000_000}}
	s := New(&u, []cluster.Pod{limited}, nil, 15)
	if got, want := s.User(cluster.User{Pods: []cluster.Pod{limited}}).Pods[0].Containers[0].Request, milli(1500, 1907); got != want || s.Changes[0].To != want {
		t.Errorf("request %s, change %+v; want %s", got, s.Changes, want)
	}
}

// A resource without use keeps its request, also if that is not a whole number of units.
func TestLimitsChangeNoOtherRequest(t *testing.T) {
	var u Use
	u.AddCPU(Pod("shop", "a"), "app", cluster.VCPU/2)
	limited := pod("a")
	limited.Containers[0].Request = cluster.Resources{CPU: cluster.VCPU, Memory: 500_000_000}
	limited.Origin.Limits = map[string]cluster.Resources{"app": {Memory: 500_000_000}}
	s := New(&u, []cluster.Pod{limited}, nil, 0)
	if got := s.User(cluster.User{Pods: []cluster.Pod{limited}}).Pods[0].Containers[0].Request; got != (cluster.Resources{CPU: cluster.VCPU / 2, Memory: 500_000_000}) {
		t.Errorf("request %+v, want 0.5 vCPU and the memory as it was", got)
	}
}
