//go:build kubernetes

package e2e

import (
	"slices"
	"strings"
)

// dns resolves Services from pods of both networks on both nodes, and reaches one by its name.
func (k *kubernetes) dns() {
	api := k.ctl("get", "service", "kubernetes", "--output=jsonpath={.spec.clusterIP}")
	for _, from := range kubernetesPods {
		k.eventually("DNS for "+from, func() bool { // kube-proxy writes its rules a moment later
			got := k.in(from, "nslookup -type=a kubernetes.default.svc.cluster.local 2>&1 || :")
			if !strings.Contains(got, "Address: "+api) {
				k.t.Logf("from %s: %s", from, got)
				return false
			}
			return true
		})
		if got := k.in(from, "busybox timeout 60 wget -q -O - http://web/ 2>&1 || :"); !slices.Contains(kubernetesPods, strings.TrimSpace(got)) {
			k.t.Errorf("from %s, the Service web by its name: %q", from, got)
		}
	}
}
