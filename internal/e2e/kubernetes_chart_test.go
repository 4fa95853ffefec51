//go:build kubernetes

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"unnest.io/unnest/internal/testbed/cluster"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/lab"
)

const (
	cniImage  = "localhost/unnest/cni:2"
	nicsClass = "unnest-nic" // the RuntimeClass of the chart
)

// chart installs the chart by helm. The nodes then have a NIC resource and a condition; the
// DaemonSet may report nothing else, and only about its own node.
func (k *kubernetes) chart() {
	mustRun(k.t, k.unnest, "cluster", "load", filepath.Join(k.binaries, "images", "unnest-cni.tar"))
	k.helm("install", "unnest", "../../deploy/chart", "--set=node.binDir=/usr/lib/cni", "--wait", "--timeout=4m")
	for _, node := range []string{"node1", "node2"} {
		s := k.guestStatus(node)
		k.eventually(node+" has its NICs as a resource", func() bool {
			return k.nics(node) == s.Slots-s.SlotsForeign-s.SlotsQuarantined
		})
		want := fmt.Sprintf("True pods have %d NICs and can get %d more; the node's credentials are valid for ", s.Attachments, k.nics(node)-s.Attachments)
		k.eventually(node+" has its condition", func() bool { return strings.HasPrefix(k.condition(node, "UnnestNetworkReady"), want) })
		enforced := "True NetworkPolicies apply to pods with a NIC of their own"
		k.eventually(node+" says that policies are enforced", func() bool { return k.condition(node, "UnnestNetworkPoliciesEnforced") == enforced })
		if out := mustRun(k.t, k.unnest, "cluster", "status"); !strings.Contains(out, node+": "+strings.TrimPrefix(enforced, "True ")) {
			k.t.Errorf("cluster status says:\n%s", out)
		}
	}
	answer := mustRun(k.t, "nsenter", "--net="+k.fleet.Lab.HostNS(), "curl", "-sS", "--max-time", "60", "http://10.201.0.2:9479/metrics")
	if !strings.Contains(answer, "unnest_node_ready 1\n") || !strings.Contains(answer, "unnest_node_nics{state=\"free\"} ") {
		k.t.Errorf("the metrics of a node are %q", answer)
	}
	k.reports()
}

func (k *kubernetes) helm(args ...string) {
	k.t.Helper()
	mustRun(k.t, append([]string{filepath.Join(k.binaries, "helm"), "--kubeconfig=" + k.config, "--namespace=default"}, args...)...)
}

// nics returns how many NICs a node has for pods that ask for one; -1: it has no such resource.
func (k *kubernetes) nics(node string) int {
	k.t.Helper()
	n, err := strconv.Atoi(k.ctl("get", "node", node, `--output=jsonpath={.status.allocatable.unnest\.io/nic}`))
	if err != nil {
		return -1
	}
	return n
}

// condition returns the status and the message of a node's condition.
func (k *kubernetes) condition(node, kind string) string {
	k.t.Helper()
	return k.ctl("get", "node", node, `--output=jsonpath={range .status.conditions[?(@.type=="`+kind+`")]}{.status} {.message}{end}`)
}

// reports tries what a guest that has been taken over could do with the token of its pod.
func (k *kubernetes) reports() {
	token := k.nodeToken("unnest-system")
	patch := func(path, body string) string { return k.patchNode(token, path, body) }
	own := `{"status":{"conditions":[{"type":"UnnestNetworkReady","status":"True","reason":"NICsAvailable","message":"by hand"}],"capacity":{"unnest.io/nic":"7"},"allocatable":{"unnest.io/nic":"7"}}}`
	if out := patch("node1/status", own); !strings.Contains(out, `"kind": "Node"`) {
		k.t.Errorf("a node's own report is refused: %s", out)
	}
	for _, tt := range []struct{ path, patch, want string }{
		{"node2/status", own, "its own node only"},
		{"node1/status", `{"status":{"conditions":[{"type":"Ready","status":"False"}]}}`, "the conditions UnnestNetworkReady and UnnestNetworkPoliciesEnforced only"},
		{"node1/status", `{"status":{"capacity":{"cpu":"100"}}}`, "the resource unnest.io/nic only"},
		{"node1/status", `{"status":{"allocatable":{"memory":null}}}`, "the resource unnest.io/nic only"},
		{"node1/status", `{"status":{"addresses":[{"type":"InternalIP","address":"10.201.0.3"}]}}`, "conditions and resources of nodes only"},
		{"node1/status", `{"metadata":{"labels":{"tenant":"other"}}}`, "the metadata of nodes"},
		{"node1", `{"spec":{"unschedulable":true}}`, "cannot patch resource"},
	} {
		if out := patch(tt.path, tt.patch); !strings.Contains(out, tt.want) {
			k.t.Errorf("%s of %s: got %s, want a refusal with %q", tt.patch, tt.path, out, tt.want)
		}
	}
	for _, path := range []string{"/api/v1/nodes/node1", "/api/v1/pods", "/api/v1/secrets", "/api/v1/namespaces/unnest-system/configmaps"} {
		out := mustRun(k.t, "curl", "-ksS", "--max-time", "60", "--header", "Authorization: Bearer "+token, k.server()+path)
		if !strings.Contains(out, `"code": 403`) {
			k.t.Errorf("reading %s: got %.200s, want 403", path, out)
		}
	}
}

// nodeToken returns the token of the DaemonSet's pod on node1.
func (k *kubernetes) nodeToken(namespace string) string {
	k.t.Helper()
	pod := k.ctl("--namespace="+namespace, "get", "pods", "--selector=app=unnest-cni", "--field-selector=spec.nodeName=node1", "--output=name")
	return strings.TrimSpace(k.ctl("--namespace="+namespace, "create", "token", "unnest-cni",
		"--bound-object-kind=Pod", "--bound-object-name="+strings.TrimPrefix(strings.TrimSpace(pod), "pod/")))
}

// patchNode returns the answer to a patch of a node. kubectl would read the node first, which is forbidden.
func (k *kubernetes) patchNode(token, path, body string) string {
	k.t.Helper()
	return mustRun(k.t, "curl", "-ksS", "--max-time", "60", "--request", "PATCH", "--header", "Authorization: Bearer "+token,
		"--header", "Content-Type: application/strategic-merge-patch+json", "--data", body, k.server()+"/api/v1/nodes/"+path)
}

// server returns the URL of the API server on this machine.
func (k *kubernetes) server() string {
	k.t.Helper()
	content, err := os.ReadFile(k.config)
	k.check(err)
	return regexp.MustCompile(`https://127\.0\.0\.1:\d+`).FindString(string(content))
}

// nicsRunOut lets node1 have one NIC for pods that ask for one. The second pod waits with a
// reason that a person understands, and starts when the first is gone.
func (k *kubernetes) nicsRunOut() {
	k.helm("upgrade", "unnest", "../../deploy/chart", "--reuse-values", "--set=node.reservedNICs="+strconv.Itoa(k.nics("node2")-1), "--wait", "--timeout=4m")
	k.eventually("node1 has one NIC", func() bool { return k.nics("node1") == 1 })
	pod := func(name string, spec map[string]any) map[string]any {
		p := webPod("own-node1")
		p["metadata"] = map[string]any{"name": name}
		for key, value := range spec {
			p["spec"].(map[string]any)[key] = value
		}
		return p
	}
	k.apply(pod("nic1", map[string]any{"runtimeClassName": nicsClass}))
	k.ctl("wait", "--for=condition=Ready", "pod/nic1", podLimit)
	asks := pod("nic2", nil) // without the class
	container := asks["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
	container["resources"] = map[string]any{"limits": map[string]string{"unnest.io/nic": "1"}}
	k.apply(asks, pod("nic3", map[string]any{"runtimeClassName": nicsClass}))
	for _, name := range []string{"nic2", "nic3"} {
		var why string
		k.eventually(name+" waits for a NIC", func() bool {
			why = k.ctl("get", "pod", name, `--output=jsonpath={.status.phase} {range .status.conditions[?(@.type=="PodScheduled")]}{.reason} {.message}{end}`)
			return strings.HasPrefix(why, "Pending Unschedulable ") && strings.Contains(why, "1 Insufficient unnest.io/nic")
		})
		k.t.Logf("%s: %s", name, why)
	}
	k.ctl("delete", "pod", "nic1", "nic3", "--wait", podLimit)
	k.ctl("wait", "--for=condition=Ready", "pod/nic2", podLimit)
	k.ctl("delete", "pod", "nic2", "--wait", podLimit)
}

// credentialsInPods gives pods the credentials of their node. They cannot use them, though the
// node can: neither a pod with its own NIC nor one behind the guest's bridge.
func (k *kubernetes) credentialsInPods() {
	server := lab.ManagementGateway + ":" + fleet.DaemonPort
	renew := func(name string, more map[string]any) map[string]any {
		spec := map[string]any{
			"nodeSelector": map[string]string{"kubernetes.io/hostname": "node1"}, "restartPolicy": "Never",
			"containers": []any{map[string]any{
				"name": "renew", "image": cniImage, "imagePullPolicy": "Never",
				"command":      []string{"/unnest-cni", "renew", "-server=" + server, "-credentials=/credentials"},
				"volumeMounts": []any{map[string]any{"name": "credentials", "mountPath": "/credentials"}},
			}},
			"volumes": []any{map[string]any{"name": "credentials", "hostPath": map[string]any{"path": "/etc/unnest", "type": "Directory"}}},
		}
		for key, value := range more {
			spec[key] = value
		}
		return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name}, "spec": spec}
	}
	for name, more := range map[string]map[string]any{"thief-own": nil, "thief-bridge": {"runtimeClassName": cluster.Bridge}} {
		k.apply(renew(name, more)) // one at a time: each locks the credentials
		k.ctl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/"+name, podLimit)
		if said := k.ctl("logs", name); !strings.Contains(said, "renew certificate: host daemon: ") {
			k.t.Errorf("%s failed for another reason: %s", name, said)
		}
	}
	k.apply(renew("node", map[string]any{"hostNetwork": true})) // the attempt itself works
	k.ctl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/node", podLimit)
	k.ctl("delete", "pod", "thief-own", "thief-bridge", "node", "--wait", podLimit)
}

// unchart removes the chart: plugins and networks stay, and nothing of ours in the API.
func (k *kubernetes) unchart() {
	k.helm("uninstall", "unnest", "--wait", "--timeout=4m")
	k.eventually("nothing of ours is in the API", func() bool {
		return !strings.Contains(k.ctl("get", "namespaces,clusterroles,clusterrolebindings,runtimeclasses,"+
			"validatingadmissionpolicies,validatingadmissionpolicybindings", "--output=name"), "unnest-") // unnest:policies is the cluster's
	})
}

// manifest checks that the plain manifest is what helm makes of the chart.
func (k *kubernetes) manifest() {
	cmd := exec.Command("../../hack/manifest", "-check")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		k.t.Errorf("%v:\n%s", err, out.String())
	}
}

// Values that --reuse-values keeps of an earlier chart, which had no network.create, give the same objects; a chart without
// a network of its own is for split pods only.
func TestChartOfEarlierValues(t *testing.T) {
	helm := filepath.Join(filepath.Dir(unnestBinary(t)), "helm")
	render := func(values string) (string, error) {
		out, err := exec.Command(helm, "template", "unnest", "../../deploy/chart", "--kube-version=1.34.0", "--set="+values).CombinedOutput()
		return string(out), err
	}
	const span = ",splitPods.enabled=true,splitPods.span=network"
	for _, more := range []string{"", span} {
		want, err := render("network.create=true" + more)
		if err != nil || !strings.Contains(want, "brfusion") {
			t.Fatalf("%v: %s", err, want)
		}
		if got, err := render("network.create=null" + more); err != nil || got != want {
			t.Errorf("with%s and without network.create: %v:\n%s", more, err, got)
		}
	}
	if out, err := render("network.create=false"); err == nil || !strings.Contains(out, "set splitPods.enabled=true and splitPods.span=network") {
		t.Errorf("without split pods: %v: %s", err, out)
	}
	out, err := render("network.create=false" + span)
	if err != nil || !strings.Contains(out, "- -chain") || strings.Contains(out, "brfusion") || strings.Contains(out, "/etc/unnest,") {
		t.Errorf("without a network of its own: %v: %s", err, out)
	}
}
