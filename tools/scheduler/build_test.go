package scheduler

import (
	"encoding/json"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
)

// models are sizes as EKS reports them, the smallest first.
var models = []struct {
	name, vcpu, capacity, cpu, memory, pods string
}{
	{"m6i.large", "2", "7910Mi", "1930m", "7220Mi", "29"},
	{"m6i.xlarge", "4", "15524Mi", "3920m", "14531Mi", "58"},
	{"m6i.2xlarge", "8", "31480Mi", "7910m", "30210Mi", "58"},
}

const (
	zone   = "us-east-1a"
	region = "us-east-1"
)

// newNode returns a node of a model, in a zone.
func newNode(name string, of int, zone string) *v1.Node {
	m := models[of]
	list := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory), v1.ResourcePods: resource.MustParse(m.pods),
			v1.ResourceEphemeralStorage: resource.MustParse("17Gi")}
	}
	return &v1.Node{
		ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{v1.LabelHostname: name, v1.LabelArchStable: "amd64", v1.LabelOSStable: "linux",
			v1.LabelInstanceTypeStable: m.name, v1.LabelTopologyZone: zone, v1.LabelTopologyRegion: region}},
		Spec:   v1.NodeSpec{ProviderID: "aws:///" + zone + "/i-" + name},
		Status: v1.NodeStatus{Capacity: list(m.vcpu, m.capacity), Allocatable: list(m.cpu, m.memory)},
	}
}

// newNodes returns so many nodes of a model, in one zone.
func newNodes(count, of int) (all []runtime.Object) {
	for i := range count {
		all = append(all, newNode(fmt.Sprintf("n%d", i), of, zone))
	}
	return all
}

// newPod returns a replica of an application in the namespace shop, on a node, with a container of
// the requests.
func newPod(app string, replica, node int, cpu, memory string) *v1.Pod {
	name := fmt.Sprintf("%s-%d", app, replica)
	return &v1.Pod{
		ObjectMeta: meta.ObjectMeta{Name: name, Namespace: "shop", UID: types.UID(name), Labels: map[string]string{"app": app},
			OwnerReferences: []meta.OwnerReference{{Kind: "ReplicaSet", Name: app, UID: types.UID(app), Controller: new(true)}}},
		Spec: v1.PodSpec{NodeName: fmt.Sprintf("n%d", node), Containers: []v1.Container{{Name: "main", Image: "example.com/app",
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu), v1.ResourceMemory: resource.MustParse(memory)}}}}},
		Status: v1.PodStatus{Phase: v1.PodRunning},
	}
}

// newPods returns replicas, one on each node in turn, each changed by edit.
func newPods(app string, replicas, nodes, first int, cpu, memory string, edit func(*v1.Pod)) (all []runtime.Object) {
	for i := range replicas {
		p := newPod(app, i, first+i%nodes, cpu, memory)
		edit(p)
		all = append(all, p)
	}
	return all
}

// daemonized makes a pod one of a DaemonSet.
func daemonized(p *v1.Pod) {
	p.OwnerReferences[0].Kind = "DaemonSet"
}

// label returns a selector of pods with the label.
func label(key, value string) *meta.LabelSelector {
	return &meta.LabelSelector{MatchLabels: map[string]string{key: value}}
}

// antiAffinity keeps pods off the nodes (or other places) of those that the selector names.
func antiAffinity(topology string, s *meta.LabelSelector) *v1.Affinity {
	return &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{TopologyKey: topology, LabelSelector: s}}}}
}

// spread divides pods of the selector over places.
func spread(topology string, skew int32, s *meta.LabelSelector) []v1.TopologySpreadConstraint {
	return []v1.TopologySpreadConstraint{{MaxSkew: skew, TopologyKey: topology, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: s}}
}

// dump returns the objects as kubectl prints them.
func dump(t testing.TB, all ...runtime.Object) []byte {
	t.Helper()
	for _, o := range all {
		kinds, _, err := scheme.Scheme.ObjectKinds(o)
		if err != nil {
			t.Fatal(err)
		}
		o.GetObjectKind().SetGroupVersionKind(kinds[0])
	}
	text, err := json.MarshalIndent(map[string]any{"apiVersion": "v1", "kind": "List", "items": all}, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return text
}
