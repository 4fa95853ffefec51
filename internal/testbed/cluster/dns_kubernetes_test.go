//go:build kubernetes

package cluster

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"unnest/internal/testbed/lab"
)

// The DNS server of a cluster without nodes knows its Services, old and new ones, by their names and
// addresses, and can read nothing else.
func TestDNSServer(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("makes network namespaces: set UNNEST_PRIVILEGED=1")
	}
	t.Setenv("UNNEST_STATE", t.TempDir())
	programs, err := FindPrograms("../../../bin/kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	unnest, err := filepath.Abs("../../../bin/unnest")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Up(t.Context(), Options{Programs: programs, Unnest: unnest, Wait: time.Minute, Progress: func(step string) { t.Log(step) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Lab.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := c.Kubectl(t.Context(), "create", "service", "clusterip", "web", "--clusterip=10.96.7.7", "--tcp=80:8080"); err != nil {
		t.Fatal(err)
	}
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return c.Lab.Dial(ctx, network, net.JoinHostPort(lab.TenantGateway, "53"))
	}}
	for name, want := range map[string]string{"kubernetes.default": family4.api().String(), "kube-dns.kube-system": family4.dns().String(), "web.default": "10.96.7.7"} {
		resolves(t, resolver, name+".svc."+dnsDomain+".", want)
	}
	if names, err := resolver.LookupAddr(t.Context(), "10.96.7.7"); err != nil || !slices.Equal(names, []string{"web.default.svc.cluster.local."}) {
		t.Errorf("10.96.7.7 has the names %v, %v", names, err)
	}
	if out, err := c.Kubectl(t.Context(), "auth", "can-i", "--as="+dnsUser, "get", "secrets", "--all-namespaces"); out != "no\n" {
		t.Errorf("may the DNS server read secrets? %q, %v", out, err)
	}
	names, health := c.Health(t.Context())
	if !slices.Contains(names, dnsProgram) || health[dnsProgram] != nil {
		t.Errorf("the components are %v, DNS is not ready: %v", names, health[dnsProgram])
	}
}

// resolves waits until the name has the address: the server watches the API.
func resolves(t *testing.T, r *net.Resolver, name, want string) {
	t.Helper()
	var got []string
	var err error
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(200 * time.Millisecond) {
		if got, err = r.LookupHost(t.Context(), name); err == nil && slices.Equal(got, []string{want}) {
			return
		}
	}
	t.Errorf("%s resolves to %v, %v, want %s", name, got, err, want)
}
