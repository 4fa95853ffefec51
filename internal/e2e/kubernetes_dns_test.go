//go:build kubernetes

package e2e

import (
	"net/netip"
	"slices"
	"strings"
)

// dns resolves Services from all pods, in all families, and reaches one by its name. A headless
// Service has the addresses of its pods.
func (k *kubernetes) dns() {
	k.apply(service("headless", map[string]string{"app": "web"}, map[string]any{"clusterIP": "None"}))
	var pods []netip.Addr
	for _, name := range k.pods {
		pods = append(pods, k.addresses(name)...)
	}
	for _, from := range k.pods {
		k.resolves(from, "kubernetes.default", k.clusterIPs("kubernetes"))
		k.resolves(from, "web.default", k.clusterIPs("web"))
		k.resolves(from, "headless.default", pods)
		if got := k.in(from, "busybox timeout 60 wget -q -O - http://web/ 2>&1 || :"); !slices.Contains(k.pods, strings.TrimSpace(got)) {
			k.t.Errorf("from %s, the Service web by its name: %q", from, got)
		}
	}
}

// resolves waits until a Service has the addresses for a pod: the server watches the API, and
// kube-proxy writes its rules a moment later.
func (k *kubernetes) resolves(from, name string, want []netip.Addr) {
	k.t.Helper()
	script := "for type in a aaaa; do nslookup -type=$type " + name + ".svc.cluster.local 2>&1; done || :"
	k.eventually("DNS for "+from, func() bool {
		var got []string
		out := k.in(from, script)
		for line := range strings.Lines(out) {
			// The server's own address has a port.
			if address, ok := strings.CutPrefix(strings.TrimSpace(line), "Address: "); ok && !strings.HasSuffix(address, ":53") {
				got = append(got, address)
			}
		}
		slices.Sort(got)
		expected := make([]string, len(want))
		for i, a := range want {
			expected[i] = a.String()
		}
		slices.Sort(expected)
		if !slices.Equal(got, expected) {
			k.t.Logf("from %s: %s has %q, want %q:\n%s", from, name, got, expected, out)
			return false
		}
		return true
	})
}
