//go:build kubernetes

package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"unnest.io/unnest/internal/kube/splitpod"
	"unnest.io/unnest/internal/netdev/share"
	"unnest.io/unnest/internal/testbed/cluster"
)

// Containers of two fractions, and an init container, have one emptyDir. A pod of another namespace does not get at it,
// and nothing is left of it.
func TestKubernetesSplitVolumes(t *testing.T) {
	k := newKubernetes(t, "--split-pods", "--shares=4")
	for _, s := range []struct {
		name string
		run  func()
	}{
		{"up", k.start},
		{"two fractions share an emptyDir", k.volumeShared},
		{"locks hold between fractions", k.volumeLocked},
		{"the driver and the daemon are killed", k.volumeKilled},
		{"another namespace has none of it", k.volumeThief},
		{"a claim that one node mounts", k.volumeClaims},
		{"nothing is left", k.volumeGone},
		{"the kubelet loses a pod", k.volumeLost},
		{"the chart's DaemonSet", k.volumeDaemonSet},
		{"down", k.down},
	} {
		if !k.step(s.name, s.run) {
			return
		}
	}
}

// volumePod is a split pod whose containers, of which one has another user, mount the emptyDir data.
func volumePod(name string) map[string]any {
	container := func(name, script string, user int) map[string]any {
		return map[string]any{
			"name": name, "image": cluster.ToolsImage, "command": []string{"sh", "-c", script}, "securityContext": map[string]any{"runAsUser": user},
			"volumeMounts": []any{map[string]string{"name": "data", "mountPath": "/data"}},
		}
	}
	idle := "trap 'exit 0' TERM; while :; do sleep 1; done"
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": name, "annotations": map[string]string{splitpod.SplitAnnotation: "front;back"}},
		"spec": map[string]any{
			"terminationGracePeriodSeconds": 1, "securityContext": map[string]any{"fsGroup": 4000},
			"initContainers": []any{container("first", "echo prepared >/data/prepared", 0)},
			"containers":     []any{container("front", idle, 0), container("back", idle, 1000)},
			"volumes":        []any{map[string]any{"name": "data", "emptyDir": map[string]any{}}},
		},
	}
}

// volumes returns the entries of the directory of the tenant's volumes on the host.
func (k *kubernetes) volumes() (names []string) {
	k.t.Helper()
	entries, err := os.ReadDir(filepath.Join(k.fleet.Lab.Dir, "volumes"))
	k.check(err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func (k *kubernetes) volumeShared() {
	k.apply(volumePod("shared"))
	k.ctl("wait", "--for=condition=Ready", "pod/shared", "pod/shared-f1", podLimit)
	if nodes := k.ctl("get", "pods", "shared", "shared-f1", "--output=jsonpath={.items[*].spec.nodeName}"); nodes != "node1 node2" && nodes != "node2 node1" {
		k.t.Errorf("the fractions are on %q", nodes)
	}
	k.in("shared", "echo from front >/data/front; busybox chmod 666 /data/front")
	k.in("shared-f1", "echo from back >/data/back")
	if got := k.in("shared-f1", "cat /data/prepared /data/front"); got != "prepared\nfrom front\n" {
		k.t.Errorf("the further fraction reads %q", got)
	}
	if got := k.in("shared", "cat /data/back; busybox stat -c '%a %g' /data; busybox stat -c '%u %g' /data/back"); got != "from back\n2777 4000\n1000 4000\n" {
		k.t.Errorf("the first fraction reads %q", got)
	}
	k.in("shared-f1", "busybox mv /data/back /data/moved && echo more >>/data/front")
	if got := k.in("shared", "cat /data/moved /data/front"); got != "from back\nfrom front\nmore\n" {
		k.t.Errorf("after changes of the other: %q", got)
	}
	for _, node := range []string{"node1", "node2"} {
		if got := k.guestStatus(node).Shared; len(got) != 1 || !strings.HasPrefix(got[0].Pod, "default.") || got[0].Name != "data" {
			k.t.Errorf("%s has %+v", node, got)
		}
	}
}

// volumeLocked takes a lock in one fraction's node, where the pod has the volume mounted. The other one cannot have it, if the
// host's virtiofsd has locks of the host.
func (k *kubernetes) volumeLocked() {
	program, err := share.FindProgram()
	k.check(err)
	c, err := cluster.View()
	k.check(err)
	on := func(pod, script string) string {
		k.t.Helper()
		node := k.ctl("get", "pod", pod, "--output=jsonpath={.spec.nodeName}")
		file := "/var/lib/kubelet/pods/" + k.ctl("get", "pod", pod, "--output=jsonpath={.metadata.uid}") + "/volumes/kubernetes.io~csi/data/mount/lock"
		out, err := c.OnNode(k.t.Context(), node, "sh", "-c", "lock="+file+"; "+script)
		k.check(err)
		return string(out)
	}
	const try = "flock -n $lock true || echo taken"
	on("shared", `setsid sh -c "exec 9>>$lock; flock -n 9 && echo \$\$ >/run/locker; exec sleep 3600" >/dev/null 2>&1 </dev/null & until [ -e /run/locker ]; do sleep 0.1; done`)
	if got, want := on("shared-f1", try), (map[bool]string{true: "taken\n"}[program.HostLocks]); on("shared", try) != "taken\n" || got != want {
		k.t.Errorf("virtiofsd with locks of the host: %t; the other fraction says %q", program.HostLocks, got)
	}
	on("shared", "kill $(cat /run/locker)")
	if got := on("shared-f1", try); got != "" {
		k.t.Errorf("after the end of the lock the other fraction says %q", got)
	}
}

// volumeKilled kills what serves volumes. They stay mounted.
func (k *kubernetes) volumeKilled() {
	c, err := cluster.View()
	k.check(err)
	for _, node := range []string{"node1", "node2"} {
		_, err := c.OnNode(k.t.Context(), node, "sh", "-c", "kill -9 $(busybox pidof unnest-volume)")
		k.check(err)
	}
	k.killDaemon()
	k.in("shared", "echo without a daemon >/data/front")
	if out, err := exec.Command(k.unnest, "cluster", "repair").CombinedOutput(); err != nil || !strings.Contains(string(out), "unnest-hostd runs again") {
		k.t.Errorf("cluster repair: %v\n%s", err, out)
	}
	for _, node := range []string{"node1", "node2"} {
		k.eventually("the driver on "+node+" runs again", func() bool {
			out, _ := c.OnNode(k.t.Context(), node, "sh", "-c", "busybox pidof unnest-volume || :")
			return strings.TrimSpace(string(out)) != ""
		})
	}
	if got := k.in("shared-f1", "cat /data/front"); got != "without a daemon\n" {
		k.t.Errorf("with a new daemon: %q", got)
	}
}

// volumeThief writes the volume with its key into a pod of another namespace. It is refused, and without
// the policy the pod gets a volume of its own namespace.
func (k *kubernetes) volumeThief() {
	var own struct {
		Metadata struct{ UID string }
		Spec     struct {
			Volumes []struct {
				CSI *struct{ VolumeAttributes map[string]string }
			}
		}
	}
	k.check(json.Unmarshal([]byte(k.ctl("get", "pod", "shared", "--output=json")), &own))
	attributes := map[string]string{}
	for _, v := range own.Spec.Volumes {
		if v.CSI != nil {
			attributes = v.CSI.VolumeAttributes
		}
	}
	attributes["pod"] = own.Metadata.UID
	attributes["csi.storage.k8s.io/pod.namespace"] = "default"
	thief := webClient("thief")
	spec := thief["spec"].(map[string]any)
	spec["volumes"] = []any{map[string]any{"name": "data", "csi": map[string]any{"driver": splitpod.VolumeDriver, "volumeAttributes": attributes}}}
	spec["containers"].([]any)[0].(map[string]any)["volumeMounts"] = []any{map[string]string{"name": "data", "mountPath": "/data"}}
	k.apply(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "thief"}})
	text, err := json.Marshal(thief)
	k.check(err)
	file := filepath.Join(k.t.TempDir(), "thief.json")
	k.check(os.WriteFile(file, text, 0o600))
	if out, err := exec.Command(k.kubectl, "--kubeconfig="+k.config, "apply", "-f", file).CombinedOutput(); err == nil || !strings.Contains(string(out), "for fractions of split pods only") {
		k.t.Errorf("a volume that is written by hand: %v: %s", err, out)
	}
	k.ctl("delete", "validatingadmissionpolicybinding/unnest-volumes")
	k.eventually("the policy is gone", func() bool {
		return exec.Command(k.kubectl, "--kubeconfig="+k.config, "apply", "-f", file).Run() == nil
	})
	k.ctl("--namespace=thief", "wait", "--for=condition=Ready", "pod/client", podLimit)
	if got := k.ctl("--namespace=thief", "exec", "client", "--", "ls", "/data"); got != "" {
		k.t.Errorf("a pod of another namespace sees %q", got)
	}
	if got := strings.Join(k.volumes(), " "); !strings.Contains(got, "thief."+own.Metadata.UID) || !strings.Contains(got, "default."+own.Metadata.UID) {
		k.t.Errorf("the host has the volumes of %s", got)
	}
	k.ctl("delete", "namespace", "thief", "--wait", podLimit)
}

// volumeClaims has a pod refused whose fractions use a claim that one node mounts.
func (k *kubernetes) volumeClaims() {
	k.apply(map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": map[string]any{"name": "one-node"}, "spec": map[string]any{
		"accessModes": []string{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]string{"storage": "1Mi"}},
	}})
	pod := volumePod("claims")
	pod["spec"].(map[string]any)["volumes"] = []any{map[string]any{"name": "data", "persistentVolumeClaim": map[string]string{"claimName": "one-node"}}}
	text, err := json.Marshal(pod)
	k.check(err)
	file := filepath.Join(k.t.TempDir(), "claims.json")
	k.check(os.WriteFile(file, text, 0o600))
	if out, err := exec.Command(k.kubectl, "--kubeconfig="+k.config, "apply", "-f", file).CombinedOutput(); err == nil || !strings.Contains(string(out), "neither ReadWriteMany nor ReadOnlyMany") {
		k.t.Errorf("a claim that one node mounts: %v: %s", err, out)
	}
	k.ctl("delete", "pvc/one-node", "--wait=false")
}

// volumeLost has a kubelet forget a pod, whose volume it never unpublishes: it is detached when no container has it any more.
func (k *kubernetes) volumeLost() {
	c, err := cluster.View()
	k.check(err)
	k.apply(volumePod("shared"))
	k.ctl("wait", "--for=condition=Ready", "pod/shared", "pod/shared-f1", podLimit)
	node, dir := k.ctl("get", "pod", "shared", "--output=jsonpath={.spec.nodeName}"), "/var/lib/kubelet/pods/"+k.ctl("get", "pod", "shared", "--output=jsonpath={.metadata.uid}")
	on := func(script string) string {
		k.t.Helper()
		out, err := c.OnNode(k.t.Context(), node, "sh", "-c", script)
		k.check(err)
		return string(out)
	}
	on("kill -STOP $(busybox pidof kubelet)")
	on("for m in $(grep -o '" + dir + "[^ ]*' /proc/self/mountinfo); do umount $m; done; rm -rf " + dir + "; cp /proc/uptime /run/lost")
	k.eventually("the driver has looked twice", func() bool { // at intervals of 30 s
		return strings.TrimSpace(on("busybox awk 'NR == 1 { t = $1 } NR == 2 { print ($1 - t > 70) }' /run/lost /proc/uptime")) == "1"
	})
	if got := k.guestStatus(node).Shared; len(got) != 1 {
		k.t.Errorf("while a container has the volume, %s has %+v", node, got)
	}
	on("for p in $(grep -l 'virtiofs vp' /proc/[0-9]*/mountinfo); do p=${p#/proc/}; kill -9 ${p%/mountinfo}; done; :")
	k.eventually("the volume is detached", func() bool { return len(k.guestStatus(node).Shared) == 0 })
	on("kill -9 $(busybox pidof kubelet)") // the next one publishes it again
	k.volumeGone()
}

// volumeDaemonSet has the chart's driver in place of those of the nodes. Volumes stay when its pods are replaced.
func (k *kubernetes) volumeDaemonSet() {
	c, err := cluster.View()
	k.check(err)
	mustRun(k.t, k.unnest, "cluster", "load", filepath.Join(k.binaries, "images", "unnest-volume.tar"))
	for _, node := range []string{"node1", "node2"} {
		_, err := c.OnNode(k.t.Context(), node, "sh", "-c", "busybox sed -i /^volumes=/d /etc/kubernetes/node; kill $(busybox pidof unnest-volume)")
		k.check(err)
	}
	manifest := mustRun(k.t, filepath.Join(k.binaries, "helm"), "template", "unnest", "../../deploy/chart", "--kube-version=1.34.0", "--set=splitPods.enabled=true", "--show-only=templates/volumes.yaml")
	file := filepath.Join(k.t.TempDir(), "volumes.yaml")
	k.check(os.WriteFile(file, []byte(manifest), 0o600))
	k.apply(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "unnest-system"}})
	k.ctl("apply", "--filename="+file)
	k.ctl("--namespace=unnest-system", "rollout", "status", "daemonset/unnest-volumes", podLimit)
	k.volumeShared()
	k.ctl("--namespace=unnest-system", "delete", "pods", "--selector=app=unnest-volumes", "--wait", podLimit)
	k.ctl("--namespace=unnest-system", "rollout", "status", "daemonset/unnest-volumes", podLimit)
	if got := k.in("shared-f1", "cat /data/moved"); got != "from back\n" {
		k.t.Errorf("after the driver's pods were replaced: %q", got)
	}
	k.volumeGone()
	k.ctl("delete", "--filename="+file, "--wait", podLimit)
}

func (k *kubernetes) volumeGone() {
	k.ctl("delete", "pod/shared", "--wait", podLimit)
	k.ctl("wait", "--for=delete", "pod/shared-f1", podLimit)
	c, err := cluster.View()
	k.check(err)
	for _, node := range []string{"node1", "node2"} {
		k.eventually(node+" has no volume", func() bool { return len(k.guestStatus(node).Shared) == 0 })
		got, err := c.OnNode(k.t.Context(), node, "sh", "-c", "grep virtiofs /proc/mounts; ls /var/lib/kubelet/plugins/volumes.unnest.io/published /var/lib/kubelet/pods")
		if k.check(err); strings.Contains(string(got), "virtiofs") || strings.Contains(string(got), ".json") {
			k.t.Errorf("%s still has:\n%s", node, got)
		}
	}
	k.eventually("the host has no volume", func() bool { return len(k.volumes()) == 0 })
}
