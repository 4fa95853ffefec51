package cluster

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/hostd/ipam"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/lab"
)

// The components, the nodes and their pods have addresses of the cluster's families only.
func TestFamilies(t *testing.T) {
	for names, want := range map[string]struct{ bind, services, variables, routes, subnets string }{
		IPv4: {
			"10.201.0.1", "10.96.0.0/16", "address=10.201.0.3 proxy_mode=nftables\n",
			"10.244.2.0/24 10.201.0.2\n", "10.244.3.0/24",
		},
		IPv6: {
			"fd00:10:201::1", "fd00:10:96::/112",
			"address=fd00:10:201::3 proxy_mode=nftables address6=fd00:10:201::3/64 gateway6=fd00:10:201::1\n",
			"fd00:10:244::200/120 fd00:10:201::2\n", "fd00:10:244::300/120",
		},
		DualStack: {
			"10.201.0.1", "10.96.0.0/16,fd00:10:96::/112",
			"address=10.201.0.3,fd00:10:201::3 proxy_mode=nftables address6=fd00:10:201::3/64 gateway6=fd00:10:201::1\n",
			"10.244.2.0/24 10.201.0.2\nfd00:10:244::200/120 fd00:10:201::2\n", "10.244.3.0/24 fd00:10:244::300/120",
		},
	} {
		c := &Cluster{keys: makeKeys(t), options: Options{Nodes: 2, Network: Bridge, ProxyMode: "nftables", IPFamilies: names}}
		node := netip.MustParseAddr("10.201.0.3")
		files, err := c.nodeFiles("node2", node)
		if err != nil {
			t.Fatal(err)
		}
		if got := files["/etc/kubernetes/node"]; got != want.variables {
			t.Errorf("%s: the node's variables are %q, want %q", names, got, want.variables)
		}
		if got := files["/etc/kubernetes/routes"]; got != want.routes {
			t.Errorf("%s: the node's routes are %q, want %q", names, got, want.routes)
		}
		_, api, _ := controlPlane("/run", c.families())
		for _, argument := range []string{"--bind-address=" + want.bind, "--advertise-address=" + want.bind, "--service-cluster-ip-range=" + want.services} {
			if !slices.Contains(api.arguments, argument) {
				t.Errorf("%s: the API server lacks %s: %v", names, argument, api.arguments)
			}
		}
		allowed := moreAddresses(c.families(), node)
		for text := range strings.FieldsSeq(want.subnets) {
			subnet := netip.MustParsePrefix(text)
			if !strings.Contains(files["/etc/cni/net.d/10-pods.conflist"], `"subnet": "`+text+`"`) || !slices.Contains(allowed, subnet.Addr().Next()) {
				t.Errorf("%s: pods behind a bridge have no address of %s, or the node may not send it", names, text)
			}
		}
		if slices.Contains(allowed, netip.MustParseAddr("fd00:10:201::3")) != (names != IPv4) {
			t.Errorf("%s: the node may send from %v", names, allowed)
		}
	}
}

// The lab's network and the ranges of pods have the families of the cluster.
func TestAddFamilies(t *testing.T) {
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("makes network namespaces: set UNNEST_PRIVILEGED=1")
	}
	t.Setenv("UNNEST_STATE", t.TempDir())
	l, err := lab.Create("families")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	for _, names := range []string{IPv4, DualStack, IPv6} {
		f, err := fleet.Open(l)
		if err != nil {
			t.Fatal(err)
		}
		c := &Cluster{Lab: l, fleet: f, options: Options{IPFamilies: names}}
		if err := errors.Join(os.MkdirAll(c.path(""), 0o700), c.addFamilies()); err != nil {
			t.Fatal(err)
		}
		if got, err := readFamilies(l); got != names || err != nil {
			t.Errorf("later commands read %q, %v, want %s", got, err, names)
		}
		c.setPolicy()
		if content, err := quota.Marshal(f.Policy); err != nil {
			t.Error(err)
		} else if _, err := quota.Parse("hostd.yaml", content); err != nil {
			t.Errorf("%s: the daemon refuses its configuration: %v", names, err)
		}
		for _, family := range c.families() {
			tenant, claims := f.Policy.Tenants[0], func(r netip.Prefix) bool { return r == family.host.Masked() }
			if !slices.ContainsFunc(tenant.ClaimRanges, claims) {
				t.Errorf("%s: pods may ask for addresses in %v only", names, tenant.ClaimRanges)
			}
			behind := family.bridgeSubnet(netip.MustParseAddr("10.201.0.200")).Addr()
			if !slices.ContainsFunc(tenant.PodRanges, func(r netip.Prefix) bool { return r.Contains(behind) }) {
				t.Errorf("%s: a pod behind a bridge with %s is no peer: podRanges are %v", names, behind, tenant.PodRanges)
			}
		}
		ranges := f.Policy.Tenants[0].Ranges
		if _, err := ipam.New(ranges, 0); err != nil || len(ranges) != len(c.families()) {
			t.Errorf("%s: the ranges are %v, %v", names, ranges, err)
		}
		for i, f := range c.families() {
			if len(ranges) > i && (ranges[i].Subnet != f.host.Masked() || ranges[i].Gateway != f.host.Addr()) {
				t.Errorf("%s: range %d is %v, want one of %v", names, i, ranges[i], f.host)
			}
			listen := func() error {
				server, err := net.Listen("tcp", f.server()) // fails while an IPv6 address is tentative
				if err == nil {
					err = server.Close()
				}
				return err
			}
			if err := lab.Do(l.HostNS(), listen); err != nil {
				t.Errorf("%s: %v", names, err)
			}
		}
		if err := c.routeTo(netip.MustParseAddr("10.201.0.3")); err != nil {
			t.Errorf("%s: %v", names, err)
		}
	}
}
