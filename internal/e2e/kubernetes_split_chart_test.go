//go:build kubernetes

package e2e

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"unnest.io/unnest/internal/kube/splitpod"
)

// The network of nodes without a host daemon, the copy of it with hostlo chained, and the plugin.
const (
	nodeNetwork    = "/etc/cni/net.d/10-pods.conflist"
	chainedNetwork = "/etc/cni/net.d/00-unnest.conflist"
	hostloPlugin   = "/usr/lib/cni/hostlo"
)

// onNodes runs a shell script on both nodes, and returns what each prints.
func (k *kubernetes) onNodes(script string) map[string]string {
	k.t.Helper()
	all := map[string]string{}
	for _, node := range []string{"node1", "node2"} {
		all[node] = k.onNode(node, "sh", "-c", script)
	}
	return all
}

// splitNoDaemon makes the nodes such as a cloud has: their network is that of the bridge plugin, and they have neither a daemon nor
// anything of ours. A split pod then waits, and its events say for what.
func (k *kubernetes) splitNoDaemon() {
	k.killDaemon()
	for node, text := range k.onNodes("cat /etc/cni/bridge.d/10-pods.conflist") {
		var network map[string]any
		k.check(json.Unmarshal([]byte(text), &network))
		network["plugins"] = slices.DeleteFunc(network["plugins"].([]any), func(p any) bool { return p.(map[string]any)["type"] == "hostlo" })
		own, err := json.Marshal(network)
		k.check(err)
		k.onNode(node, "sh", "-c", "echo '"+string(own)+"' >"+nodeNetwork+"; rm -f "+hostloPlugin)
	}
	k.ctl("label", "nodes", "--all", splitpod.HostLabel+"-")
	k.apply(splitWorkload("Deployment", "split"))
	k.eventually("an event says what the pod waits for", func() bool {
		return strings.Contains(k.ctl("get", "events", "--field-selector=reason=SplitWaits"), splitpod.HostLabel+"="+splitpod.SpanNetwork)
	})
}

// splitChart installs the chart on them. The controller runs next to the API server already.
func (k *kubernetes) splitChart() {
	mustRun(k.t, k.unnest, "cluster", "load", filepath.Join(k.binaries, "images", "unnest-cni.tar"))
	k.helm("install", "unnest", "../../deploy/chart", "--take-ownership", "--wait", "--timeout=4m", "--set=node.binDir=/usr/lib/cni",
		"--set=network.create=false,splitPods.enabled=true,splitPods.span=network,splitPods.url=https://127.0.0.1:9443/admit",
		"--set=namespace.name=kube-system,namespace.create=false")
	for _, node := range []string{"node1", "node2"} {
		k.eventually(node+" has its condition", func() bool {
			return k.condition(node, "UnnestNetworkReady") == "True tunnels can connect the fractions of split pods"
		})
		if host := k.ctl("get", "node", node, `--output=jsonpath={.metadata.labels.unnest\.node-restriction\.kubernetes\.io/host}`); host != splitpod.SpanNetwork {
			k.t.Errorf("%s has the host %q", node, host)
		}
		if got := k.condition(node, "UnnestNetworkPoliciesEnforced"); got != "" || k.nics(node) >= 0 {
			k.t.Errorf("%s has %d NICs, and says of policies: %s", node, k.nics(node), got)
		}
	}
	for node, network := range k.onNodes("cat " + chainedNetwork) {
		if !strings.Contains(network, `"bridge"`) || !strings.Contains(network, `"hostlo"`) || strings.Contains(network, "brfusion") {
			k.t.Errorf("%s has the network\n%s", node, network)
		}
	}
	k.ctl("--namespace=kube-system", "delete", "pods", "--selector=app=unnest-cni", "--wait", podLimit) // as an upgrade does
	k.onNodes("cat " + chainedNetwork)
	k.ctl("--namespace=kube-system", "rollout", "status", "daemonset/unnest-cni", podLimit)
}

// splitUnchart removes the chart. Pods have the network that they had without it.
func (k *kubernetes) splitUnchart() {
	k.helm("uninstall", "unnest", "--wait", "--timeout=4m")
	k.eventually("the copies of the network are gone", func() bool {
		for _, left := range k.onNodes("ls " + filepath.Dir(chainedNetwork)) {
			if strings.Contains(left, filepath.Base(chainedNetwork)) {
				return false
			}
		}
		return true
	})
	k.wantWireGuard(false)
	k.onNodes("rm -f " + hostloPlugin) // nobody calls it
	k.apply(webClient("default"))
	k.ctl("wait", "--for=condition=Ready", "pod/client", podLimit)
	k.ctl("delete", "pod/client", "--wait", podLimit)
}
