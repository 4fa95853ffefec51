package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// A pod with its own NIC reaches Services. The rules in its guest are those that kube-proxy
// in mode iptables writes for a ClusterIP with two backends, one in the same guest and one
// in another guest, each with its own NIC.
func services(t *testing.T, one, two *node) {
	keys := map[string]any{"services": map[string]any{"ranges": []string{"10.96.0.0/12"}}}
	_, near := one.pod("client", keys)[0], one.pod("near", keys)[0]
	far := two.pod("far", keys)[0]
	serve := func(m *node, pod string) {
		m.run(fmt.Sprintf("mkdir -p /tmp/%s && echo %s >/tmp/%s/index.html", pod, pod, pod))
		m.run(fmt.Sprintf("ip netns exec %s busybox httpd -p 8080 -h /tmp/%s", pod, pod))
	}
	serve(one, "near")
	serve(two, "far")
	const address = "10.96.0.10"
	one.run("modprobe -a iptable_nat xt_statistic xt_comment xt_tcpudp xt_mark xt_MASQUERADE")
	one.run(kubeProxy(address, near, far))

	seen := map[string]int{}
	for range 12 {
		seen[one.get("client", address)]++
	}
	if seen["near"]+seen["far"] != 12 || seen["near"] == 0 || seen["far"] == 0 {
		t.Errorf("answers of the Service by backend: %v, want 12 from both", seen)
	}
	// A backend may be its own client.
	for range 4 {
		if got := one.get("near", address); got != "near" && got != "far" {
			t.Errorf("a backend gets %q from its own Service, want near or far", got)
		}
	}
	// Traffic between pods does not pass the guest.
	one.wantReach("client", far, true)
	if route := one.run("ip -n client route get " + far.String()); !strings.Contains(route, "dev eth0") {
		t.Errorf("the route to another pod is %s, want dev eth0", route)
	}
	for _, pod := range []string{"client", "near"} {
		if _, err := one.brfusion("CHECK", pod, keys); err == nil {
			t.Errorf("CHECK of %s without prevResult succeeded, want an error", pod)
		}
		if _, err := one.brfusion("DEL", pod, keys); err != nil {
			t.Error(err)
		}
	}
	if left := one.run("ip -o link"); strings.Contains(left, "unsv") {
		t.Errorf("links of the service path are left: %s", left)
	}
}

// get returns the last line of the answer of an address on port 80.
func (m *node) get(pod, address string) string {
	out, err := m.try(fmt.Sprintf(`printf 'GET / HTTP/1.0\r\n\r\n' | ip netns exec %s busybox nc -w 5 %s 80`, pod, address), "")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if err != nil {
		return fmt.Sprintf("%v: %s", err, out)
	}
	return lines[len(lines)-1]
}

// kubeProxy returns commands for the rules that kube-proxy in mode iptables writes for a
// ClusterIP on port 80 with endpoints on port 8080 (pkg/proxy/iptables of Kubernetes).
func kubeProxy(address string, endpoints ...netip.Addr) string {
	rules := []string{
		"set -e", "sysctl -qw net.ipv4.ip_forward=1",
		"for c in KUBE-SERVICES KUBE-SVC-E2E KUBE-POSTROUTING KUBE-MARK-MASQ; do iptables -t nat -N $c; done",
		"iptables -t nat -A PREROUTING -m comment --comment 'kubernetes service portals' -j KUBE-SERVICES",
		"iptables -t nat -A OUTPUT -m comment --comment 'kubernetes service portals' -j KUBE-SERVICES",
		"iptables -t nat -A POSTROUTING -j KUBE-POSTROUTING",
		"iptables -t nat -A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN",
		"iptables -t nat -A KUBE-POSTROUTING -j MARK --xor-mark 0x4000",
		"iptables -t nat -A KUBE-POSTROUTING -j MASQUERADE --random-fully",
		"iptables -t nat -A KUBE-MARK-MASQ -j MARK --or-mark 0x4000",
		fmt.Sprintf("iptables -t nat -A KUBE-SERVICES -d %s/32 -p tcp -m tcp --dport 80 -j KUBE-SVC-E2E", address),
	}
	for i, e := range endpoints {
		chain, choice := fmt.Sprintf("KUBE-SEP-%d", i), ""
		if left := len(endpoints) - i; left > 1 {
			choice = fmt.Sprintf("-m statistic --mode random --probability %.5f", 1/float64(left))
		}
		rules = append(rules,
			"iptables -t nat -N "+chain,
			fmt.Sprintf("iptables -t nat -A %s -s %s/32 -j KUBE-MARK-MASQ", chain, e),
			fmt.Sprintf("iptables -t nat -A %s -p tcp -m tcp -j DNAT --to-destination %s:8080", chain, e),
			fmt.Sprintf("iptables -t nat -A KUBE-SVC-E2E %s -j %s", choice, chain))
	}
	return strings.Join(rules, "\n")
}

// The chained reference plugin forwards a port of the guest to the pod.
func hostPort(t *testing.T, m *node) {
	n := m.nodes
	m.run("/etc/unnest/engine")
	m.putJSON("/etc/cni/net.d/60-ports.conflist", map[string]any{
		"cniVersion": "1.0.0", "name": "ports", "plugins": []map[string]any{
			brfusionPlugin(map[string]any{"services": map[string]any{"ranges": []string{"10.96.0.0/12"}}}),
			{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}},
		},
	})
	m.run("nerdctl run --detach --name web --network ports --publish 8088:8080 " + containerImage +
		" sh -c 'echo from the pod >/tmp/index.html; exec busybox httpd -f -v -p 8080 -h /tmp'")
	// The server may not listen yet.
	out := mustRun(t, "nsenter", "--net="+n.fleet.Lab.ClientNS(), "curl", "-sS", "--max-time", "60", "--retry", "60", "--retry-delay", "1", "--retry-connrefused", "http://"+m.TenantIP+":8088/")
	if out != "from the pod\n" {
		t.Errorf("the port of the guest answers %q", out)
	}
	m.run("nerdctl rm --force web")
	// What the network cannot do, the runtime reports.
	for option, want := range map[string]string{
		"--publish 8089:8080": "publish host port 8089",
		"--ip 10.202.0.9":     "get address 10.202.0.9 from the host daemon",
	} {
		if out, err := m.try("nerdctl run --rm --network brfusion "+option+" "+containerImage+" true", ""); err == nil || !strings.Contains(out+err.Error(), want) {
			t.Errorf("%s: got %s, %v, want %q", option, out, err, want)
		}
	}
	if out := m.run("nerdctl run --rm --network brfusion --ip 10.201.77.7 " + containerImage + " busybox ip -o -4 addr show eth0"); !strings.Contains(out, "10.201.77.7/16") {
		t.Errorf("with --ip 10.201.77.7, eth0 is %s", out)
	}
}
