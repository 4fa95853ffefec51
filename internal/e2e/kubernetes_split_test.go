//go:build kubernetes

package e2e

import (
	"encoding/json"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/kube/splitpod"
	"unnest.io/unnest/internal/testbed/cluster"
)

// A Deployment with the annotation has a pod on both nodes, whose containers reach each other on
// 127.0.0.1 in both directions. A Service reaches the container of the second node through the pod.
// What docs/split-pods.md promises of running pods holds.
func TestKubernetesSplitPods(t *testing.T) {
	k := newKubernetes(t, "--split-pods")
	for _, s := range []struct {
		name string
		run  func()
	}{
		{"up", k.start},
		{"the controller is killed", k.splitRepaired},
		{"a Deployment is split", func() {
			k.splitDeployment()
			if segment := "default." + k.ctl("get", "pod", k.splitPod(), "--output=jsonpath={.metadata.uid}"); !strings.Contains(k.segments(), segment) {
				k.t.Errorf("the daemon has no segment %s:\n%s", segment, k.segments())
			}
		}},
		{"the pod is ready when all fractions are", k.splitReadiness},
		{"a container of a further fraction ends", k.splitRestart},
		{"a companion is deleted", k.splitRebuild},
		{"rollout", k.splitRollout},
		{"a StatefulSet is split", k.splitStatefulSet},
		{"a Job completes", k.splitJob},
		{"init containers and a sidecar", k.splitInit},
		{"memory, logs and kubectl debug", k.splitMemory},
		{"another namespace cannot join", k.splitThief},
		{"it is deleted", k.splitDeleted},
		{"down", k.down},
	} {
		if !k.step(s.name, s.run) {
			return
		}
	}
}

// With the span network the nodes connect the fractions, without a label of their host and without a segment of the
// daemon. Nothing is left on the nodes. The chart does the same on nodes without a daemon, whose network is another plugin's, and encrypts
// what fractions send to each other if it is told to.
func TestKubernetesSplitNetwork(t *testing.T) {
	k := newKubernetes(t, "--split-pods=network")
	for _, s := range []struct {
		name string
		run  func()
	}{
		{"up", k.start},
		{"a Deployment is split", func() {
			k.splitDeployment()
			if got := k.segments(); got != "" {
				k.t.Errorf("the daemon has segments:\n%s", got)
			}
			if got := k.ctl("get", "nodes", "--selector="+splitpod.HostLabel+"!="+splitpod.SpanNetwork, "--output=name"); got != "" {
				k.t.Errorf("nodes have the label of a host: %s", got)
			}
		}},
		{"a companion is deleted", k.splitRebuild},
		{"rollout", k.splitRollout},
		{"init containers and a sidecar", k.splitInit},
		{"it is deleted", k.splitDeleted},
		{"nodes without a daemon", k.splitNoDaemon},
		{"the chart connects them", k.splitChart},
		{"a Deployment is split there", k.splitDeployment},
		{"its packets can be read", func() { k.splitOverheard(false) }},
		{"rollout there", k.splitRollout},
		{"it is deleted there", k.splitRemoved},
		{"the chart encrypts", func() { k.splitEncrypt("wireguard") }},
		{"a fraction waits for a key", k.splitWaitsForKey},
		{"its packets cannot be read", func() { k.splitOverheard(true) }},
		{"the largest datagrams arrive", k.splitDatagrams},
		{"a node gets another key", k.splitRekey},
		{"a node cannot change another's key", k.splitForgedKey},
		{"it is deleted, too", k.splitRemoved},
		{"the chart encrypts no more", func() { k.splitEncrypt("none") }},
		{"the chart encrypts again", func() { k.splitEncrypt("wireguard") }},
		{"the chart is removed", k.splitUnchart},
		{"down", k.down},
	} {
		if !k.step(s.name, s.run) {
			return
		}
	}
}

// splitController returns the process of the controller.
func (k *kubernetes) splitController() (int, error) {
	config := filepath.Join(k.fleet.Lab.Dir, "kubernetes", "split.conf")
	return strconv.Atoi(strings.TrimSpace(mustRun(k.t, "sh", "-c", "grep -lsz '^"+config+"$' /proc/[0-9]*/cmdline | cut -d/ -f3")))
}

// splitRepaired has a killed controller started again.
func (k *kubernetes) splitRepaired() {
	pid, err := k.splitController()
	k.check(err)
	k.check(unix.Kill(pid, unix.SIGKILL))
	k.eventually("the status says so", func() bool {
		out, _ := exec.Command(k.unnest, "cluster", "status").CombinedOutput()
		return !strings.Contains(string(out), "unnest-kube              ready")
	})
	if out, err := exec.Command(k.unnest, "cluster", "repair").CombinedOutput(); err != nil || !strings.Contains(string(out), "unnest-kube runs again") {
		k.t.Errorf("repair: %v: %s", err, out)
	}
}

// splitTemplate is the template of a pod whose two containers serve their names: front on port 8080 of
// 127.0.0.1 and ::1, back on port 8081 of every address. back is ready unless it has the file /tmp/unready,
// and fails when it has /tmp/end.
func splitTemplate(labels map[string]string) map[string]any {
	serve := func(name string, addresses ...string) map[string]any {
		servers := "for a in " + strings.Join(addresses, " ") + "; do httpd -f -p $a -h /www & done; "
		return map[string]any{"name": name, "image": cluster.ToolsImage, "command": []string{"sh", "-c",
			"echo " + name + " starts; busybox mkdir -p /www; echo " + name + " >/www/index.html; " + servers +
				"trap 'exit 0' TERM; while [ ! -e /tmp/end ]; do sleep 1; done; exit 1"}}
	}
	back := serve("back", "8081")
	back["readinessProbe"] = map[string]any{"exec": map[string]any{"command": []string{"sh", "-c", "[ ! -e /tmp/unready ]"}}, "periodSeconds": 2, "failureThreshold": 1, "timeoutSeconds": 30}
	return map[string]any{
		"metadata": map[string]any{"labels": labels, "annotations": map[string]string{splitpod.SplitAnnotation: "front;back"}},
		"spec":     map[string]any{"terminationGracePeriodSeconds": 1, "containers": []any{serve("front", "127.0.0.1:8080", "[::1]:8080"), back}},
	}
}

// splitWorkload is a Deployment or StatefulSet of one split pod with the label app=NAME.
func splitWorkload(kind, name string) map[string]any {
	labels := map[string]string{"app": name}
	return map[string]any{"apiVersion": "apps/v1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": map[string]any{
		"selector": map[string]any{"matchLabels": labels}, "template": splitTemplate(labels),
	}}
}

// splitService is a Service of the container back.
func splitService() map[string]any {
	return service("split", map[string]string{"app": "split"}, map[string]any{"ports": []any{map[string]any{"port": 80, "targetPort": 8081}}})
}

func (k *kubernetes) splitDeployment() {
	k.apply(splitWorkload("Deployment", "split"), splitService(), webClient("default"))
	k.ctl("rollout", "status", "deployment/split", podLimit)
	k.ctl("wait", "--for=condition=Ready", "pod/client", podLimit)
	pod := k.splitPod()
	k.wantSplit(pod)
	k.eventually("the Service has the pod's address only", func() bool { return k.endpoints() == k.address(pod).String()+" true" })
	address := k.clusterIPs("split")[0].String()
	k.eventually("the Service answers", func() bool {
		return k.in("client", "busybox timeout 20 wget -q -O - http://"+net.JoinHostPort(address, "80")+"/ || :") == "back\n"
	})
}

// splitPod returns the pod of the Deployment.
func (k *kubernetes) splitPod() string {
	k.t.Helper()
	return strings.TrimSpace(k.ctl("get", "pods", "--selector=app=split", "--output=jsonpath={.items[*].metadata.name}"))
}

// segments returns what the daemon says of segments.
func (k *kubernetes) segments() string {
	k.t.Helper()
	_, segments, _ := strings.Cut(mustRun(k.t, k.unnest, "hostd", "status", "--state", k.fleet.Lab.Dir), "FRACTIONS\n")
	return segments
}

// endpoints returns the addresses of the Service, and which are ready.
func (k *kubernetes) endpoints() string {
	k.t.Helper()
	return strings.TrimSpace(k.ctl("get", "endpointslices", "--selector=kubernetes.io/service-name=split",
		"--output=jsonpath={range .items[*].endpoints[*]}{.addresses[*]} {.conditions.ready}{end}"))
}

// wantSplit checks that the fractions are on two nodes, and that their containers reach each other on
// 127.0.0.1 and ::1, and have the pod's host name.
func (k *kubernetes) wantSplit(pod string) {
	k.t.Helper()
	nodes := k.ctl("get", "pods", pod, pod+"-f1", "--output=jsonpath={.items[*].spec.nodeName}")
	if nodes != "node1 node2" && nodes != "node2 node1" {
		k.t.Errorf("the fractions of %s are on %q", pod, nodes)
	}
	for from, of := range map[string][2]string{pod: {"8081", "back"}, pod + "-f1": {"8080", "front"}} {
		get := "; busybox timeout 60 wget -q -O - http://"
		if got, want := k.in(from, "cat /proc/sys/kernel/hostname"+get+"127.0.0.1:"+of[0]+"/"+get+"[::1]:"+of[0]+"/"), pod+"\n"+of[1]+"\n"+of[1]+"\n"; got != want {
			k.t.Errorf("from %s: got %q, want %q", from, got, want)
		}
	}
}

func (k *kubernetes) splitReadiness() {
	pod := k.splitPod()
	k.in(pod+"-f1", "touch /tmp/unready")
	k.ctl("wait", "--for=condition=Ready=false", "pod/"+pod, podLimit)
	if ready := k.ctl("get", "pod", pod, "--output=jsonpath={.status.containerStatuses[*].ready}"); ready != "true" {
		k.t.Errorf("the containers of the first fraction: ready is %q", ready)
	}
	k.eventually("the Service has no endpoint that is ready", func() bool { return strings.HasSuffix(k.endpoints(), " false") })
	k.in(pod+"-f1", "busybox rm /tmp/unready")
	k.ctl("wait", "--for=condition=Ready", "pod/"+pod, podLimit)
	k.eventually("the Service has the pod again", func() bool { return k.endpoints() == k.address(pod).String()+" true" })
}

// splitRestart has the kubelet of a further fraction restart a container in place.
func (k *kubernetes) splitRestart() {
	pod := k.splitPod()
	k.in(pod+"-f1", "touch /tmp/end")
	k.eventually("the container is restarted", func() bool {
		return k.ctl("get", "pod", pod+"-f1", "--output=jsonpath={.status.containerStatuses[0].restartCount}") == "1"
	})
	k.ctl("wait", "--for=condition=Ready", "pod/"+pod, "pod/"+pod+"-f1", podLimit)
	k.wantSplit(pod)
	if got := k.ctl("get", "pod", pod, "--output=jsonpath={.status.containerStatuses[0].restartCount}"); got != "0" {
		k.t.Errorf("the container of the first fraction is restarted, too: %s", got)
	}
}

// splitRebuild checks that the Deployment gets another pod for one that has lost a fraction.
func (k *kubernetes) splitRebuild() {
	pod := k.splitPod()
	k.ctl("delete", "pod/"+pod+"-f1", "--wait", podLimit)
	k.ctl("wait", "--for=delete", "pod/"+pod, podLimit)
	k.ctl("rollout", "status", "deployment/split", podLimit)
	k.wantSplit(k.splitPod())
}

func (k *kubernetes) splitRollout() {
	pod := k.splitPod()
	k.ctl("set", "env", "deployment/split", "VERSION=2")
	k.ctl("rollout", "status", "deployment/split", podLimit)
	k.ctl("wait", "--for=delete", "pod/"+pod, "pod/"+pod+"-f1", podLimit)
	next := k.splitPod()
	k.wantSplit(next)
	for _, fraction := range []string{next, next + "-f1"} {
		if got := k.in(fraction, "echo $VERSION"); got != "2\n" {
			k.t.Errorf("%s has version %q, want 2", fraction, got)
		}
	}
}

// splitStatefulSet deletes the pod of a StatefulSet: the next one has its name, and so have its companions.
func (k *kubernetes) splitStatefulSet() {
	k.apply(splitWorkload("StatefulSet", "set"))
	k.ctl("rollout", "status", "statefulset/set", podLimit)
	k.wantSplit("set-0")
	k.ctl("delete", "pod/set-0", "--wait", podLimit)
	k.ctl("rollout", "status", "statefulset/set", podLimit)
	k.wantSplit("set-0")
	k.ctl("delete", "statefulset/set", "--wait", podLimit)
	k.ctl("wait", "--for=delete", "pod/set-0", "pod/set-0-f1", podLimit)
}

// splitJob has a Job complete when its first fraction does. The further one, which would serve for ever, ends.
func (k *kubernetes) splitJob() {
	template := splitTemplate(nil)
	spec := template["spec"].(map[string]any)
	spec["restartPolicy"] = "Never"
	spec["containers"].([]any)[0].(map[string]any)["command"] = []string{"sh", "-c", "until busybox timeout 60 wget -q -O - http://127.0.0.1:8081/; do sleep 1; done"}
	k.apply(map[string]any{"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"name": "work"}, "spec": map[string]any{"template": template}})
	k.ctl("wait", "--for=condition=Complete", "job/work", podLimit)
	if got := k.ctl("logs", "job/work"); !strings.HasSuffix(got, "back\n") {
		k.t.Errorf("the first fraction has read %q", got)
	}
	pod := k.ctl("get", "pods", "--selector=batch.kubernetes.io/job-name=work", "--output=jsonpath={.items[*].metadata.name}")
	k.ctl("wait", "--for=delete", "pod/"+pod+"-f1", podLimit)
	if phase := k.ctl("get", "pod", pod, "--output=jsonpath={.status.phase}"); phase != "Succeeded" {
		k.t.Errorf("the pod of the Job is %s", phase)
	}
	k.ctl("delete", "job/work", "--wait", podLimit)
}

// splitInit has two init containers and a sidecar in the first fraction. The first init container fails once. Before
// they have ended no container of the other fraction starts; then it reaches the sidecar, and has what the pod says.
func (k *kubernetes) splitInit() {
	template := splitTemplate(map[string]string{"app": "init"})
	spec := template["spec"].(map[string]any)
	first := func(name, script string) map[string]any {
		return map[string]any{
			"name": name, "image": cluster.ToolsImage, "command": []string{"sh", "-c", script},
			"volumeMounts": []any{map[string]string{"name": "notes", "mountPath": "/notes"}},
		}
	}
	// Nobody serves on port 8081: the other fraction does later.
	one := first("one", "if [ ! -e /notes/tried ]; then : >/notes/tried; exit 1; fi; busybox timeout 20 wget -q -O - http://127.0.0.1:8081/ && exit 1; echo one >>/notes/order; until [ -e /notes/go ]; do sleep 1; done")
	sidecar := first("sidecar", "busybox mkdir -p /www; echo sidecar >/www/index.html; echo sidecar >>/notes/order; exec httpd -f -p 127.0.0.1:8082 -h /www")
	sidecar["restartPolicy"] = "Always"
	sidecar["startupProbe"] = map[string]any{"exec": map[string]any{"command": []string{"sh", "-c", "wget -q -O - http://127.0.0.1:8082/"}}, "periodSeconds": 1, "timeoutSeconds": 30, "failureThreshold": 60}
	two := first("two", "wget -q -O - http://127.0.0.1:8082/ && echo two >>/notes/order")
	spec["initContainers"] = []any{one, sidecar, two}
	spec["volumes"] = []any{map[string]any{"name": "notes", "emptyDir": map[string]any{}}}
	containers := spec["containers"].([]any)
	front := containers[0].(map[string]any)
	front["volumeMounts"] = one["volumeMounts"]
	k.apply(map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "init", "annotations": template["metadata"].(map[string]any)["annotations"]}, "spec": spec})
	k.eventually("the first init container runs a second time", func() bool {
		return k.ctl("get", "pod", "init", "--output=jsonpath={.status.initContainerStatuses[0].restartCount} {.status.initContainerStatuses[0].state.running.startedAt}") > "1 2"
	})
	if got := k.ctl("get", "pod", "init-f1", "--output=jsonpath={.status.containerStatuses[*].state.running}"); got != "" {
		k.t.Errorf("the companion is not held back: %q", got)
	}
	k.ctl("exec", "init", "--container=one", "--", "sh", "-c", ": >/notes/go")
	k.ctl("wait", "--for=condition=Ready", "pod/init", "pod/init-f1", podLimit)
	k.wantSplit("init")
	if got := k.ctl("exec", "init", "--container=front", "--", "cat", "/notes/order"); got != "one\nsidecar\ntwo\n" {
		k.t.Errorf("they have run in this order: %q", got)
	}
	if got := k.in("init-f1", "wget -q -O - http://127.0.0.1:8082/"); got != "sidecar\n" {
		k.t.Errorf("the other fraction reads %q of the sidecar", got)
	}
	ended := k.ctl("get", "pod", "init", "--output=jsonpath={.status.initContainerStatuses[2].state.terminated.finishedAt}")
	if began := k.ctl("get", "pod", "init-f1", "--output=jsonpath={.status.containerStatuses[0].state.running.startedAt}"); began < ended {
		k.t.Errorf("the companion's container began at %s, and the last init container ended at %s", began, ended)
	}
	k.ctl("delete", "pod/init", "--wait", podLimit)
	k.ctl("wait", "--for=delete", "pod/init-f1", podLimit)
}

// splitMemory checks that two containers of the first fraction share /dev/shm, an emptyDir in memory and IPC. The container of the other fraction has a /dev/shm of its own.
// An ephemeral container belongs to one fraction, and has the localhost of all.
func (k *kubernetes) splitMemory() {
	template := splitTemplate(nil)
	spec := template["spec"].(map[string]any)
	containers := spec["containers"].([]any)
	next := webClient("default")["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
	mounts := []any{map[string]string{"name": "memory", "mountPath": "/memory"}}
	next["volumeMounts"], containers[0].(map[string]any)["volumeMounts"] = mounts, mounts
	spec["containers"] = append(containers, next)
	spec["volumes"] = []any{map[string]any{"name": "memory", "emptyDir": map[string]string{"medium": "Memory"}}}
	k.apply(map[string]any{"apiVersion": "v1", "kind": "Pod", "spec": spec,
		"metadata": map[string]any{"name": "memory", "annotations": map[string]string{splitpod.SplitAnnotation: "front,client;back"}}})
	k.ctl("wait", "--for=condition=Ready", "pod/memory", "pod/memory-f1", podLimit)
	k.wantSplit("memory")
	in := func(container, script string) string {
		k.t.Helper()
		return k.ctl("exec", map[bool]string{true: "memory-f1", false: "memory"}[container == "back"], "--container="+container, "--", "sh", "-c", script)
	}
	in("front", "echo shared >/dev/shm/note; echo shared >/memory/note; busybox mkfifo /memory/fifo")
	if got := in("client", "cat /dev/shm/note /memory/note; [ -p /memory/fifo ] && busybox grep -c '^tmpfs /memory ' /proc/mounts"); got != "shared\nshared\n1\n" {
		k.t.Errorf("the other container of the fraction reads %q", got)
	}
	if got := in("back", "ls /dev/shm"); got != "" {
		k.t.Errorf("the other fraction has %q in /dev/shm", got)
	}
	const ipc = "busybox readlink /proc/self/ns/ipc"
	if front, client := in("front", ipc), in("client", ipc); front != client || !strings.HasPrefix(front, "ipc:") {
		k.t.Errorf("the containers of a fraction have the IPC namespaces %q and %q", front, client)
	}
	logs := k.ctl("logs", "--selector="+splitpod.PodLabel+"="+k.ctl("get", "pod", "memory", "--output=jsonpath={.metadata.uid}"), "--all-containers", "--prefix")
	if !strings.Contains(logs, "[pod/memory/front] front starts\n") || !strings.Contains(logs, "[pod/memory-f1/back] back starts\n") {
		k.t.Errorf("the logs of all fractions are:\n%s", logs)
	}
	k.ctl("debug", "memory-f1", "--profile=general", "--image="+cluster.ToolsImage, "--container=debug", "--target=back", "--", "wget", "-q", "-O", "-", "http://127.0.0.1:8080/")
	k.eventually("the ephemeral container reads of the other fraction", func() bool {
		return k.ctl("get", "pod", "memory-f1", "--output=jsonpath={.status.ephemeralContainerStatuses[*].state.terminated.exitCode}") == "0" &&
			k.ctl("logs", "memory-f1", "--container=debug") == "front\n"
	})
	k.ctl("delete", "pod/memory", "--wait", podLimit)
	k.ctl("wait", "--for=delete", "pod/memory-f1", podLimit)
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
	if segment := "thief." + all[splitpod.SegmentAnnotation]; !strings.Contains(k.segments(), segment) {
		k.t.Errorf("the pod of another namespace is not in a segment of its own, %s:\n%s", segment, k.segments())
	}
	if got := k.ctl("--namespace=thief", "exec", "client", "--", "sh", "-c", "busybox timeout 20 wget -q -O - http://127.0.0.1:8081/ 2>&1 || echo refused"); strings.Contains(got, "back") {
		k.t.Errorf("a pod of another namespace reads %q", got)
	}
	k.ctl("delete", "namespace", "thief", "--wait", podLimit)
}

func (k *kubernetes) splitDeleted() {
	k.splitRemoved()
	for _, node := range []string{"node1", "node2"} {
		k.eventually(node+" has no pod with a NIC", func() bool { return k.guestStatus(node).Attachments == 0 })
	}
	k.eventually("no segment is left", func() bool { return k.segments() == "" })
}

// splitRemoved deletes what splitDeployment or splitFamilies has made. No fraction, and no packet filter of a segment on the nodes, is left.
func (k *kubernetes) splitRemoved() {
	k.ctl("delete", "deployment/split", "service/split", "pod/client", "--ignore-not-found", "--wait", podLimit)
	k.eventually("no fraction is left", func() bool {
		return strings.TrimSpace(k.ctl("get", "pods", "--selector="+splitpod.PodLabel, "--output=name")) == ""
	})
	for node, tables := range k.onNodes("nft list tables") {
		if strings.Contains(tables, "unnest-segment") {
			k.t.Errorf("%s has packet filters of segments:\n%s", node, tables)
		}
	}
}
