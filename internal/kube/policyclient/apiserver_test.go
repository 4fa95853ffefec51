//go:build kubernetes

package policyclient

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
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
)

// programs is what `make kubernetes` makes.
const programs = "../../../bin/kubernetes"

func freeAddress(t *testing.T) (address, port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return l.Addr().String(), port
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(programs, name), args...)
	log, err := os.Create(filepath.Join(t.TempDir(), name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: run make kubernetes", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
		if t.Failed() {
			content, _ := os.ReadFile(log.Name())
			t.Logf("%s:\n%s", name, content[max(0, len(content)-2000):])
		}
	})
}

// startAPIServer starts etcd and an API server that lets its one user do everything, and
// returns its address.
func startAPIServer(t *testing.T) *rest.Config {
	t.Helper()
	dir := t.TempDir()
	etcd, _ := freeAddress(t)
	peer, _ := freeAddress(t)
	address, port := freeAddress(t)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	tokens := filepath.Join(dir, "tokens.key")
	if err := os.WriteFile(tokens, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	users := filepath.Join(dir, "users.csv") // the API server has no anonymous users if it allows everything
	if err := os.WriteFile(users, []byte("secret,test,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "etcd", "--data-dir="+dir+"/etcd", "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=http://"+etcd, "--advertise-client-urls=http://"+etcd, "--listen-peer-urls=http://"+peer)
	run(t, "kube-apiserver", "--etcd-servers=http://"+etcd, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		"--secure-port="+port, "--cert-dir="+dir, "--authorization-mode=AlwaysAllow", "--token-auth-file="+users, "--disable-admission-plugins=ServiceAccount",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-signing-key-file="+tokens, "--service-account-key-file="+tokens)
	return &rest.Config{Host: "https://" + address, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

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
	config := startAPIServer(t)
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
