//go:build kubernetes

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unnest.io/unnest/internal/testbed/cluster"
	"unnest.io/unnest/internal/testbed/lab"
)

// Nodes whose containerd uses the directories of k3s get plugins and configuration there by the command of
// docs/k3s.md, and pods have NICs. k3s itself does not run.
func TestKubernetesK3s(t *testing.T) {
	k := newKubernetes(t, "--network", cluster.Bridge)
	if !k.step("up", k.up) {
		return
	}
	if k.step("nodes use the directories of k3s", k.k3sDirectories) && k.step("the chart is installed", k.k3sChart) {
		k.step("pods have NICs", func() {
			k.pods = []string{"own-node1", "own-node2"}
			k.podsReady()
			for _, pod := range k.pods {
				if out := k.in(pod, "cat /sys/class/net/eth0/device/uevent"); !strings.Contains(out, "DRIVER=virtio_net") {
					k.t.Errorf("eth0 of %s is no NIC: %s", pod, out)
				}
			}
			address := k.ctl("get", "pod", "own-node2", "--output=jsonpath={.status.podIP}")
			if out := k.in("own-node1", "busybox wget -qO- http://"+address+":8080/"); out != "own-node2\n" {
				k.t.Errorf("own-node2 answers %q", out)
			}
		})
	}
	k.step("down", k.down)
}

// k3sDirectories moves the plugins of the nodes to k3s's directory, without ours, and has containerd find no network.
func (k *kubernetes) k3sDirectories() {
	for _, node := range []string{"node1", "node2"} {
		k.onNode(node, "sh", "-ec", `cni=/var/lib/rancher/k3s/data/cni net=/var/lib/rancher/k3s/agent/etc/cni/net.d
mkdir -p $cni $net
cp /usr/lib/cni/* $cni/
rm $cni/brfusion
sed -i "s,\"/usr/lib/cni\",\"$cni\",; s,\"/etc/cni/net.d\",\"$net\"," /etc/containerd/config.toml
grep -q $cni /etc/containerd/config.toml && grep -q $net /etc/containerd/config.toml
kill $(cat /run/unnest.engine)
busybox killall kubelet # init starts both again`)
	}
	for _, node := range []string{"node1", "node2"} {
		k.eventually(node+" has no network", func() bool {
			return strings.HasPrefix(k.condition(node, "Ready"), "False") && strings.Contains(k.condition(node, "Ready"), "cni plugin not initialized")
		})
	}
}

// k3sChart runs the page's command, with the addresses of this cluster.
func (k *kubernetes) k3sChart() {
	mustRun(k.t, k.unnest, "cluster", "load", filepath.Join(k.binaries, "images", "unnest-cni.tar"))
	blocks := marked(k.t, "../../docs/k3s.md")
	if len(blocks) != 1 {
		k.t.Fatalf("docs/k3s.md has %d marked blocks, want 1", len(blocks))
	}
	dir := k.t.TempDir()
	bin, err := filepath.Abs(k.binaries)
	k.check(err)
	deploy, err := filepath.Abs("../../deploy")
	k.check(err)
	config, err := os.ReadFile(k.config)
	k.check(err)
	k.check(os.Symlink(bin, filepath.Join(dir, "bin")))
	k.check(os.Symlink(deploy, filepath.Join(dir, "deploy")))
	k.check(os.WriteFile(filepath.Join(dir, "kubeconfig"), config, 0o600))
	command := strings.NewReplacer("helm ", "bin/helm ", "10.201.0.1:", lab.ManagementGateway+":", "10.43.0.0/16", "10.96.0.0/16").Replace(blocks[0].text)
	if out, err := k.follow(dir, command+" --wait --timeout=4m"); err != nil {
		k.t.Fatalf("%s: %v: %s", command, err, out)
	}
}
