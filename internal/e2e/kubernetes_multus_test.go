//go:build kubernetes

package e2e

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/testbed/cluster"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/lab"
)

var multusProgram = flag.String("multus", "", "statically linked program multus (the thin plugin), which TestKubernetesMultus installs on the nodes")

// The objects that Multus needs, as in its own deployments/multus-daemonset.yml.
var (
	networkDefinition = map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "network-attachment-definitions.k8s.cni.cncf.io"},
		"spec": map[string]any{
			"group": "k8s.cni.cncf.io", "scope": "Namespaced",
			"names": map[string]any{"plural": "network-attachment-definitions", "singular": "network-attachment-definition", "kind": "NetworkAttachmentDefinition"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{
				"type": "object", "properties": map[string]any{"spec": map[string]any{
					"type": "object", "properties": map[string]any{"config": map[string]any{"type": "string"}},
				}},
			}}}},
		},
	}
	multusRights = map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": "multus"},
		"rules": []any{
			map[string]any{"apiGroups": []string{"k8s.cni.cncf.io"}, "resources": []string{"*"}, "verbs": []string{"*"}},
			map[string]any{"apiGroups": []string{""}, "resources": []string{"pods", "pods/status"}, "verbs": []string{"get", "list", "update", "watch"}},
			map[string]any{"apiGroups": []string{"", "events.k8s.io"}, "resources": []string{"events"}, "verbs": []string{"create", "patch", "update"}},
		},
	}
)

// networkStatus is an entry of a pod's annotation k8s.v1.cni.cncf.io/network-status.
type networkStatus struct {
	Name, Interface, MAC string
	IPs                  []netip.Addr
	Default              bool
}

// With Multus, a pod behind the bridge of its node gets one or two NICs of its own as further
// networks, and what Kubernetes knows about them is right.
func TestKubernetesMultus(t *testing.T) {
	k := newKubernetes(t, "--network", cluster.Bridge)
	if *multusProgram == "" {
		t.Fatal("want -multus: make e2e TEST=TestKubernetesMultus ARGS='-multus PROGRAM' sets it")
	}
	if !k.step("up", k.up) {
		return
	}
	for _, s := range []struct {
		name string
		run  func()
	}{
		{"Multus is installed", k.installMultus},
		{"pods have further NICs", k.furtherNICs},
		{"pods reach each other by both networks", k.bothNetworks},
		{"an address that is taken", k.takenAddress},
		{"NICs are given back", k.furtherGivenBack},
	} {
		if !k.step(s.name, s.run) {
			break
		}
	}
	k.step("down", k.down)
}

// installMultus makes Multus the plugin of all pods, before the bridge, and BrFusion a network of
// the namespace.
func (k *kubernetes) installMultus() {
	program, err := os.ReadFile(*multusProgram)
	k.check(err)
	account := map[string]any{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "multus"}}
	k.apply(networkDefinition, multusRights, account)
	k.ctl("create", "clusterrolebinding", "multus", "--clusterrole=multus", "--serviceaccount=default:multus")
	k.ctl("wait", "--for=condition=Established", "crd/network-attachment-definitions.k8s.cni.cncf.io", podLimit)
	own := filepath.Join(k.t.TempDir(), "kubeconfig")
	k.check(os.WriteFile(own, k.nodesConfig(), 0o600))
	k.asUser(own, strings.TrimSpace(k.ctl("create", "token", "multus", "--duration=2h")))
	config, err := os.ReadFile(own)
	k.check(err)
	plugin, err := json.Marshal(map[string]any{
		"cniVersion": "1.0.0", "name": "multus", "type": "multus", "kubeconfig": "/etc/kubernetes/multus.conf", "binDir": "/usr/lib/cni",
		"clusterNetwork": "/etc/cni/net.d/10-pods.conflist", "capabilities": map[string]bool{"portMappings": true},
	})
	k.check(err)
	for _, node := range []string{"node1", "node2"} {
		n, err := k.fleet.Find(node)
		k.check(err)
		m := k.reach(n)
		for path, content := range map[string]string{
			"/usr/lib/cni/multus": string(program), "/etc/kubernetes/multus.conf": string(config), "/etc/cni/net.d/00-multus.conf": string(plugin),
		} {
			if out, err := m.try("umask 077; cat >"+path+"; chmod u+x "+path, content); err != nil {
				k.t.Fatalf("%s: write %s: %v: %s", node, path, err, out)
			}
		}
	}
	k.apply(map[string]any{
		"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": map[string]any{"name": "own-nic"},
		"spec": map[string]any{"config": fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "own-nic", "type": "brfusion", "server": %q,
			"credentials": "/etc/unnest", "ipam": {"type": "hostd", "routes": []}, "capabilities": {"ips": true}}`,
			net.JoinHostPort(lab.ManagementGateway, fleet.DaemonPort))},
	})
}

// reach returns a guest with a session of SSH.
func (k *kubernetes) reach(n *fleet.Node) *node {
	k.t.Helper()
	m := &node{Node: n, nodes: k.nodes}
	var err error
	m.ssh, err = k.fleet.Reach(k.t.Context(), n)
	k.check(err)
	return m
}

// chosenAddress is what a pod asks for.
const chosenAddress = "10.201.77.7"

// furtherPods are pods by what they ask of Multus.
var furtherPods = map[string]string{
	"one-node1":    "own-nic",
	"two-node2":    "own-nic,own-nic",
	"chosen-node2": `[{"name": "own-nic", "interface": "data0", "ips": ["` + chosenAddress + `/16"]}]`,
}

// furtherPod is a pod that serves its name, with further networks.
func furtherPod(name, networks string) map[string]any {
	_, node, _ := strings.Cut(name, "-")
	p := webPod("own-" + node)
	p["metadata"] = map[string]any{"name": name, "labels": map[string]string{"app": "further"}, "annotations": map[string]string{"k8s.v1.cni.cncf.io/networks": networks}}
	return p
}

func (k *kubernetes) furtherNICs() {
	for name, networks := range furtherPods {
		k.apply(furtherPod(name, networks))
	}
	k.ctl("wait", "--for=condition=Ready", "pod", "--selector=app=further", podLimit)
	for name, want := range map[string][]string{"one-node1": {"net1"}, "two-node2": {"net1", "net2"}, "chosen-node2": {"data0"}} {
		status := k.networkStatus(name)
		if len(status) != 1+len(want) || !status[0].Default || status[0].Interface != "eth0" {
			k.t.Fatalf("%s: status of the networks: %+v, want those of eth0 and %q", name, status, want)
		}
		if out := k.in(name, "ls /sys/class/net/eth0"); strings.Contains(out, "device") {
			k.t.Errorf("%s: eth0 has a device of its own", name)
		}
		if out := k.in(name, "ip route"); strings.Count(out, "default") != 1 || !regexp.MustCompile(`(?m)^default via \S+ dev eth0`).MatchString(out) {
			k.t.Errorf("%s: want a default route by eth0:\n%s", name, out)
		}
		for i, s := range status[1:] {
			k.isOwnNIC(name, s)
			if s.Name != "default/own-nic" || s.Interface != want[i] || s.Default {
				k.t.Errorf("%s: status of network %d: %+v, want interface %s of default/own-nic", name, i+1, s, want[i])
			}
		}
	}
	if a := k.networkStatus("chosen-node2")[1].IPs; !slices.Contains(a, netip.MustParseAddr(chosenAddress)) {
		k.t.Errorf("a pod asks for %s and has %v", chosenAddress, a)
	}
	for node, want := range map[string]int{"node1": 1, "node2": 3} {
		if s := k.guestStatus(node); s.Attachments != want {
			k.t.Errorf("%s has %d NICs of pods, want %d", node, s.Attachments, want)
		}
	}
}

// isOwnNIC checks that a pod has the NIC that Kubernetes was told, and that the host plugged it.
func (k *kubernetes) isOwnNIC(pod string, s networkStatus) {
	k.t.Helper()
	out := k.in(pod, "cd /sys/class/net/"+s.Interface+" && cat device/uevent address && ip address show dev "+s.Interface)
	if !strings.Contains(out, "DRIVER=virtio_net") || !strings.Contains(out, s.MAC) || len(s.IPs) != 1 || !strings.Contains(out, "inet "+s.IPs[0].String()+"/16") {
		k.t.Errorf("%s: %s is not %+v:\n%s", pod, s.Interface, s, out)
	}
	status := mustRun(k.t, k.unnest, "hostd", "status", "--state", k.fleet.Lab.Dir)
	if len(s.IPs) == 1 && !strings.Contains(status, s.IPs[0].String()+"/") {
		k.t.Errorf("%s has the address %s, which the daemon does not know:\n%s", pod, s.IPs[0], status)
	}
}

// networkStatus is what Multus says of a pod's networks.
func (k *kubernetes) networkStatus(pod string) (all []networkStatus) {
	k.t.Helper()
	text := k.ctl("get", "pod", pod, `--output=jsonpath={.metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status}`)
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		k.t.Fatalf("%s: status of the networks %q: %v", pod, text, err)
	}
	return all
}

// bothNetworks checks that pods reach each other by the bridges of their nodes and by their NICs,
// each from the address of the network.
func (k *kubernetes) bothNetworks() {
	from, to := k.networkStatus("one-node1"), k.networkStatus("two-node2")
	for _, tt := range []struct{ client, server networkStatus }{{from[0], to[0]}, {from[1], to[1]}, {from[1], k.networkStatus("chosen-node2")[1]}} {
		url := fmt.Sprintf("http://%s/cgi-bin/client", netip.AddrPortFrom(tt.server.IPs[0], 8080))
		got := k.in("one-node1", "busybox timeout 20 wget -q -O - "+url)
		if from := clientAddress(got); from != tt.client.IPs[0].String() {
			k.t.Errorf("%s has a client from %q, want %s", url, got, tt.client.IPs[0])
		}
	}
}

// takenAddress starts a pod that asks for an address that another one has. It starts when that one is gone.
func (k *kubernetes) takenAddress() {
	k.apply(furtherPod("late-node1", furtherPods["chosen-node2"]))
	k.eventually("Kubernetes says that the address is taken", func() bool {
		return strings.Contains(k.ctl("get", "events", "--field-selector=involvedObject.name=late-node1,reason=FailedCreatePodSandBox"), chosenAddress)
	})
	k.t.Log(k.ctl("get", "events", "--field-selector=involvedObject.name=late-node1,reason=FailedCreatePodSandBox"))
	k.ctl("delete", "pod", "chosen-node2", "--wait", podLimit)
	k.ctl("wait", "--for=condition=Ready", "pod/late-node1", podLimit)
	k.isOwnNIC("late-node1", k.networkStatus("late-node1")[1])
}

func (k *kubernetes) furtherGivenBack() {
	k.ctl("delete", "pod", "--all", "--wait", podLimit)
	for _, node := range []string{"node1", "node2"} {
		k.eventually(node+" has no pod with a NIC", func() bool { return k.guestStatus(node).Attachments == 0 })
	}
}
