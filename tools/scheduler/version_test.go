package scheduler

import (
	"os"
	"regexp"
	"testing"
)

// The scheduler is of the version of Kubernetes that `make kubernetes` builds.
func TestVersion(t *testing.T) {
	version := regexp.MustCompile(`k8s\.io/kubernetes (v\S+)|k8s\.io/kube-scheduler => k8s\.io/kube-scheduler (v\S+)`)
	var of []string
	for _, path := range []string{"go.mod", "../kubernetes/go.mod"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found := version.FindAllString(string(text), -1)
		if len(found) != 2 {
			t.Fatalf("%s has the versions %q, want two", path, found)
		}
		of = append(of, found[0]+" "+found[1])
	}
	if of[0] != of[1] {
		t.Errorf("the scheduler is of %s: the cluster has %s", of[0], of[1])
	}
}
