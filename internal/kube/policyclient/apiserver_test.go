//go:build kubernetes

package policyclient

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"unnest.io/unnest/internal/kube/kubetest"
)

// apply creates or changes an object, or its status.
func applyObject(t *testing.T, config *rest.Config, path string, o any) {
	t.Helper()
	content, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	client := restClient(t, config)
	for end := time.Now().Add(3 * patience); ; time.Sleep(200 * time.Millisecond) {
		err = client.Patch(types.ApplyPatchType).AbsPath(path).Param("fieldManager", "test").Param("force", "true").Body(content).Do(t.Context()).Error()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("apply %s: %v", path, err)
		}
	}
}

func restClient(t *testing.T, config *rest.Config) *rest.RESTClient {
	t.Helper()
	c := rest.CopyConfig(config)
	c.GroupVersion, c.NegotiatedSerializer = &schema.GroupVersion{Version: "v1"}, serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func applyPod(t *testing.T, config *rest.Config, name, address string) {
	t.Helper()
	p := newPod(name, "")
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	p.UID = "" // the API server gives it
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "none"}}
	path := "/api/v1/namespaces/web/pods/" + name
	applyObject(t, config, path, p)
	if address != "" {
		p.Spec, p.Status = corev1.PodSpec{}, newPod(name, address).Status
		applyObject(t, config, path+"/status", map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]string{"name": name}, "status": map[string]any{"podIP": address, "podIPs": p.Status.PodIPs},
		})
	}
}

// A real API server's objects, lists and watches keep the daemon in step.
func TestRunOnAPIServer(t *testing.T) {
	config := kubetest.StartAPIServer(t)
	applyObject(t, config, "/api/v1/namespaces/web", &corev1.Namespace{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: "web"}})
	applyPod(t, config, "a", "10.0.0.1")
	applyPod(t, config, "b", "")
	d, daemon := newHostDaemon(t)
	start(t, config, daemon)
	next(t, d, "at first", func(c commit) bool { return c.first && len(c.pods) == 2 && peers(c.pods["web/a"]) == nil })
	policy := denyExcept("b")
	policy.TypeMeta = metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}
	path := "/apis/networking.k8s.io/v1/namespaces/web/networkpolicies/deny"
	applyObject(t, config, path, policy)
	next(t, d, "policy", func(c commit) bool { return len(peers(c.pods["web/a"])) == 0 && peers(c.pods["web/a"]) != nil })
	applyPod(t, config, "b", "10.0.0.2")
	next(t, d, "address of a peer", func(c commit) bool { return slices.Equal(peers(c.pods["web/a"]), []string{"10.0.0.2/32"}) })
	policy.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	policy.Spec.Ingress = nil
	applyObject(t, config, path, policy)
	next(t, d, "only egress", func(c commit) bool {
		p := c.pods["web/a"]
		return p != nil && p.GetIngress() == nil && p.GetEgress() != nil
	})
	if err := restClient(t, config).Delete().AbsPath(path).Do(context.Background()).Error(); err != nil {
		t.Fatal(err)
	}
	next(t, d, "no policy", func(c commit) bool { p := c.pods["web/a"]; return p != nil && p.GetEgress() == nil })
	grace := map[string]any{"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
	body, _ := json.Marshal(grace)
	if err := restClient(t, config).Delete().AbsPath("/api/v1/namespaces/web/pods/b").Body(body).Do(context.Background()).Error(); err != nil {
		t.Fatal(fmt.Errorf("delete pod: %w", err))
	}
	next(t, d, "removed", func(c commit) bool { return slices.Equal(c.removed, []string{"web/b"}) })
}
