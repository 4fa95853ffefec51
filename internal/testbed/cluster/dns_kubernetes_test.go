//go:build kubernetes

package cluster

import (
	"context"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// The DNS server of a cluster without nodes knows its Services, old and new ones, by their names and
// addresses of all families, and can read nothing else.
func TestDNSServer(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("makes network namespaces: set UNNEST_PRIVILEGED=1")
	}
	for name, ipFamilies := range map[string]string{"IPv4": IPv4, "IPv6": IPv6, "dual": DualStack} { // names of directories
		t.Run(name, func(t *testing.T) { testDNSServer(t, ipFamilies) })
	}
}

func testDNSServer(t *testing.T, ipFamilies string) {
	t.Setenv("UNNEST_STATE", t.TempDir())
	programs, err := FindPrograms("../../../bin/kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	unnest, err := filepath.Abs("../../../bin/unnest")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Up(t.Context(), Options{
		Programs: programs, Unnest: unnest, IPFamilies: ipFamilies, Wait: time.Minute, MakeImage: noImage, Progress: func(step string) { t.Log(step) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Lab.Close(); err != nil {
			t.Error(err)
		}
	})
	families := c.families()
	web := all(families, func(f family) netip.Addr { return plus(f.services.Addr(), 0, 77) })
	if err := c.Apply(t.Context(), map[string]any{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "web"}, "spec": map[string]any{
		"clusterIP": web[0], "clusterIPs": web, "ipFamilyPolicy": "PreferDualStack", "ports": []any{map[string]any{"port": 80}},
	}}); err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return c.Lab.Dial(ctx, network, net.JoinHostPort(f.host.Addr().String(), "53"))
		}}
		for name, want := range map[string][]string{
			"kubernetes.default": {families[0].api().String()}, "kube-dns.kube-system": dnsServices(families), "web.default": web,
		} {
			resolves(t, resolver, name+".svc."+dnsDomain+".", want)
		}
		for _, address := range web {
			if names, err := resolver.LookupAddr(t.Context(), address); err != nil || !slices.Equal(names, []string{"web.default.svc.cluster.local."}) {
				t.Errorf("%s has the names %v, %v", address, names, err)
			}
		}
	}
	if out, err := c.Kubectl(t.Context(), "auth", "can-i", "--as="+dnsUser, "get", "secrets", "--all-namespaces"); out != "no\n" {
		t.Errorf("may the DNS server read secrets? %q, %v", out, err)
	}
	again, err := View()
	if err != nil {
		t.Fatal(err)
	}
	names, health := again.Health(t.Context())
	if !slices.Contains(names, dnsProgram) || health[dnsProgram] != nil || health["kube-apiserver"] != nil || again.IPFamilies() != ipFamilies {
		t.Errorf("a later command sees the families %s and the components %v with %v", again.IPFamilies(), names, health)
	}
}

// resolves waits until the name has the address: the server watches the API.
func resolves(t *testing.T, r *net.Resolver, name string, want []string) {
	t.Helper()
	var got []string
	var err error
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(200 * time.Millisecond) {
		if got, err = r.LookupHost(t.Context(), name); err == nil && slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
			return
		}
	}
	t.Errorf("%s resolves to %v, %v, want %v", name, got, err, want)
}
