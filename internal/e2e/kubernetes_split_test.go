//go:build kubernetes

package e2e

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unnest/internal/kube/kubetest"
	"unnest/internal/kube/splitpod"
	"unnest/internal/testbed/cluster"
)

// A Deployment with the annotation has a pod on both nodes, whose containers reach each other on
// 127.0.0.1 in both directions. A Service reaches the container of the second node through the pod.
func TestKubernetesSplitPods(t *testing.T) {
	k := newKubernetes(t)
	for _, s := range []struct {
		name string
		run  func()
	}{
		{"up", k.start},
		{"hostlo in the network of pods", k.chainHostlo},
		{"the controller runs", k.splitController},
		{"a Deployment is split", k.splitDeployment},
		{"another namespace cannot join", k.splitThief},
		{"it is deleted", k.splitDeleted},
		{"down", k.down},
	} {
		if !k.step(s.name, s.run) {
			return
		}
	}
}

// chainHostlo chains the plugin in the network of the nodes' pods, as the chart does.
func (k *kubernetes) chainHostlo() {
	c, err := cluster.View()
	k.check(err)
	const file = "/etc/cni/net.d/10-pods.conflist"
	for _, node := range []string{"node1", "node2"} {
		content, err := c.OnNode(k.t.Context(), node, "cat", file)
		k.check(err)
		var list map[string]any
		k.check(json.Unmarshal(content, &list))
		plugins := list["plugins"].([]any)
		hostlo := map[string]any{"type": "hostlo", "server": plugins[0].(map[string]any)["server"], "capabilities": map[string]bool{"io.kubernetes.cri.pod-annotations": true}}
		list["plugins"] = append([]any{plugins[0], hostlo}, plugins[1:]...)
		content, err = json.Marshal(list)
		k.check(err)
		_, err = c.OnNode(k.t.Context(), node, "sh", "-c", "cp /usr/lib/cni/brfusion /usr/lib/cni/hostlo && printf %s '"+string(content)+"' >"+file)
		k.check(err)
		k.ctl("label", "node", node, splitpod.HostLabel+"=here") // as the DaemonSet does
	}
}

// splitController runs the controller next to the API server.
func (k *kubernetes) splitController() {
	k.apply(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "unnest-system"}})
	host := k.hostAddress(k.clusterIPs("kubernetes")[0])
	for _, o := range kubetest.SplitObjects(k.t, "../../deploy/chart", "https://"+net.JoinHostPort(host, "9443")+"/admit") {
		k.apply(o.Object)
	}
	file := filepath.Join(filepath.Dir(k.config), "split.kubeconfig")
	k.check(os.WriteFile(file, k.nodesConfig(), 0o600))
	r := launch(k.t, "nsenter", "--net="+k.fleet.Lab.HostNS(), filepath.Join(k.binaries, "unnest-kube"),
		"-kubeconfig", file, "-host", host, "-health", "127.0.0.1:9481")
	k.whole.Cleanup(func() { _ = r.Process.Kill() })
	k.eventually("the controller is ready", func() bool {
		return mustRun(k.t, "nsenter", "--net="+k.fleet.Lab.HostNS(), "sh", "-c",
			"curl -s -o /dev/null -w '%{http_code}' http://127.0.0.1:9481/readyz || :") == "200"
	})
}

func (k *kubernetes) splitDeployment() {
	serve := func(name, port string) map[string]any {
		return map[string]any{"name": name, "image": cluster.ToolsImage, "command": []string{"sh", "-c",
			"busybox mkdir -p /www; echo " + name + " >/www/index.html; exec httpd -f -p 127.0.0.1:" + port + " -h /www"}}
	}
	back := serve("back", "8081")
	back["command"].([]string)[2] = strings.ReplaceAll(back["command"].([]string)[2], "127.0.0.1:", "") // for the Service
	labels := map[string]string{"app": "split"}
	k.apply(map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "split"}, "spec": map[string]any{
		"selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{
			"metadata": map[string]any{"labels": labels, "annotations": map[string]string{splitpod.SplitAnnotation: "front;back"}},
			"spec":     map[string]any{"terminationGracePeriodSeconds": 1, "containers": []any{serve("front", "8080"), back}},
		},
	}}, service("split", labels, map[string]any{"ports": []any{map[string]any{"port": 80, "targetPort": 8081}}}), webClient("default"))
	k.ctl("rollout", "status", "deployment/split", podLimit)
	k.ctl("wait", "--for=condition=Ready", "pod/client", podLimit)
	pod := strings.TrimSpace(k.ctl("get", "pods", "--selector=app=split", "--output=jsonpath={.items[*].metadata.name}"))
	nodes := k.ctl("get", "pods", pod, pod+"-f1", "--output=jsonpath={.items[*].spec.nodeName}")
	if nodes != "node1 node2" && nodes != "node2 node1" {
		k.t.Errorf("the fractions are on %q", nodes)
	}
	for from, want := range map[string][2]string{pod: {"http://127.0.0.1:8081/", "back\n"}, pod + "-f1": {"http://127.0.0.1:8080/", "front\n"}} {
		if got := k.in(from, "busybox timeout 60 wget -q -O - "+want[0]); got != want[1] {
			k.t.Errorf("from %s: got %q, want %q", from, got, want[1])
		}
	}
	address := k.clusterIPs("split")[0].String()
	k.eventually("the Service answers", func() bool {
		return k.in("client", "busybox timeout 20 wget -q -O - http://"+net.JoinHostPort(address, "80")+"/ || :") == "back\n"
	})
}

// webClient is a pod that does nothing.
func webClient(namespace string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "client", "namespace": namespace}, "spec": map[string]any{
		"terminationGracePeriodSeconds": 1,
		"containers":                    []any{map[string]any{"name": "client", "image": cluster.ToolsImage, "command": []string{"sleep", "infinity"}}},
	}}
}

// splitThief gives a pod of another namespace name and key of the segment. It is in a segment of its
// own: nobody answers on its localhost.
func (k *kubernetes) splitThief() {
	notes := k.ctl("get", "pods", "--selector=app=split", "--output=jsonpath={.items[0].metadata.annotations}")
	var all map[string]string
	k.check(json.Unmarshal([]byte(notes), &all))
	thief := webClient("thief")
	thief["metadata"].(map[string]any)["annotations"] = map[string]string{
		splitpod.SegmentAnnotation: all[splitpod.SegmentAnnotation], splitpod.KeyAnnotation: all[splitpod.KeyAnnotation],
	}
	k.apply(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "thief"}}, thief)
	k.ctl("--namespace=thief", "wait", "--for=condition=Ready", "pod/client", podLimit)
	if got := k.ctl("--namespace=thief", "exec", "client", "--", "sh", "-c", "busybox timeout 20 wget -q -O - http://127.0.0.1:8081/ 2>&1 || echo refused"); strings.Contains(got, "back") {
		k.t.Errorf("a pod of another namespace reads %q", got)
	}
	k.ctl("delete", "namespace", "thief", "--wait", podLimit)
}

func (k *kubernetes) splitDeleted() {
	k.ctl("delete", "deployment/split", "service/split", "pod/client", "--wait", podLimit)
	k.eventually("no pod is left", func() bool { return strings.TrimSpace(k.ctl("get", "pods", "--output=name")) == "" })
	for _, node := range []string{"node1", "node2"} {
		k.eventually(node+" has no pod with a NIC", func() bool { return k.guestStatus(node).Attachments == 0 })
	}
	k.eventually("no segment is left", func() bool {
		return !strings.Contains(mustRun(k.t, k.unnest, "hostd", "status", "--state", k.fleet.Lab.Dir), "FRACTIONS")
	})
}
