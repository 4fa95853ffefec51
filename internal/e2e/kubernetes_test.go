//go:build kubernetes

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/testbed/cluster"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/lab"
)

// kubernetes is a cluster of two nodes, as `unnest cluster up` makes it.
type kubernetes struct {
	*nodes
	whole                   *testing.T
	unnest, kubectl, config string
	options                 []string // of `unnest cluster up`
	pods                    []string // that serve their names
}

// newKubernetes returns a cluster that is not up yet. What it has left is removed at the end of the test.
func newKubernetes(t *testing.T, options ...string) *kubernetes {
	t.Helper()
	unnest := unnestBinary(t)
	binaries := filepath.Dir(unnest)
	k := &kubernetes{
		nodes: &nodes{t: t, binaries: binaries}, whole: t, unnest: unnest, kubectl: filepath.Join(binaries, "kubernetes", "kubectl"), options: options,
	}
	t.Cleanup(k.remove)
	k.removeOnSignal()
	return k
}

// removeOnSignal removes the cluster after Ctrl-C, too, which ends the test without its cleanups.
func (k *kubernetes) removeOnSignal() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	k.t.Cleanup(func() {
		signal.Stop(signals)
		close(signals)
	})
	go func() {
		received, ok := <-signals
		if !ok {
			return
		}
		fmt.Fprintf(os.Stderr, "%v: removing the cluster\n", received)
		if _, err := cluster.Down(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}()
}

// podLimit is how long kubectl waits for a pod, on a busy machine.
const podLimit = "--timeout=4m"

// Pods of a real cluster have a NIC of their own, and what Kubernetes promises about pods holds
// for them. The subtests are steps in this order.
func TestKubernetes(t *testing.T) {
	k := newKubernetes(t)
	k.pods = kubernetesPods
	k.step("up is killed", k.upKilled)
	if !k.step("up", k.up) {
		return
	}
	for _, s := range []struct {
		name string
		run  func()
	}{
		{"pods become ready", k.podsReady},
		{"each pod has its NIC", k.ownNICs},
		{"the VMM hands over credentials", k.vouched},
		{"every pod reaches every pod", k.podToPod},
		{"Services", k.services},
		{"DNS", k.dns},
		{"session affinity", k.sessionAffinity},
		{"externalTrafficPolicy", k.localTraffic},
		{"hostPort", k.hostPort},
		{"egress", k.egress},
		{"exec, logs, port-forward", k.access},
		{"the daemon is killed", k.daemonKilled},
		{"NetworkPolicy", k.networkPolicies},
		{"NetworkPolicy through Services", k.servicePolicies},
		{"NetworkPolicy after another client", k.clusterPolicies},
		{"the DaemonSet installs the plugins", k.daemonSet},
		{"unnest bench cluster", k.benchCluster},
		{"pods are deleted", k.deleted},
		{"the manifest is the chart's", k.manifest},
		{"helm installs the chart", k.chart},
		{"NICs run out", k.nicsRunOut},
		{"a node's credentials in pods", k.credentialsInPods},
		{"the chart gets credentials", k.credentialsOfChart},
		{"helm removes the chart", k.unchart},
	} {
		k.step(s.name, s.run)
	}
	k.step("down", k.down)
}

// step runs a part of the test and prints how long it took.
func (k *kubernetes) step(name string, f func()) bool {
	outer := k.t
	defer func() { k.t = outer }()
	return outer.Run(name, func(t *testing.T) {
		k.t = t
		begin := time.Now()
		f()
		t.Logf("%s: %.1f s", name, time.Since(begin).Seconds())
	})
}

// A killed `unnest cluster up` leaves processes and namespaces, which the next one removes.
func (k *kubernetes) upKilled() {
	r := launch(k.t, k.unnest, "cluster", "up")
	k.within(10*time.Minute, "the API server starts", func() bool {
		select {
		case err := <-r.ended:
			k.t.Fatalf("it ended (%v):\n%s", err, r.out.String())
		default:
		}
		_, err := os.Stat(filepath.Join(lab.Root(), cluster.LabName, "kubernetes", "kube-apiserver.log"))
		return err == nil
	})
	r.kill(k.t)
}

// start runs `unnest cluster up`, and finds what it has made.
func (k *kubernetes) start() {
	out, err := exec.Command(k.unnest, append([]string{"cluster", "up"}, k.options...)...).CombinedOutput()
	k.t.Logf("unnest cluster up:\n%s", out)
	k.check(err)
	l, err := lab.View(cluster.LabName)
	k.check(err)
	k.fleet, err = fleet.Open(l)
	k.check(err)
	content, err := os.ReadFile(filepath.Join(l.Dir, "hostd.yaml"))
	k.check(err)
	k.fleet.Policy, err = quota.Parse("hostd.yaml", content) // for daemons that the test starts
	k.check(err)
	k.config = filepath.Join(filepath.Dir(l.Dir), "kubeconfig") // not in the directory of a test that ends before others
	k.check(os.WriteFile(k.config, []byte(mustRun(k.t, k.unnest, "cluster", "kubeconfig")), 0o600))
}

func (k *kubernetes) up() {
	k.start()
	if out, err := exec.Command(k.unnest, "cluster", "up").CombinedOutput(); err == nil || !strings.Contains(string(out), "is up already") {
		k.t.Errorf("a second cluster: %v: %s", err, out)
	}
	status := mustRun(k.t, k.unnest, "cluster", "status")
	want := 6
	if slices.ContainsFunc(k.options, func(o string) bool { return strings.HasPrefix(o, "--split-pods") }) {
		want++
	}
	if n := len(regexp.MustCompile(`(?m)^[a-z-]+ +ready$`).FindAllString(status, -1)); n != want {
		k.t.Errorf("%d components are ready, want %d:\n%s", n, want, status)
	}
	k.wantEnforced(status)
	if n := len(regexp.MustCompile(`(?m)^node[12] +Ready `).FindAllString(status, -1)); n != 2 {
		k.t.Errorf("%d nodes are ready, want 2:\n%s", n, status)
	}
}

// ctl runs kubectl, which must succeed.
func (k *kubernetes) ctl(args ...string) string {
	k.t.Helper()
	return mustRun(k.t, append([]string{k.kubectl, "--kubeconfig=" + k.config}, args...)...)
}

func (k *kubernetes) apply(objects ...map[string]any) {
	k.t.Helper()
	list, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	k.check(err)
	cmd := exec.Command(k.kubectl, "--kubeconfig="+k.config, "apply", "-f", "-")
	cmd.Stdin = bytes.NewReader(list)
	if out, err := cmd.CombinedOutput(); err != nil {
		k.t.Fatalf("apply: %v: %s", err, out)
	}
}

// in runs a shell script in a pod, which must succeed.
func (k *kubernetes) in(pod, script string) string {
	k.t.Helper()
	return k.ctl("exec", pod, "--", "sh", "-c", script)
}

// The pods of the test: on each node one with its own NIC, and one behind the guest's bridge.
var kubernetesPods = []string{"own-node1", "own-node2", "bridge-node1", "bridge-node2"}

// webPod is a pod that serves its name on port 8080. The kubelet probes it in all three ways.
func webPod(name string) map[string]any {
	network, node, _ := strings.Cut(name, "-")
	script := "busybox mkdir -p /www/cgi-bin; echo " + name + " >/www/index.html; " +
		`printf '#!/bin/sh\necho "Content-Type: text/plain"; echo; echo "$REMOTE_ADDR"\n' >/www/cgi-bin/client; ` +
		"busybox chmod +x /www/cgi-bin/client; echo " + name + " serves; exec httpd -f -p 8080 -h /www"
	spec := map[string]any{
		"nodeSelector": map[string]string{"kubernetes.io/hostname": node}, "terminationGracePeriodSeconds": 1,
		"containers": []any{map[string]any{
			"name": "web", "image": cluster.ToolsImage, "command": []string{"sh", "-c", script},
			"startupProbe":   map[string]any{"exec": map[string]any{"command": []string{"cat", "/www/index.html"}}, "failureThreshold": 60, "timeoutSeconds": 30},
			"readinessProbe": map[string]any{"httpGet": map[string]any{"path": "/", "port": 8080}, "periodSeconds": 5, "timeoutSeconds": 10},
			"livenessProbe":  map[string]any{"tcpSocket": map[string]any{"port": 8080}, "timeoutSeconds": 10, "failureThreshold": 10},
		}},
	}
	if network == "bridge" {
		spec["runtimeClassName"] = cluster.Bridge
	}
	return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name, "labels": map[string]string{"app": "web", "pod": name}}, "spec": spec}
}

func (k *kubernetes) podsReady() {
	var pods []map[string]any
	for _, name := range k.pods {
		pods = append(pods, webPod(name))
	}
	publishHostPort(pods[0])
	k.apply(pods...)
	k.ctl("wait", "--for=condition=Ready", "pod", "--selector=app=web", podLimit)
}

// address returns the address of a pod.
func (k *kubernetes) address(pod string) netip.Addr {
	k.t.Helper()
	a, err := netip.ParseAddr(k.ctl("get", "pod", pod, "--output=jsonpath={.status.podIP}"))
	k.check(err)
	return a
}

// addresses returns the addresses of a pod in all families of the cluster.
func (k *kubernetes) addresses(pod string) (all []netip.Addr) {
	k.t.Helper()
	return k.parse(k.ctl("get", "pod", pod, "--output=jsonpath={.status.podIPs[*].ip}"))
}

// parse parses addresses.
func (k *kubernetes) parse(text string) (all []netip.Addr) {
	k.t.Helper()
	for word := range strings.FieldsSeq(text) {
		a, err := netip.ParseAddr(word)
		k.check(err)
		all = append(all, a)
	}
	return all
}

// ownNICs checks that the host's daemon knows the pods' NICs, and that a pod has a virtio device.
func (k *kubernetes) ownNICs() {
	for _, node := range []string{"node1", "node2"} {
		pod := "own-" + node
		if device := k.in(pod, "cat /sys/class/net/eth0/device/uevent"); !strings.Contains(device, "DRIVER=virtio_net") {
			k.t.Errorf("%s: its interface is %q, want a virtio NIC", pod, device)
		}
		if link := k.in("bridge-"+node, "ls /sys/class/net/eth0"); strings.Contains(link, "device") {
			k.t.Errorf("bridge-%s has a device of its own", node)
		}
		if s := k.guestStatus(node); s.Attachments != 1 {
			k.t.Errorf("%s has %d pods with a NIC, want 1", node, s.Attachments)
		}
		status := mustRun(k.t, k.unnest, "hostd", "status", "--state", k.fleet.Lab.Dir)
		if a := k.address(pod); !strings.Contains(status, a.String()+"/") {
			k.t.Errorf("%s has the address %s, which the daemon does not know:\n%s", pod, a, status)
		}
	}
}

func (k *kubernetes) podToPod() {
	var script strings.Builder
	var want strings.Builder
	for _, to := range k.pods {
		for _, a := range k.addresses(to) {
			fmt.Fprintf(&script, "echo $(busybox timeout 20 wget -q -O - http://%s/ || echo no answer of %s)\n", netip.AddrPortFrom(a, 8080), to)
			fmt.Fprintln(&want, to)
		}
	}
	for _, from := range k.pods {
		if got := k.in(from, script.String()); got != want.String() {
			k.t.Errorf("from %s: got\n%swant\n%s", from, got, want.String())
		}
	}
}

func (k *kubernetes) access() {
	cmd := exec.Command(k.kubectl, "--kubeconfig="+k.config, "exec", "-i", "own-node1", "--", "cat")
	cmd.Stdin = strings.NewReader("through the kubelet")
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "through the kubelet" {
		k.t.Errorf("exec: %q, %v", out, err)
	}
	if out := k.ctl("logs", "own-node2"); out != "own-node2 serves\n" {
		k.t.Errorf("logs: %q", out)
	}
	forward := launch(k.t, k.kubectl, "--kubeconfig="+k.config, "port-forward", "pod/own-node2", ":8080")
	var port string
	k.eventually("port-forward listens", func() bool {
		if found := regexp.MustCompile(`127\.0\.0\.1:(\d+)`).FindStringSubmatch(forward.out.String()); found != nil {
			port = found[1]
		}
		return port != ""
	})
	if out := mustRun(k.t, "curl", "-sS", "--max-time", "60", "http://127.0.0.1:"+port+"/"); out != "own-node2\n" {
		k.t.Errorf("port-forward: %q", out)
	}
	forward.kill(k.t)
}

// daemonKilled kills the host daemon while a connection is in use. A pod that is made
// meanwhile starts when there is a daemon again.
func (k *kubernetes) daemonKilled() {
	// nc tells the end of its input to the other nc, which then ends.
	k.in("own-node2", "{ sleep infinity | nc -l -p 9000; } >/tmp/received 2>/tmp/error </dev/null &")
	send := "{ i=1; while echo $i; do i=$((i+1)); sleep 0.2; done | nc " + k.address("own-node2").String() + " 9000; }"
	k.in("own-node1", send+" >/tmp/sent 2>&1 </dev/null &") // a shell within would keep the output of exec open
	k.progresses("at first")
	k.killDaemon()
	k.progresses("without a daemon")
	late := webPod("own-node1")
	late["metadata"] = map[string]any{"name": "late", "labels": map[string]string{"pod": "late"}}
	k.apply(late)
	k.eventually("the pod's network is refused", func() bool {
		return strings.Contains(k.ctl("get", "events", "--field-selector=involvedObject.name=late"), "FailedCreatePodSandBox")
	})
	if status := mustRun(k.t, k.unnest, "cluster", "status"); !regexp.MustCompile(`(?m)^unnest-hostd +it does not run`).MatchString(status) {
		k.t.Errorf("without a daemon, the status is\n%s", status)
	}
	if out, err := exec.Command(k.unnest, "cluster", "repair").CombinedOutput(); err != nil || !strings.Contains(string(out), "unnest-hostd runs again") {
		k.t.Errorf("cluster repair: %v\n%s", err, out)
	}
	k.progresses("with a new daemon")
	k.ctl("wait", "--for=condition=Ready", "pod/late", podLimit)
	for n, line := range strings.Split(strings.TrimSpace(k.in("own-node2", "cat /tmp/received")), "\n") {
		if line != strconv.Itoa(n+1) {
			k.t.Fatalf("the connection has transferred %q as line %d", line, n+1)
		}
	}
}

// received returns how many lines the connection of daemonKilled has transferred.
func (k *kubernetes) received() int {
	n, _ := strconv.Atoi(strings.TrimSpace(k.in("own-node2", "busybox tail -n 1 /tmp/received")))
	return n
}

// progresses waits until the connection of daemonKilled has transferred more.
func (k *kubernetes) progresses(when string) {
	k.t.Helper()
	begin := k.received()
	k.eventually("the connection transfers "+when, func() bool { return k.received() >= begin+5 })
}

// networkPolicies runs the policy client on the host. It lets own-node2 have no connections, and
// then those of one pod. What the client has set stays when it is killed. It is not for bridge-node2,
// whose packets stay in the guest.
func (k *kubernetes) networkPolicies() {
	dir := filepath.Join(k.t.TempDir(), "policy")
	mustRun(k.t, k.unnest, "hostd", "--config", filepath.Join(k.fleet.Lab.Dir, "hostd.yaml"), "--state", k.fleet.Lab.Dir, "policy", "enroll", fleet.Tenant, "--output", dir)
	client := k.policyClient(dir)
	to := k.address("own-node2")
	k.wantReach(to, "own-node1", "late", "bridge-node1", "bridge-node2")
	k.apply(ingressPolicy("deny"))
	k.wantNoReach(to, "own-node1", "late", "bridge-node1")
	k.progresses("though new ones are denied")
	k.apply(ingressPolicy("allow", map[string]any{
		"from":  []any{map[string]any{"podSelector": map[string]any{"matchLabels": map[string]string{"pod": "own-node1"}}}},
		"ports": []any{map[string]any{"port": 8080}},
	}))
	k.wantReach(to, "own-node1")
	client.kill(k.t)
	k.wantReach(to, "own-node1")
	k.wantNoReach(to, "late", "bridge-node1")
	k.wantReach(k.address("late"), "own-node2") // the policies are for what own-node2 receives
	if ready := k.ctl("get", "pod", "own-node2", "--output=jsonpath={.status.containerStatuses[0].ready} {.status.containerStatuses[0].restartCount}"); ready != "true 0" {
		k.t.Errorf("the kubelet's probes of a pod with policies: ready and restarts are %q", ready)
	}
	client = k.policyClient(dir)
	k.ctl("delete", "networkpolicy", "--all")
	k.wantReach(to, "late", "bridge-node1", "bridge-node2")
	client.kill(k.t)
}

// servicePolicies is networkPolicies through a Service, of pods that began with policies: the
// pod of another node, one of the same node, and the pod itself.
func (k *kubernetes) servicePolicies() {
	dir := filepath.Join(k.t.TempDir(), "policy")
	mustRun(k.t, k.unnest, "hostd", "--config", filepath.Join(k.fleet.Lab.Dir, "hostd.yaml"), "--state", k.fleet.Lab.Dir, "policy", "enroll", fleet.Tenant, "--output", dir)
	client := k.policyClient(dir)
	defer func() { client.kill(k.t) }()
	names := []string{"svc-server", "svc-near", "svc-far"}
	for _, name := range names {
		p := webPod("own-node2")
		if name == "svc-far" {
			p = webPod("own-node1")
		}
		p["metadata"] = map[string]any{"name": name, "labels": map[string]string{"pod": name}}
		k.apply(p)
	}
	k.apply(map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "guarded"}, "spec": map[string]any{
		"selector": map[string]string{"pod": "svc-server"}, "ports": []any{map[string]any{"port": 8080}},
	}})
	for _, name := range names {
		k.ctl("wait", "--for=condition=Ready", "pod/"+name, podLimit)
	}
	service, err := netip.ParseAddr(k.ctl("get", "service", "guarded", "--output=jsonpath={.spec.clusterIP}"))
	k.check(err)
	k.wantReach(service, names...)
	policyOf := func(pod string, policy map[string]any) map[string]any {
		policy["spec"].(map[string]any)["podSelector"] = map[string]any{"matchLabels": map[string]string{"pod": pod}}
		return policy
	}
	k.apply(policyOf("svc-server", ingressPolicy("deny")))
	k.wantNoReach(service, "svc-near", "svc-far")
	k.wantReach(service, "svc-server") // a pod reaches itself
	k.apply(policyOf("svc-server", ingressPolicy("allow", map[string]any{
		"from": []any{map[string]any{"podSelector": map[string]any{"matchLabels": map[string]string{"pod": "svc-near"}}}},
	})))
	k.wantReach(service, "svc-near")
	k.wantNoReach(service, "svc-far")
	egress := policyOf("svc-near", ingressPolicy("egress"))
	egress["spec"].(map[string]any)["policyTypes"] = []string{"Egress"}
	delete(egress["spec"].(map[string]any), "ingress")
	k.apply(egress)
	k.wantNoReach(service, "svc-near")
	k.ctl("delete", "networkpolicy", "--all")
	k.wantReach(service, "svc-near", "svc-far")
	k.ctl("delete", "service/guarded", "pod/svc-server", "pod/svc-near", "pod/svc-far", "--wait", podLimit)
}

func (k *kubernetes) wantEnforced(status string) {
	k.t.Helper()
	if !strings.Contains(status, "\nNetworkPolicies          enforced ") {
		k.t.Errorf("the status does not say that policies are enforced:\n%s", status)
	}
}

// clusterPolicies checks that the cluster says that another client has been enrolled in place of its own,
// and that its own enforces policies when the cluster is repaired.
func (k *kubernetes) clusterPolicies() {
	status := mustRun(k.t, k.unnest, "cluster", "status")
	if !strings.Contains(status, "\nNetworkPolicies          NOT enforced: ") || !strings.Contains(status, "policy enroll") {
		k.t.Errorf("the status does not say that another client has been enrolled:\n%s", status)
	}
	mustRun(k.t, k.unnest, "cluster", "repair")
	k.wantEnforced(mustRun(k.t, k.unnest, "cluster", "status"))
	to := k.address("own-node2")
	k.apply(ingressPolicy("deny"))
	k.wantNoReach(to, "own-node1", "bridge-node1")
	k.apply(ingressPolicy("allow", map[string]any{
		"from": []any{map[string]any{"podSelector": map[string]any{"matchLabels": map[string]string{"pod": "bridge-node1"}}}},
	}))
	k.wantReach(to, "bridge-node1")
	k.wantNoReach(to, "own-node1")
	k.ctl("delete", "networkpolicy", "--all")
	k.wantReach(to, "own-node1")
}

// nodesConfig is the kubeconfig for those who reach the API server as the nodes do.
func (k *kubernetes) nodesConfig() []byte {
	k.t.Helper()
	config, err := os.ReadFile(k.config)
	k.check(err)
	server := net.JoinHostPort(k.hostAddress(k.clusterIPs("kubernetes")[0]), "6443")
	return regexp.MustCompile(`https://127\.0\.0\.1:\d+`).ReplaceAll(config, []byte("https://"+server))
}

// policyClient starts the policy client where the host daemon runs, and waits until the daemon
// has everything of it. dir has its credentials.
func (k *kubernetes) policyClient(dir string) *running {
	k.t.Helper()
	k.check(os.WriteFile(dir+".kubeconfig", k.nodesConfig(), 0o600))
	r := launch(k.t, "nsenter", "--net="+k.fleet.Lab.HostNS(), k.unnest, "hostd", "policy", "run",
		"--server", net.JoinHostPort(lab.ManagementGateway, fleet.DaemonPort), "--credentials", dir, "--kubeconfig", dir+".kubeconfig")
	k.whole.Cleanup(func() { _ = r.Process.Kill() })
	k.eventually("policies are in force", func() bool { return strings.Contains(r.out.String(), "policies are in force") })
	return r
}

// ingressPolicy lets own-node2 have the connections of the rules only.
func ingressPolicy(name string, rules ...any) map[string]any {
	return map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"podSelector": map[string]any{"matchLabels": map[string]string{"pod": "own-node2"}}, "policyTypes": []string{"Ingress"}, "ingress": append([]any{}, rules...),
		},
	}
}

// reaches reports whether a pod gets a connection to port 8080 of an address.
func (k *kubernetes) reaches(from string, to netip.Addr) bool {
	k.t.Helper()
	return k.in(from, "nc -w 10 "+to.String()+" 8080 </dev/null >/dev/null 2>&1 && echo open || echo closed") == "open\n"
}

func (k *kubernetes) wantReach(to netip.Addr, from ...string) {
	k.t.Helper()
	for _, pod := range from {
		k.eventually(pod+" reaches "+to.String(), func() bool { return k.reaches(pod, to) })
	}
}

// wantNoReach waits until the first pod does not reach the address. From then on the others do
// not either, because all rules take effect at once.
func (k *kubernetes) wantNoReach(to netip.Addr, from ...string) {
	k.t.Helper()
	k.eventually(from[0]+" does not reach "+to.String(), func() bool { return !k.reaches(from[0], to) })
	for _, pod := range from[1:] {
		if k.reaches(pod, to) {
			k.t.Errorf("%s reaches %s, which a policy forbids", pod, to)
		}
	}
}

// daemonSet installs the plugins on nodes that have lost them, from an image and the manifests
// of this project.
func (k *kubernetes) daemonSet() {
	mustRun(k.t, k.unnest, "cluster", "load", filepath.Join(k.binaries, "images", "unnest-cni.tar"))
	c, err := cluster.View()
	k.check(err)
	const plugin = "/usr/lib/cni/brfusion" // in Debian
	for _, node := range []string{"node1", "node2"} {
		_, err := c.OnNode(k.t.Context(), node, "rm", plugin)
		k.check(err)
	}
	manifest, err := os.ReadFile("../../deploy/kubernetes/unnest.yaml")
	k.check(err)
	manifest = bytes.ReplaceAll(manifest, []byte("path: /opt/cni/bin"), []byte("path: "+filepath.Dir(plugin)))
	path := filepath.Join(k.t.TempDir(), "unnest.yaml")
	k.check(os.WriteFile(path, manifest, 0o600))
	k.ctl("apply", "--filename="+path)
	k.ctl("--namespace=unnest-system", "rollout", "status", "daemonset/unnest-cni", podLimit)
	for _, node := range []string{"node1", "node2"} {
		networks, err := c.OnNode(k.t.Context(), node, "ls", plugin, "/etc/cni/net.d/10-unnest.conflist")
		k.check(err)
		k.t.Logf("%s: %s", node, networks)
	}
	k.ctl("delete", "--filename="+path, "--wait", podLimit)
	again := webPod("own-node2")
	again["metadata"] = map[string]any{"name": "again"}
	k.apply(again)
	k.ctl("wait", "--for=condition=Ready", "pod/again", podLimit)
}

// deleted deletes the pods. Their NICs, addresses and rules are given back.
func (k *kubernetes) deleted() {
	addresses := []netip.Addr{k.address("own-node1"), k.address("own-node2"), k.address("late"), k.address("again")}
	k.ctl("delete", "pod", "--all", "--wait", podLimit)
	for _, node := range []string{"node1", "node2"} {
		k.eventually(node+" has no pod with a NIC", func() bool { return k.guestStatus(node).Attachments == 0 })
	}
	for _, table := range []string{"unnest-antispoof", "unnest-isolation"} {
		rules := mustRun(k.t, "nsenter", "--net="+k.fleet.Lab.HostNS(), "nft", "list", "table", "bridge", table)
		for _, a := range addresses {
			if regexp.MustCompile(regexp.QuoteMeta(a.String()) + `\b`).MatchString(rules) {
				k.t.Errorf("a rule for %s is left:\n%s", a, rules)
			}
		}
	}
	c, err := cluster.View()
	k.check(err)
	for _, node := range []string{"node1", "node2"} {
		links, err := c.OnNode(k.t.Context(), node, "ip", "-o", "link")
		if err != nil || strings.Contains(string(links), "unsv") {
			k.t.Errorf("%s: links of the service path are left: %s, %v", node, links, err)
		}
	}
}

// down removes the cluster. unnestBinary checks that nothing is left.
func (k *kubernetes) down() {
	k.saveLogs()
	mustRun(k.t, k.unnest, "cluster", "down")
	if out, err := exec.Command(k.kubectl, "--kubeconfig="+k.config, "get", "nodes").CombinedOutput(); err == nil {
		k.t.Errorf("after down, the API server answers: %s", out)
	}
}

// saveLogs keeps the logs of a cluster on which the test has failed.
func (k *kubernetes) saveLogs() {
	c, err := cluster.View()
	if err != nil || !k.whole.Failed() {
		return
	}
	dir, err := os.MkdirTemp("", "unnest-kubernetes-")
	k.check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	err = c.SaveLogs(ctx, dir)
	k.whole.Logf("logs are in %s (%v)", dir, err)
}

// remove removes what a failed test has left.
func (k *kubernetes) remove() {
	k.t = k.whole
	k.saveLogs()
	if _, err := cluster.Down(context.Background()); err != nil {
		k.t.Error(err)
	}
}
