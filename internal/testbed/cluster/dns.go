package cluster

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
)

// The cluster's DNS server runs next to the API server. Pods ask it by its Service.
const (
	dnsProgram = "coredns"
	dnsDomain  = "cluster.local"
	dnsUser    = "system:coredns"
	dnsReady   = "127.0.0.1:8181"
)

// corefile is CoreDNS's configuration. It answers for the cluster only: the namespace in which it
// runs reaches no other server.
func corefile(families []family, kubeconfig string) string {
	return fmt.Sprintf(`.:53 {
	bind %s
	errors
	ready %s
	kubernetes %s in-addr.arpa ip6.arpa {
		kubeconfig %s
		pods insecure
	}
	cache 30
	loadbalance
}
`, strings.Join(all(families, func(f family) netip.Addr { return f.host.Addr() }), " "), dnsReady, dnsDomain, kubeconfig)
}

func (c *Cluster) dns() component {
	return component{name: dnsProgram, health: "http://" + dnsReady + "/ready", arguments: []string{"-conf=" + c.path("Corefile")}}
}

// startDNS starts the DNS server, with rights of its own and a Service, and waits until it has read
// the cluster's Services.
func (c *Cluster) startDNS(ctx context.Context) error {
	if err := c.writeKubeconfig("coredns.conf", c.apiURL(), dnsUser); err != nil {
		return err
	}
	if err := os.WriteFile(c.path("Corefile"), []byte(corefile(c.families(), c.path("coredns.conf"))), 0o600); err != nil {
		return fmt.Errorf("write configuration of DNS: %w", err)
	}
	if err := c.Apply(ctx, dnsObjects(c.families())...); err != nil {
		return err
	}
	return c.start(ctx, c.dns())
}

func dnsServices(families []family) []string { return all(families, family.dns) }

func named(version, kind string, metadata, rest map[string]any) map[string]any {
	rest["apiVersion"], rest["kind"], rest["metadata"] = version, kind, metadata
	return rest
}

// rights lets a user do what the rules say, in all namespaces.
func rights(user string, rules ...any) []map[string]any {
	const rbac = "rbac.authorization.k8s.io"
	name := map[string]any{"name": user}
	return []map[string]any{
		named(rbac+"/v1", "ClusterRole", name, map[string]any{"rules": rules}),
		named(rbac+"/v1", "ClusterRoleBinding", name, map[string]any{
			"roleRef":  map[string]any{"apiGroup": rbac, "kind": "ClusterRole", "name": user},
			"subjects": []any{map[string]any{"apiGroup": rbac, "kind": "User", "name": user}},
		}),
	}
}

// read is a rule for list and watch.
func read(group string, resources ...string) map[string]any {
	return map[string]any{"apiGroups": []string{group}, "resources": resources, "verbs": []string{"list", "watch"}}
}

// dnsObjects are the rights of the DNS server and its Service, which selects no pods.
func dnsObjects(families []family) []map[string]any {
	service := func(name string, labels map[string]string) map[string]any {
		return map[string]any{"namespace": "kube-system", "name": name, "labels": labels}
	}
	ports := []any{
		map[string]any{"name": "dns", "port": 53, "protocol": "UDP"}, map[string]any{"name": "dns-tcp", "port": 53, "protocol": "TCP"},
	}
	objects := append(rights(dnsUser, read("", "services", "pods", "namespaces"), read("discovery.k8s.io", "endpointslices")),
		named("v1", "Service", service("kube-dns", map[string]string{"k8s-app": "kube-dns"}), map[string]any{
			"spec": map[string]any{"clusterIP": dnsServices(families)[0], "clusterIPs": dnsServices(families), "ipFamilyPolicy": "PreferDualStack", "ports": ports},
		}))
	for _, f := range families {
		name := "kube-dns-" + strings.ToLower(f.name)
		objects = append(objects, named("discovery.k8s.io/v1", "EndpointSlice", service(name, map[string]string{"kubernetes.io/service-name": "kube-dns"}), map[string]any{
			"addressType": f.name, "ports": ports, "endpoints": []any{map[string]any{"addresses": []string{f.host.Addr().String()}}},
		}))
	}
	return objects
}
