//go:build kubernetes

package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/cni/install"
	"unnest.io/unnest/internal/cni/loopback"
	"unnest.io/unnest/internal/kube/splitpod"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/lab"
)

// wireGuardKey returns the public key of a node in the API server.
func (k *kubernetes) wireGuardKey(node string) string {
	k.t.Helper()
	return k.ctl("get", "node", node, "--output=jsonpath={.metadata.annotations."+strings.ReplaceAll(install.KeyAnnotation, ".", `\.`)+"}")
}

// wantWireGuard checks that both nodes have the device and its packet filter, or that nothing of both is left.
func (k *kubernetes) wantWireGuard(want bool) {
	k.t.Helper()
	for _, node := range []string{"node1", "node2"} {
		k.eventually(node+" has the device unnest-wg or none", func() bool {
			left := k.onNode(node, "sh", "-c", "ip -oneline link show type wireguard; nft list tables")
			return strings.Contains(left, "unnest-wg:") == want && strings.Contains(left, "inet unnest-wg") == want
		})
	}
}

// splitEncrypt has the chart encrypt, or not. Nodes that encrypt get fractions when they have each other's key.
func (k *kubernetes) splitEncrypt(encryption string) {
	k.helm("upgrade", "unnest", "../../deploy/chart", "--reuse-values", "--set=splitPods.encryption="+encryption, "--wait", "--timeout=4m")
	k.ctl("--namespace=kube-system", "rollout", "status", "daemonset/unnest-cni", podLimit)
	k.wantWireGuard(encryption == "wireguard")
	for _, node := range []string{"node1", "node2"} {
		k.eventually(node+" has its label", func() bool {
			return k.ctl("get", "node", node, `--output=jsonpath={.metadata.labels.unnest\.node-restriction\.kubernetes\.io/host}`) == splitpod.SpanNetwork
		})
		if key := k.wireGuardKey(node); encryption == "wireguard" && len(key) != 44 {
			k.t.Errorf("%s has the key %q", node, key)
		}
	}
}

// splitWaitsForKey takes node2's key away: its peers forget it, and a fraction waits until it is there again.
func (k *kubernetes) splitWaitsForKey() {
	k.ctl("annotate", "node", "node2", install.KeyAnnotation+"-")
	k.apply(splitWorkload("Deployment", "split"))
	k.eventually("an event says what the fraction waits for", func() bool {
		return strings.Contains(k.ctl("get", "events", "--field-selector=reason=FailedCreatePodSandBox"), "it waits for that node's annotation unnest.io/wireguard-key")
	})
	k.ctl("--namespace=kube-system", "delete", "pods", "--selector=app=unnest-cni", "--field-selector=spec.nodeName=node2", "--wait", podLimit)
	k.ctl("--namespace=kube-system", "rollout", "status", "daemonset/unnest-cni", podLimit)
	k.splitDeployment()
}

// splitRekey removes the device of node1 under a running pod. Its successor has another key, which node2 follows.
func (k *kubernetes) splitRekey() {
	before, pod := k.wireGuardKey("node1"), k.splitPod()
	k.onNode("node1", "ip", "link", "del", "unnest-wg")
	k.eventually("node1 has another key", func() bool { key := k.wireGuardKey("node1"); return len(key) == 44 && key != before })
	k.wantSplit(pod)
	before = k.wireGuardKey("node1")
	k.ctl("--namespace=kube-system", "delete", "pods", "--selector=app=unnest-cni", "--wait", podLimit)
	k.ctl("--namespace=kube-system", "rollout", "status", "daemonset/unnest-cni", podLimit)
	k.wantSplit(pod)
	if after := k.wireGuardKey("node1"); after != before {
		k.t.Errorf("a restart of the DaemonSet has replaced the key %s by %s", before, after)
	}
}

// splitForgedKey tries what a node that has been taken over could do with the token of its DaemonSet's pod.
func (k *kubernetes) splitForgedKey() {
	token := k.nodeToken("kube-system")
	key := `{"metadata":{"annotations":{"` + install.KeyAnnotation + `":"` + k.wireGuardKey("node1") + `"}}}`
	for _, tt := range []struct{ path, patch, want string }{
		{"node1/status", key, `"kind": "Node"`},
		{"node2/status", key, "its own node only"},
		{"node1/status", `{"metadata":{"annotations":{"other":"x"}}}`, "the metadata of nodes"},
		{"node2", key, "cannot patch resource"},
	} {
		if out := k.patchNode(token, tt.path, tt.patch); !strings.Contains(out, tt.want) {
			k.t.Errorf("%s of %s: got %s, want %q", tt.patch, tt.path, out, tt.want)
		}
	}
}

// splitDatagrams sends the largest datagrams that docs/split-pods.md promises where nodes encrypt, and larger ones, with nodes whose links have the
// least MTU and with such that have the usual one.
func (k *kubernetes) splitDatagrams() {
	const largest = 29_422
	load := localhostLoad{"", "latency_mean", "sockperf", workload.Params{Protocol: workload.UDP, Size: largest, Duration: time.Second}, 11111}
	pod := k.splitPod()
	p := k.serveIn(pod, pod+"-f1", []localhostLoad{load})
	for _, mtu := range []string{"1280", "1500"} {
		for _, node := range []string{"node1", "node2"} {
			k.onNode(node, "sh", "-c", "ip link set mtu "+mtu+" dev $(ip -oneline address show to "+k.nodeAddresses(node)[0].String()+" | cut -d ' ' -f 2)")
		}
		load.params.Size = largest
		latency, err := k.tryLoad(p, load)
		if err != nil {
			k.t.Errorf("datagrams of %d bytes over links of %s bytes: %v", largest, mtu, err)
		}
		load.params.Size++
		_, err = k.tryLoad(p, load)
		if err == nil {
			k.t.Errorf("datagrams of %d bytes are answered over links of %s bytes", load.params.Size, mtu)
		}
		k.t.Logf("links of %s bytes: datagrams of %d bytes take %.0f µs; of %d bytes: %v", mtu, largest, latency, load.params.Size, err)
	}
}

// splitOverheard sees all packets between the nodes while one fraction sends a text to the other.
func (k *kubernetes) splitOverheard(encrypted bool) {
	const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in network byte order
	var fd int
	k.check(lab.Do(k.fleet.Lab.HostNS(), func() (err error) {
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all)
		return err
	}))
	defer unix.Close(fd)
	k.check(unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20))
	k.check(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}))
	text, pod := "overheard-"+rand.Text(), k.splitPod()
	k.in(pod+"-f1", "busybox timeout 60 wget -q -O - http://127.0.0.1:8080/"+text+" || :") // there is no such page
	k.wantSplit(pod)
	read, ports, frame := false, map[uint16]int{}, make([]byte, 1<<16)
	for end, quiet := time.Now().Add(time.Minute), 0; quiet < 5 && time.Now().Before(end); {
		n, err := unix.Read(fd, frame)
		if err != nil {
			quiet++
			continue
		}
		read = read || bytes.Contains(frame[:n], []byte(text))
		if n > 38 && frame[12] == 8 && frame[13] == 0 && frame[23] == unix.IPPROTO_UDP {
			udp := frame[14+int(frame[14]&15)*4:]
			ports[binary.BigEndian.Uint16(udp[2:])]++
		}
	}
	k.t.Logf("encrypted: %v, the text was read: %v, packets to the port of tunnels: %d, of WireGuard: %d", encrypted, read, ports[loopback.TunnelPort], ports[loopback.WireGuardPort])
	if read == encrypted || (ports[loopback.TunnelPort] == 0) != encrypted || (ports[loopback.WireGuardPort] > 0) != encrypted {
		k.t.Errorf("encrypted: %v, the text was read: %v, packets by port: %v", encrypted, read, ports)
	}
}
