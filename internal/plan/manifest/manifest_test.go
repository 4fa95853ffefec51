package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"unnest/internal/plan/cluster"
)

// split is a plan that splits the i-th pod.
func split(i int) cluster.Plan {
	return cluster.Plan{VMs: []cluster.VM{{ID: 3, Parts: []cluster.Part{{Pod: i, Container: 0}}}, {ID: 5, Parts: []cluster.Part{{Pod: i, Container: 1}}}}}
}

// Whoever pays, a pod of Kubernetes has its own namespace and name.
func TestManifestNamespace(t *testing.T) {
	u := cluster.User{Name: "team/red", Pods: []cluster.Pod{{Name: "shop/web.0", Origin: &cluster.Origin{Namespace: "shop", Name: "web.0"},
		Containers: []cluster.Container{{Name: "a"}, {Name: "b"}}}}}
	got := Split(u, cluster.Catalogue{{Name: "large"}}, split(0))
	want := []Pod{{"team/red", "shop", "web.0", []Fraction{{3, "large", []string{"a"}}, {5, "large", []string{"b"}}}, "web.0"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Pod{})); diff != "" {
		t.Errorf("split pods (-want +got):\n%s", diff)
	}
}

// A patch must not reach another pod: "A 1" and "a/1" would both be a-1, which a third pod is.
func TestManifestAmbiguousNames(t *testing.T) {
	u := cluster.User{Name: "ann"}
	for _, name := range []string{"a-1", "A 1", "a/1", "B 2"} {
		u.Pods = append(u.Pods, cluster.Pod{Name: name, Containers: []cluster.Container{{Name: "a"}, {Name: "b"}}})
	}
	var got []string
	for i := range u.Pods {
		got = append(got, Split(u, cluster.Catalogue{{Name: "large"}}, split(i))[0].kubeName)
	}
	want := []string{"a-1", "a-1-" + got[1][4:], "a-1-" + got[2][4:], "b-2"}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || got[1] == got[2] || len(got[1]) != len("a-1-")+16 {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}
