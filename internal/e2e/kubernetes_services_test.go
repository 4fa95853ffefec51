//go:build kubernetes

package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"unnest.io/unnest/internal/testbed/lab"
)

// service is a Service for pods with the labels, of all families of the cluster.
func service(name string, selector map[string]string, spec map[string]any) map[string]any {
	spec["selector"], spec["ipFamilyPolicy"] = selector, "PreferDualStack"
	if spec["ports"] == nil {
		spec["ports"] = []any{map[string]any{"port": 80, "targetPort": 8080}}
	}
	return map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": name}, "spec": spec}
}

func nodePort(port int) []any {
	return []any{map[string]any{"port": 80, "targetPort": 8080, "nodePort": port}}
}

// clusterIPs returns the addresses of a Service.
func (k *kubernetes) clusterIPs(name string) []netip.Addr {
	k.t.Helper()
	return k.parse(k.ctl("get", "service", name, "--output=jsonpath={.spec.clusterIPs[*]}"))
}

// nodeAddresses returns the addresses of a node.
func (k *kubernetes) nodeAddresses(node string) []netip.Addr {
	k.t.Helper()
	return k.parse(k.ctl("get", "node", node, `--output=jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`))
}

// get returns what a client in the host's namespace gets, or nothing.
func (k *kubernetes) get(to netip.AddrPort, path string) (answer string) {
	k.t.Helper()
	out, err := exec.Command("nsenter", "--net="+k.fleet.Lab.HostNS(), "curl", "-sS", "--max-time", "10", "http://"+to.String()+path).CombinedOutput()
	if err != nil {
		k.t.Logf("%s: %v: %s", to, err, out)
		return ""
	}
	return strings.TrimSpace(string(out))
}

// answers requests the addresses from a pod, count times each, and returns who has answered.
func (k *kubernetes) answers(from string, count int, to ...netip.AddrPort) []string {
	k.t.Helper()
	var script strings.Builder
	for _, a := range to {
		script.WriteString(strings.Repeat("busybox timeout 20 wget -q -O - http://"+a.String()+"/ || echo no answer of "+a.String()+"\n", count))
	}
	return strings.Split(strings.TrimSpace(k.in(from, script.String())), "\n")
}

func ports(addresses []netip.Addr, port uint16) (all []netip.AddrPort) {
	for _, a := range addresses {
		all = append(all, netip.AddrPortFrom(a, port))
	}
	return all
}

// services reaches pods by ClusterIPs and by a port of a node, and the API server by its Service.
func (k *kubernetes) services() {
	k.apply(service("web", map[string]string{"app": "web"}, map[string]any{"type": "NodePort", "ports": nodePort(30080)}))
	addresses := k.clusterIPs("web")
	k.eventually("all pods are backends", func() bool {
		return len(strings.Fields(k.ctl("get", "endpointslices", "--selector=kubernetes.io/service-name=web",
			"--output=jsonpath={.items[*].endpoints[*].addresses[0]}"))) == len(k.pods)*len(addresses)
	})
	seen := map[string]bool{}
	for _, from := range k.pods {
		for _, a := range addresses {
			k.eventually("Service from "+from, func() bool { // kube-proxy writes its rules a moment later
				got := k.answers(from, 12, netip.AddrPortFrom(a, 80))
				for _, name := range got {
					seen[name] = true
				}
				ok := !slices.ContainsFunc(got, func(name string) bool { return !slices.Contains(k.pods, name) })
				if !ok {
					k.t.Logf("from %s: %q", from, got)
				}
				return ok
			})
		}
	}
	for _, name := range k.pods {
		if !seen[name] {
			k.t.Errorf("%s was never the backend in %d requests", name, 12*len(k.pods)*len(addresses))
		}
	}
	for _, node := range []string{"node1", "node2"} {
		for _, to := range ports(k.nodeAddresses(node), 30080) {
			if got := k.get(to, "/"); !slices.Contains(k.pods, got) {
				k.t.Errorf("%s answers %q", to, got)
			}
		}
	}
	api := k.clusterIPs("kubernetes")[0].String()
	if got := k.in(k.pods[0], "nc -w 20 "+api+" 443 </dev/null && echo open"); got != "open\n" {
		k.t.Errorf("the API server at its Service: %q", got)
	}
}

// sessionAffinity checks that a Service gives a client one backend in each family.
func (k *kubernetes) sessionAffinity() {
	k.apply(service("sticky", map[string]string{"app": "web"}, map[string]any{"sessionAffinity": "ClientIP"}))
	for _, from := range k.pods {
		for _, to := range ports(k.clusterIPs("sticky"), 80) {
			k.eventually("session affinity of "+to.String()+" from "+from, func() bool {
				got := k.answers(from, 6, to)
				if slices.ContainsFunc(got, func(name string) bool { return !slices.Contains(k.pods, name) }) {
					return false // kube-proxy has not written its rules yet
				}
				if len(slices.Compact(slices.Clone(got))) != 1 {
					k.t.Fatalf("%s from %s: the backends are %q, want one", to, from, got)
				}
				return true
			})
		}
	}
}

// localTraffic checks that with externalTrafficPolicy Local only the backend's node answers, and that
// the backend sees the client's address.
func (k *kubernetes) localTraffic() {
	k.apply(service("local", map[string]string{"pod": "own-node2"}, map[string]any{
		"type": "NodePort", "externalTrafficPolicy": "Local", "ports": nodePort(30081),
	}))
	for _, to := range ports(k.nodeAddresses("node2"), 30081) {
		k.eventually(to.String()+" answers", func() bool { return k.get(to, "/") == "own-node2" })
		got, want := k.get(to, "/cgi-bin/client"), k.hostAddress(to.Addr())
		if clientAddress(got) != want {
			k.t.Errorf("the client at %s has the address %q for the backend, want %s", to, got, want)
		}
	}
	for _, to := range ports(k.nodeAddresses("node1"), 30081) {
		if got := k.get(to, "/"); got != "" {
			k.t.Errorf("%s, a node without a backend, answers %q", to, got)
		}
	}
}

// clientAddress is the address of a client in what a web pod says of it.
func clientAddress(answer string) string {
	a, _ := netip.ParseAddr(strings.Trim(strings.TrimSpace(answer), "[]"))
	return a.Unmap().String()
}

// hostAddress is the host's address on the nodes' network, in the family of another address.
func (k *kubernetes) hostAddress(family netip.Addr) string {
	if family.Is4() {
		return lab.TenantGateway
	}
	return lab.TenantGateway6
}

// publishHostPort gives a pod port 8088 of its node.
func publishHostPort(pod map[string]any) {
	container := pod["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
	container["ports"] = []any{map[string]any{"containerPort": 8080, "hostPort": 8088}}
}

// hostPort reaches the first pod by the port of its node, from the host and from all pods.
func (k *kubernetes) hostPort() {
	all := ports(k.nodeAddresses("node1"), 8088)
	want := slices.Repeat([]string{k.pods[0]}, len(all))
	for _, to := range all {
		if got := k.get(to, "/"); got != k.pods[0] {
			k.t.Errorf("%s answers the host %q, want %s", to, got, k.pods[0])
		}
	}
	for _, from := range k.pods {
		if got := k.answers(from, 1, all...); !slices.Equal(got, want) {
			k.t.Errorf("%v answers %s %q, want %s", all, from, got, k.pods[0])
		}
	}
}

// egress reaches a server on the host, which sees the pods' own addresses.
func (k *kubernetes) egress() {
	for _, a := range k.addresses(k.pods[0]) {
		var listener net.Listener
		k.check(lab.Do(k.fleet.Lab.HostNS(), func() (err error) {
			listener, err = net.Listen("tcp", net.JoinHostPort(k.hostAddress(a), "0"))
			return err
		}))
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			host, _, _ := net.SplitHostPort(r.RemoteAddr)
			_, _ = fmt.Fprintln(w, host) // an error is the client's
		})}
		go func() { _ = server.Serve(listener) }()
		for _, from := range k.pods {
			own := k.addresses(from)
			i := slices.IndexFunc(own, func(b netip.Addr) bool { return a.Is4() == b.Is4() })
			got := k.answers(from, 1, netip.MustParseAddrPort(listener.Addr().String()))
			if !slices.Equal(got, []string{own[i].String()}) {
				k.t.Errorf("%s has the address %q for the host, want %s", from, got, own[i])
			}
		}
		k.check(server.Close())
	}
}
