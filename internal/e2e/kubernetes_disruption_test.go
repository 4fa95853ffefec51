//go:build kubernetes

package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/testbed/cluster"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/oci"
)

const connectionsImage = "localhost/unnest/connections:1"

// disruption is a cluster in which 200 connections between two pods on different nodes are in use
// all the time.
type disruption struct {
	*kubernetes
	policies string // directory of the policy client's credentials
	client   *running
}

// Connections of running pods survive the restart and the death of every component of ours, while
// pods come and go. What pods had is given back after a drain, a forced deletion, the deletion of a
// namespace, and the reset of a node.
func TestKubernetesDisruption(t *testing.T) {
	k := newKubernetes(t)
	if !k.step("up", k.up) {
		return
	}
	d := &disruption{kubernetes: k, policies: filepath.Join(t.TempDir(), "policy")}
	for _, s := range []struct {
		name string
		run  func()
	}{
		{"200 connections", d.connect},
		{"the daemon restarts and is killed", d.daemons},
		{"the policy client restarts and is killed", d.clients},
		{"the DaemonSet restarts and is killed", d.daemonSets},
		{"a pod is deleted by force", d.force},
		{"a node is drained", d.drain},
		{"a namespace of 50 pods is deleted", d.namespace},
		{"a node is reset", d.nodeReset},
		{"everything is given back", d.givenBack},
	} {
		if !k.step(s.name, s.run) {
			break
		}
	}
	k.step("down", k.down)
}

// onNode makes a pod that runs args of the image on a node.
func onNode(name, node, image string, args ...string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name}, "spec": map[string]any{
		"nodeSelector": map[string]string{"kubernetes.io/hostname": node}, "terminationGracePeriodSeconds": 1,
		"containers": []any{map[string]any{"name": "main", "image": image, "args": args}},
	}}
}

// busyboxes is a workload of pods that do nothing.
func busyboxes(kind, name string, replicas int) map[string]any {
	labels := map[string]string{"app": name}
	spec := map[string]any{
		"replicas": replicas, "selector": map[string]any{"matchLabels": labels},
		"template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{
			"terminationGracePeriodSeconds": 1,
			"containers":                    []any{map[string]any{"name": "main", "image": cluster.ToolsImage}},
		}},
	}
	if kind == "StatefulSet" {
		spec["serviceName"], spec["podManagementPolicy"] = name, "Parallel"
	}
	return map[string]any{"apiVersion": "apps/v1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec}
}

// connect starts the pods of the connections and others that come and go, and the policy client.
func (d *disruption) connect() {
	content, err := os.ReadFile(goBuild(d.t, "connections", "build", "-trimpath", "-ldflags", "-s -w", "./testdata/connections"))
	d.check(err)
	var archive bytes.Buffer
	d.check(oci.Image{
		Name: connectionsImage, Arch: runtime.GOARCH, Files: map[string][]byte{"/connections": content}, Entrypoint: []string{"/connections"},
	}.Write(&archive))
	c, err := cluster.View()
	d.check(err)
	d.check(c.Load(d.t.Context(), func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil }))
	d.killDaemon()
	d.startDaemon()
	mustRun(d.t, d.unnest, "hostd", "--config", filepath.Join(d.fleet.Lab.Dir, "hostd.yaml"), "--state", d.fleet.Lab.Dir, "policy", "enroll", fleet.Tenant, "--output", d.policies)
	d.client = d.policyClient(d.policies)
	d.apply(onNode("server", "node2", connectionsImage, "serve", ":9000"), busyboxes("Deployment", "churn", 4))
	d.ctl("wait", "--for=condition=Ready", "pod/server", podLimit)
	d.apply(onNode("client", "node1", connectionsImage, "keep", d.address("server").String()+":9000", "200"))
	d.ctl("wait", "--for=condition=Ready", "pod/client", podLimit)
	d.carry("at first")
	d.churn()
}

// carry waits until all connections have carried two more lines each. None may be lost.
func (d *disruption) carry(when string) {
	d.t.Helper()
	target := d.lines() + 400
	d.eventually("the connections carry data "+when, func() bool { return d.lines() >= target })
}

// lines returns how many lines the 200 connections have carried.
func (d *disruption) lines() (lines int) {
	d.t.Helper()
	var alive, lost int
	last := strings.TrimSpace(d.ctl("logs", "client", "--tail=1"))
	if last == "" {
		return 0
	}
	if _, err := fmt.Sscanf(last, "alive %d lost %d lines %d", &alive, &lost, &lines); err != nil || lost > 0 {
		d.t.Fatalf("of the connections, %d are lost (%v): %s", lost, err, d.ctl("logs", "client", "--tail=20"))
	}
	if alive < 200 {
		return 0
	}
	return lines
}

// during deletes the pods of the workload, does f while others take their place, and waits until they are ready.
func (d *disruption) during(what string, f func()) {
	d.t.Helper()
	d.ctl("delete", "pod", "--selector=app=churn", "--wait=false")
	f()
	d.carry("when " + what)
	d.churn()
}

// churn waits until all pods of the workload are ready.
func (d *disruption) churn() {
	d.t.Helper()
	d.ctl("rollout", "status", "deployment/churn", podLimit)
}

func (d *disruption) daemons() {
	d.during("the daemon restarts", func() {
		pid := d.daemonPID()
		d.check(unix.Kill(pid, unix.SIGTERM))
		d.eventually("the daemon ends", func() bool { return ended(pid) })
		d.startDaemon()
	})
	d.during("the daemon is killed", func() {
		d.killDaemon()
		d.carry("without a daemon")
		d.startDaemon()
	})
}

func (d *disruption) clients() {
	d.during("the policy client restarts", func() {
		d.check(d.client.Process.Signal(unix.SIGTERM))
		d.client.end(d.t, endLimit)
		d.client = d.policyClient(d.policies)
	})
	d.during("the policy client is killed", func() {
		d.client.kill(d.t)
		d.client = d.policyClient(d.policies)
	})
}

// daemonSets restarts the pods that install the plugins, and kills their processes.
func (d *disruption) daemonSets() {
	var path string
	rolled := func() {
		d.ctl("--namespace=unnest-system", "rollout", "status", "daemonset/unnest-cni", podLimit)
	}
	d.during("the DaemonSet is installed", func() { path = d.installPlugins() })
	d.during("the DaemonSet restarts", func() {
		d.ctl("--namespace=unnest-system", "rollout", "restart", "daemonset/unnest-cni")
		rolled()
	})
	d.during("the DaemonSet is killed", func() {
		c, err := cluster.View()
		d.check(err)
		for _, node := range []string{"node1", "node2"} {
			_, err := c.OnNode(d.t.Context(), node, "sh", "-c", "kill -9 $(grep -lsz '^/unnest-cni$' /proc/[0-9]*/cmdline | cut -d/ -f3)")
			d.check(err)
		}
		rolled()
	})
	d.ctl("delete", "--filename="+path, "--wait", podLimit)
}

// attachments returns how many NICs a node's pods have.
func (d *disruption) attachments(node string) int { return d.guestStatus(node).Attachments }

// holds waits until the pods of a node have as many NICs.
func (d *disruption) holds(node string, want int) {
	d.t.Helper()
	d.eventually(fmt.Sprintf("%s has %d pods with a NIC", node, want), func() bool { return d.attachments(node) == want })
}

// force deletes pods without waiting for the kubelet, which gives their NICs back later.
func (d *disruption) force() {
	d.ctl("scale", "deployment/churn", "--replicas=0")
	d.holds("node1", 1)
	d.holds("node2", 1)
	d.apply(onNode("forced", "node1", cluster.ToolsImage))
	d.ctl("wait", "--for=condition=Ready", "pod/forced", podLimit)
	d.holds("node1", 2)
	d.ctl("delete", "pod/forced", "--force", "--grace-period=0")
	d.holds("node1", 1)
	d.carry("after a forced deletion")
}

// drain moves a StatefulSet's pods to the other node.
func (d *disruption) drain() {
	d.apply(busyboxes("StatefulSet", "set", 3))
	d.ctl("rollout", "status", "statefulset/set", podLimit)
	d.ctl("drain", "node2", "--pod-selector=app=set", "--ignore-daemonsets", podLimit)
	d.ctl("rollout", "status", "statefulset/set", podLimit)
	d.holds("node2", 1) // the server's
	d.holds("node1", 4)
	d.ctl("uncordon", "node2")
	d.carry("after a drain")
}

// namespace deletes a namespace with 50 pods.
func (d *disruption) namespace() {
	before := [2]int{d.attachments("node1"), d.attachments("node2")}
	d.ctl("create", "namespace", "many")
	many := busyboxes("Deployment", "many", 50)
	many["metadata"] = map[string]any{"name": "many", "namespace": "many"}
	d.apply(many)
	d.ctl("--namespace=many", "rollout", "status", "deployment/many", "--timeout=15m")
	if n := d.attachments("node1") + d.attachments("node2") - before[0] - before[1]; n != 50 {
		d.t.Errorf("50 pods have %d NICs", n)
	}
	d.ctl("delete", "namespace", "many", "--timeout=15m")
	d.holds("node1", before[0])
	d.holds("node2", before[1])
	d.carry("after the deletion of a namespace")
}

// nodeReset resets a node. The pods of its workloads come back with a network, and the connections of
// its pods are lost, of course.
func (d *disruption) nodeReset() {
	n, err := d.fleet.Find("node2")
	d.check(err)
	m := d.reach(n)
	before, err := m.bootID()
	d.check(err)
	d.check(m.reset())
	_, err = m.rebooted(before)
	d.check(err)
	d.ctl("wait", "--for=condition=Ready", "node/node2", podLimit)
	d.ctl("delete", "pod", "client")
	d.within(5*time.Minute, "the server runs again", func() bool { // until then, the API server knows its state before the reset
		return d.ctl("get", "pod", "server", "--output=jsonpath={.status.containerStatuses[0].ready} {.status.containerStatuses[0].restartCount}") == "true 1"
	})
	d.apply(onNode("client", "node1", connectionsImage, "keep", d.address("server").String()+":9000", "200"))
	d.ctl("wait", "--for=condition=Ready", "pod/client", podLimit)
	d.ctl("rollout", "status", "statefulset/set", podLimit)
	d.carry("after a reset")
}

// givenBack deletes all pods. No NIC, address, rule or link of theirs is left.
func (d *disruption) givenBack() {
	d.ctl("delete", "deployment,statefulset", "--all")
	d.ctl("delete", "pod", "--all", "--wait", podLimit)
	c, err := cluster.View()
	d.check(err)
	for _, node := range []string{"node1", "node2"} {
		d.holds(node, 0)
		links, err := c.OnNode(d.t.Context(), node, "ip", "-o", "link")
		if err != nil || strings.Contains(string(links), "unsv") {
			d.t.Errorf("%s: links of the service path are left: %s, %v", node, links, err)
		}
	}
	pod := regexp.MustCompile(`\b10\.201\.[1-9]\d*\.\d+\b`) // nodes are in 10.201.0.0/24
	for _, table := range []string{"unnest-antispoof", "unnest-isolation"} {
		rules := mustRun(d.t, "nsenter", "--net="+d.fleet.Lab.HostNS(), "nft", "list", "table", "bridge", table)
		for _, a := range pod.FindAllString(rules, -1) {
			d.t.Errorf("%s has a rule for %s", table, a)
		}
	}
}
