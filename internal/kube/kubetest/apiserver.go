//go:build kubernetes

package kubetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// programs is what `make kubernetes` makes, seen from a package in internal/kube.
const programs = "../../../bin/kubernetes"

// FreeAddress returns an address of this machine on which nobody listens.
func FreeAddress(t *testing.T) (address, port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return l.Addr().String(), port
}

// Run runs a program of Kubernetes until the test ends. If the test fails, it logs the end of its output.
func Run(t *testing.T, name string, args ...string) {
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

// StartAPIServer starts etcd and an API server with RBAC, and returns its address for an
// administrator.
func StartAPIServer(t *testing.T) *rest.Config {
	t.Helper()
	dir := t.TempDir()
	etcd, _ := FreeAddress(t)
	peer, _ := FreeAddress(t)
	address, port := FreeAddress(t)
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
	users := filepath.Join(dir, "users.csv")
	if err := os.WriteFile(users, []byte("secret,test,1,system:masters\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	Run(t, "etcd", "--data-dir="+dir+"/etcd", "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=http://"+etcd, "--advertise-client-urls=http://"+etcd, "--listen-peer-urls=http://"+peer)
	Run(t, "kube-apiserver", "--etcd-servers=http://"+etcd, "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		"--secure-port="+port, "--cert-dir="+dir, "--authorization-mode=Node,RBAC", "--token-auth-file="+users,
		"--allow-privileged", "--enable-admission-plugins=NodeRestriction", "--disable-admission-plugins=ServiceAccount",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-signing-key-file="+tokens, "--service-account-key-file="+tokens)
	return &rest.Config{Host: "https://" + address, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// StartControllers starts the scheduler and, with flags, the controller manager.
func StartControllers(t *testing.T, config *rest.Config, flags ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		CurrentContext: "test",
		Clusters:       map[string]*clientcmdapi.Cluster{"test": {Server: config.Host, InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"test": {Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"test": {Cluster: "test", AuthInfo: "test"}},
	}, file)
	if err != nil {
		t.Fatal(err)
	}
	for program, more := range map[string][]string{"kube-controller-manager": flags, "kube-scheduler": nil} {
		_, port := FreeAddress(t)
		Run(t, program, append(more, "--kubeconfig="+file, "--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+t.TempDir())...)
	}
}
