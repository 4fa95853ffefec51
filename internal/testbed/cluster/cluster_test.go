package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/cni/netconf"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/lab"
)

func makeKeys(t *testing.T) keys {
	t.Helper()
	k, err := newKeys()
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// certificate returns the certificate of a pair, which must be the authority's, for the usage.
func (k keys) certificate(t *testing.T, p pair, usage x509.ExtKeyUsage) *x509.Certificate {
	t.Helper()
	both, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(k.caPEM())
	if _, err := both.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
		t.Errorf("verify %s: %v", both.Leaf.Subject, err)
	}
	return both.Leaf
}

func TestCredentials(t *testing.T) {
	k := makeKeys(t)
	p, err := k.client("system:node:node1", "system:nodes")
	if err != nil {
		t.Fatal(err)
	}
	if c := k.certificate(t, p, x509.ExtKeyUsageClientAuth); c.Subject.CommonName != "system:node:node1" || !slices.Equal(c.Subject.Organization, []string{"system:nodes"}) {
		t.Errorf("the user is %s", c.Subject)
	}
	if p, err = k.server("api", "10.96.0.1", "localhost"); err != nil {
		t.Fatal(err)
	}
	c := k.certificate(t, p, x509.ExtKeyUsageServerAuth)
	if err := errors.Join(c.VerifyHostname("10.96.0.1"), c.VerifyHostname("localhost")); err != nil {
		t.Error(err)
	}
	if c.VerifyHostname("10.96.0.2") == nil {
		t.Error("the server's certificate is for another address, too")
	}
	if other := makeKeys(t); bytes.Equal(other.caPEM(), k.caPEM()) || bytes.Equal(other.tokens, k.tokens) {
		t.Error("two clusters have the same keys")
	}
}

// A node has credentials of its own only, and every file that the scripts of its image read.
func TestNodeFiles(t *testing.T) {
	c := &Cluster{keys: makeKeys(t), options: Options{Nodes: 2, Slots: 16, Network: BrFusion, ProxyMode: "nftables", SplitPods: SpanHost}}
	files, err := c.nodeFiles("node2", netip.MustParseAddr("10.201.0.3"))
	if err != nil {
		t.Fatal(err)
	}
	for _, script := range []string{"node/kubelet", "node/kube-proxy", "node/volumes"} {
		content, err := nodeFiles.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		for word := range strings.FieldsFuncSeq(string(content), func(r rune) bool { return strings.ContainsRune(" \n=<;", r) }) {
			if strings.HasPrefix(word, "/etc/kubernetes/") && files[word] == "" {
				t.Errorf("%s reads %s, which a node does not have", script, word)
			}
		}
	}
	var config map[string]any
	if err := json.Unmarshal([]byte(files["/etc/kubernetes/kubelet.json"]), &config); err != nil || config["maxPods"] != 16.0 {
		t.Errorf("the kubelet takes %v pods (%v), want one for each slot", config["maxPods"], err)
	}
	if got := files["/etc/kubernetes/node"]; got != "address=10.201.0.3 proxy_mode=nftables\nvolumes=10.200.0.1:7443\n" {
		t.Errorf("the node's variables are %q", got)
	}
	if got := files["/etc/kubernetes/routes"]; got != "10.244.2.0/24 10.201.0.2\n" {
		t.Errorf("the node's routes are %q", got)
	}
	server := k8sServer(t, c.keys, files)
	if err := server.VerifyHostname("10.201.0.3"); err != nil {
		t.Error(err)
	}
	for path, content := range files {
		if strings.Contains(content, string(c.keys.tokens)) {
			t.Errorf("%s has the key of the tokens", path)
		}
	}
}

func k8sServer(t *testing.T, k keys, files map[string]string) *x509.Certificate {
	t.Helper()
	p := pair{[]byte(files["/etc/kubernetes/kubelet.crt"]), []byte(files["/etc/kubernetes/kubelet.key"])}
	return k.certificate(t, p, x509.ExtKeyUsageServerAuth)
}

// The container runtime accepts both networks, and our plugin its configuration.
func TestNetworks(t *testing.T) {
	c := &Cluster{keys: makeKeys(t), options: Options{Nodes: 1, Network: Bridge}}
	files, err := c.nodeFiles("node1", netip.MustParseAddr("10.201.0.2"))
	if err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"net.d": "bridge", "bridge.d": "bridge", "brfusion.d": "brfusion"} {
		list, err := libcni.ConfListFromBytes([]byte(files["/etc/cni/"+dir+"/10-pods.conflist"]))
		if err != nil {
			t.Fatalf("%s: %v", dir, err)
		}
		if list.Name != want || list.Plugins[0].Network.Type != want {
			t.Errorf("%s: network %s of plugin %s, want %s", dir, list.Name, list.Plugins[0].Network.Type, want)
		}
	}
	var list struct{ Plugins []map[string]any }
	if err := json.Unmarshal([]byte(brfusionNetwork(familiesOf(DualStack))), &list); err != nil {
		t.Fatal(err)
	}
	list.Plugins[0]["name"], list.Plugins[0]["cniVersion"] = BrFusion, "1.0.0"
	config, err := netconf.ParseBrFusion(asJSON(list.Plugins[0]))
	if err != nil || config.CheckKeys() != nil {
		t.Errorf("the plugin refuses its configuration: %v, %v", err, config.CheckKeys())
	}
	if want := []netip.Prefix{family4.services, family6.services}; !slices.Equal(config.Services, want) {
		t.Errorf("the plugin serves the ranges %v, want %v", config.Services, want)
	}
}

// Every file in the arguments of the control plane is one that is written, or that a component
// makes. All of them are in the directory of the cluster, by which the lab finds the processes.
func TestControlPlane(t *testing.T) {
	dir := t.TempDir()
	l := &lab.Lab{Name: LabName, Dir: dir}
	c := &Cluster{Lab: l, keys: makeKeys(t)}
	if err := os.Mkdir(c.path(""), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := c.writeCredentials(); err != nil {
		t.Fatal(err)
	}
	etcd, api, clients := controlPlane(c.path(""), c.families())
	for _, p := range append([]component{etcd, api}, clients...) {
		named := false
		for _, argument := range p.arguments {
			_, value, _ := strings.Cut(argument, "=")
			if !filepath.IsAbs(value) {
				continue
			}
			named = named || strings.HasPrefix(value, dir)
			info, err := os.Stat(value)
			if argument == "--data-dir="+c.path("etcd") {
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", p.name, err)
			} else if info.Mode().Perm() != 0o600 {
				t.Errorf("%s: others can read %s: %v", p.name, value, info.Mode())
			}
		}
		if !named {
			t.Errorf("%s: no argument names %s", p.name, dir)
		}
	}
}

// The process between a client and the API server passes both directions on, each until its end.
func TestJoin(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() { // echoes when the client has ended its direction
		server, err := listener.Accept()
		if err != nil {
			return
		}
		defer server.Close()
		content, _ := io.ReadAll(server)
		_, _ = server.Write(content)
	}()
	to, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	client, from := net.Pipe()
	go func() {
		_, _ = client.Write([]byte("hello"))
		client.Close()
	}()
	join(to, from)
	if got, err := io.ReadAll(to); string(got) != "hello" || err != nil {
		t.Errorf("got %q, %v, want the echo", got, err)
	}
}

// The process between clients and the API server starts again at the address that clients have, unless it runs.
func TestForwardAgain(t *testing.T) {
	c := &Cluster{Lab: &lab.Lab{Name: LabName, Dir: t.TempDir()}, keys: makeKeys(t)}
	end := filepath.Join(c.Lab.Dir, "end")
	c.options.Unnest = filepath.Join(c.Lab.Dir, "unnest")
	const script = "#!/bin/sh\n[ \"$1 $2\" = 'cluster forward' ] && read -r line <\"$3/end\"\n" // it has the listener until then
	if err := errors.Join(os.Mkdir(c.path(""), 0o700), unix.Mkfifo(end, 0o600), os.WriteFile(c.options.Unnest, []byte(script), 0o700)); err != nil {
		t.Fatal(err)
	}
	if again, err := c.forwardAgain(); again || err == nil {
		t.Errorf("without credentials: %v, %v", again, err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		err = c.writeKubeconfig("admin.conf", "https://"+listener.Addr().String(), "admin", administrators)
	}
	if err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(c.Kubeconfig())
	if again, err := c.forwardAgain(); again || err != nil {
		t.Errorf("while it runs: %v, %v", again, err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if address, err := c.forwardAddress(); address != listener.Addr().String() || !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("after its end: %s, %v", address, err)
	}
	again, err := c.forwardAgain()
	if !again || err != nil {
		t.Fatalf("after its end: %v, %v", again, err)
	}
	defer func() {
		f, err := os.OpenFile(end, os.O_WRONLY, 0) // waits for the script
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Error(err)
		}
	}()
	if again, err := c.forwardAgain(); again || err != nil {
		t.Errorf("once it runs again: %v, %v", again, err)
	}
	if after, err := os.ReadFile(c.Kubeconfig()); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the credentials have changed (%v)", err)
	}
}

// scarce is a listener of a process that has no descriptor left at times.
type scarce struct {
	net.Listener
	errs []error // nil: a connection
}

func (s *scarce) Accept() (net.Conn, error) {
	err := s.errs[0]
	s.errs = s.errs[1:]
	if err != nil {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", err)}
	}
	conn, other := net.Pipe()
	return conn, other.Close()
}

// A lack of descriptors does not end the process between clients and the API server.
func TestAcceptGoesOn(t *testing.T) {
	used := make(chan net.Conn, 2)
	err := accept(&scarce{errs: []error{unix.EMFILE, nil, unix.ENFILE, nil, unix.EINVAL}}, func(c net.Conn) { used <- c })
	if !errors.Is(err, unix.EINVAL) {
		t.Fatalf("it ends with %v", err)
	}
	for range 2 {
		_ = (<-used).Close()
	}
}

func TestNoCluster(t *testing.T) {
	t.Setenv("UNNEST_STATE", t.TempDir())
	if _, err := View(); err == nil || err.Error() != "no cluster is up: start one by `unnest cluster up`" {
		t.Errorf("got %v", err)
	}
}

func TestFindPrograms(t *testing.T) {
	dir := t.TempDir()
	for _, name := range programs[1:] {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(t.TempDir(), "kubernetes")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if _, err := FindPrograms(link); err == nil || !strings.Contains(err.Error(), programs[0]) || !strings.HasSuffix(err.Error(), ": run `make kubernetes`, or name their directory by --kubernetes DIR") {
		t.Errorf("without %s: got %v", programs[0], err)
	}
	if err := os.WriteFile(filepath.Join(dir, programs[0]), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := FindPrograms(link); got != dir || err != nil {
		t.Errorf("got %s, %v, want %s", got, err, dir)
	}
}

func noImage(context.Context) (image.Image, error) { return image.Image{}, nil }

// An Up that fails leaves nothing but its logs.
func TestUpFails(t *testing.T) {
	if os.Getuid() == 0 && os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("makes network namespaces: set UNNEST_PRIVILEGED=1")
	}
	t.Setenv("UNNEST_STATE", t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	_, err := Up(t.Context(), Options{Programs: t.TempDir(), Unnest: filepath.Join(t.TempDir(), "unnest"), Nodes: 1, MakeImage: noImage})
	if err == nil {
		t.Fatal("without programs, a cluster came up")
	}
	if names, listErr := lab.List(); listErr != nil || len(names) > 0 {
		t.Errorf("labs left: %v, %v", names, listErr)
	}
}

// The components get no proxy, which leads away from the lab, and the rest of the environment.
func TestLaunchWithoutProxy(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("makes network namespaces: set UNNEST_PRIVILEGED=1")
	}
	t.Setenv("UNNEST_STATE", t.TempDir())
	for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy", "NO_PROXY", "MY_PROXY_MODE"} {
		t.Setenv(name, "http://192.0.2.1:3128")
	}
	l, err := lab.Create("test-launch")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}()
	c := &Cluster{Lab: l}
	if err := os.Mkdir(c.path(""), 0o700); err != nil {
		t.Fatal(err)
	}
	ended, err := c.launch(component{name: "part", program: "/usr/bin/env"})
	if err == nil {
		err = <-ended
	}
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(c.path("part.log"))
	if text := strings.ToLower(string(log)); err != nil || strings.Contains(text, "_proxy=") || !strings.Contains(text, "my_proxy_mode=") {
		t.Errorf("proxies are in the environment of a component, or other variables are not (%v)", err)
	}
}

// A port that is taken and a cluster that is up are found before the image is made.
func TestUpFailsEarly(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("makes network namespaces: set UNNEST_PRIVILEGED=1")
	}
	t.Setenv("UNNEST_STATE", t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	o := Options{Port: taken.Addr().(*net.TCPAddr).Port, MakeImage: func(context.Context) (image.Image, error) {
		t.Error("it makes the image")
		return image.Image{}, nil
	}}
	if _, err := Up(t.Context(), o); !errors.Is(err, unix.EADDRINUSE) || !strings.Contains(err.Error(), "--port") {
		t.Errorf("got %v, want that the port is in use", err)
	}
	l, err := lab.Create(LabName)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if _, err := Up(t.Context(), o); !errors.Is(err, ErrExists) {
		t.Errorf("got %v, want ErrExists", err)
	}
}
