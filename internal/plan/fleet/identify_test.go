package fleet

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/plan/cluster"
)

func unnamed(cpu float64, gib float64) cluster.Node {
	return cluster.Node{Name: "n", Capacity: cluster.Resources{CPU: int64(cpu * cluster.VCPU), Memory: int64(gib * (1 << 30))}}
}

func TestIdentify(t *testing.T) {
	own := cluster.Catalogue{
		{Name: "wide", Size: cluster.Resources{CPU: 2 * cluster.VCPU, Memory: 32 << 30}, Price: 9},
		{Name: "dear", Size: cluster.Resources{CPU: 2 * cluster.VCPU, Memory: 8 << 30}, Price: 7},
		{Name: "cheap", Size: cluster.Resources{CPU: 2 * cluster.VCPU, Memory: 8 << 30}, Price: 5},
		{Name: "four", Size: cluster.Resources{CPU: 4 * cluster.VCPU, Memory: 8 << 30}, Price: 8},
	}
	labelled := unnamed(2, 8)
	labelled.Model = "c9.large"
	for _, tt := range []struct {
		what string
		node cluster.Node
		want string
	}{
		{"the kernel has a part of the memory", unnamed(2, 7.6), "cheap"},
		{"all of the memory", unnamed(4, 8), "four"},
		{"more memory than the model", unnamed(4, 8.01), ""},
		{"much less memory than the model", unnamed(2, 6), ""},
		{"other vCPUs", unnamed(3, 8), ""},
		{"a node that names its model", labelled, "c9.large"},
	} {
		nodes := []cluster.Node{tt.node}
		got, n := Identify(nodes, own)
		if got[0].Model != tt.want || (n == 1) != (tt.node.Model == "" && tt.want != "") {
			t.Errorf("%s: model %q, %d nodes; want %q", tt.what, got[0].Model, n, tt.want)
		}
		if nodes[0].Model != tt.node.Model {
			t.Errorf("%s: the argument changed", tt.what)
		}
	}
}

func TestSizes(t *testing.T) {
	labelled := unnamed(2, 8)
	labelled.Model = "c9.large"
	nodes, models := Sizes([]cluster.Node{unnamed(4, 15.5), unnamed(2, 7.6401), unnamed(2, 7.6402), labelled, unnamed(0, 0)})
	var names []string
	for _, n := range nodes {
		names = append(names, n.Model)
	}
	if diff := cmp.Diff([]string{"4vcpu-15.50gib", "2vcpu-7.64gib", "2vcpu-7.64gib", "c9.large", ""}, names); diff != "" {
		t.Errorf("models of nodes (-want +got):\n%s", diff)
	}
	want := cluster.Catalogue{
		{Name: "2vcpu-7.64gib", Size: unnamed(2, 7.6402).Capacity},
		{Name: "4vcpu-15.50gib", Size: unnamed(4, 15.5).Capacity},
	}
	if diff := cmp.Diff(want, models); diff != "" {
		t.Errorf("models (-want +got):\n%s", diff)
	}
}
