package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest/internal/plan/cluster"
)

// Where a label names the users, the namespace is in the pod's name.
func TestManifestNamespace(t *testing.T) {
	u := cluster.User{Name: "team/red", Pods: []cluster.Pod{{Name: "shop/web.0", Containers: []cluster.Container{{Name: "a"}, {Name: "b"}}}}}
	p := cluster.Plan{VMs: []cluster.VM{{ID: 3, Parts: []cluster.Part{{Container: 0}}}, {ID: 5, Parts: []cluster.Part{{Container: 1}}}}}
	got := Split(u, true, cluster.Catalogue{{Name: "large"}}, p)
	want := []Pod{{"team/red", "shop", "web.0", []Fraction{{3, "large", []string{"a"}}, {5, "large", []string{"b"}}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("split pods (-want +got):\n%s", diff)
	}
}
