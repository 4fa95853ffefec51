package fleet

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/crypto/ssh"

	"unnest.io/unnest/internal/cni/netconf"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/lab"
)

// No two guests or their pods share an address. All addresses are in the lab's
// networks, and none is a gateway's.
func TestAddressesAreDisjoint(t *testing.T) {
	management := netip.PrefixFrom(netip.MustParseAddr(lab.ManagementGateway), lab.ManagementPrefix)
	tenant := netip.PrefixFrom(netip.MustParseAddr(lab.TenantGateway), lab.TenantPrefix)
	owner := map[string]int{lab.ManagementGateway: 0, lab.TenantGateway: 0}
	own := func(i int, what string) {
		if other, taken := owner[what]; taken {
			t.Errorf("guest %d: %s is of guest %d already (0: the lab's)", i, what, other)
		}
		owner[what] = i
	}
	inside := func(i int, network netip.Prefix, address string) netip.Addr {
		a, err := netip.ParseAddr(address)
		if err != nil || !network.Contains(a) {
			t.Errorf("guest %d: %s is not in %s (%v)", i, address, network.Masked(), err)
		}
		return a
	}
	for i := 1; i <= maxGuests; i++ {
		p := addressesOf(i)
		inside(i, management, p.managementIP)
		inside(i, tenant, p.tenantIP)
		if a := inside(i, tenant, p.nestedIP); a.Compare(netip.MustParseAddr(lastPod)) <= 0 {
			t.Errorf("guest %d: %s may be a pod's", i, a)
		}
		for _, what := range []string{
			p.managementIP, p.tenantIP, p.managementMAC, p.tenantMAC, p.managementTAP, p.tenantTAP,
			p.nestedIP, p.nestedMAC, p.nestedTAP, p.uplinkMAC,
		} {
			own(i, what)
		}
		if a := inside(i, tenant, p.tenantIP); a.Compare(netip.MustParseAddr(firstPod)) >= 0 {
			t.Errorf("guest %d: %s may be a pod's", i, a)
		}
		for _, tap := range []string{p.managementTAP, p.tenantTAP, p.nestedTAP} {
			if len(tap) > 15 {
				t.Errorf("guest %d: the kernel takes no name of %d bytes: %s", i, len(tap), tap)
			}
		}
	}
}

func TestAddresses(t *testing.T) {
	want := addresses{
		managementIP: "10.200.0.18", managementMAC: "52:54:00:c8:00:11", managementTAP: "g17mgmt",
		tenantIP: "10.201.0.18", tenantMAC: "52:54:00:c9:00:11", tenantTAP: "g17tenant",
		nestedIP: "10.201.255.18", nestedMAC: "52:54:00:ca:00:11", nestedTAP: "g17nested", uplinkMAC: "52:54:00:cb:00:11",
	}
	if got := addressesOf(17); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// The container engine and our plugin can read the configuration of every guest.
func TestCNIConfig(t *testing.T) {
	for _, keys := range []map[string]any{nil, {"pool": false}, {"mode": "trunk"}} {
		text := cniConfig(Network, keys)
		list, err := libcni.NetworkConfFromBytes([]byte(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if list.Name != Network || list.CNIVersion != "1.0.0" || len(list.Plugins) != 1 || list.Plugins[0].Network.Type != "brfusion" {
			t.Errorf("got %+v", list)
		}
		c, err := netconf.ParseBrFusion(list.Plugins[0].Bytes)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if c.Server.String() != "10.200.0.1:7443" || c.Credentials != "/etc/unnest" || c.IPAM.Type != "hostd" {
			t.Errorf("got %+v", c)
		}
		for key, value := range keys {
			if want := fmt.Sprintf("%q: %#v", key, value); !strings.Contains(text, want) {
				t.Errorf("%s is not in\n%s", want, text)
			}
		}
	}
}

// Each Hostlo network is a segment of its own.
func TestHostloConfig(t *testing.T) {
	f := openFleet(t)
	for name, mode := range map[string]string{HostloNetwork: "unicast", HostloPlainNetwork: "plain"} {
		text := f.hostloConfig(name, mode)
		list, err := libcni.NetworkConfFromBytes([]byte(text))
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if list.Name != name || list.CNIVersion != "1.0.0" || len(list.Plugins) != 1 || list.Plugins[0].Network.Type != "hostlo" {
			t.Errorf("got %+v", list)
		}
		c, err := netconf.ParseHostlo(list.Plugins[0].Bytes, "")
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if c.Server.String() != "10.200.0.1:7443" || c.Credentials != "/etc/unnest" || c.Segment != (netconf.Segment{Name: name, Key: f.segmentKey, Mode: mode}) {
			t.Errorf("got %+v", c)
		}
	}
}

// All guests of a lab get the same key, also from another process.
func TestSegmentKey(t *testing.T) {
	dir := t.TempDir()
	one, err := openSegmentKey(filepath.Join(dir, "one"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := openSegmentKey(filepath.Join(dir, "one"))
	if err != nil || again != one {
		t.Errorf("got %q and %q, %v", one, again, err)
	}
	if other, err := openSegmentKey(filepath.Join(dir, "other")); err != nil || other == one {
		t.Errorf("two labs have the same key (%v)", err)
	}
	if info, err := os.Stat(filepath.Join(dir, "one")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("others can read it: %v, %v", info, err)
	}
}

// The host daemon can read its configuration.
func TestDefaultPolicy(t *testing.T) {
	text, err := quota.Marshal(defaultPolicy())
	if err != nil {
		t.Fatal(err)
	}
	got, err := quota.Parse("hostd.yaml", text)
	if err != nil || got.Listen.String() != daemonAddress || got.Tenants[0].Name != Tenant {
		t.Errorf("got %+v, %v", got, err)
	}
}

// The guest's configuration has its addresses, keys and certificate.
func TestConfig(t *testing.T) {
	f := openFleet(t)
	credentials, err := f.authority.Issue("node1")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Name: "node1", Image: image.Image{Root: "/cache/root.ext4"}, Accel: guest.TCG, VCPUs: 2, Memory: 1 << 30, Slots: 8}
	p := addressesOf(3)
	c, err := f.config(o, p, credentials, "/state/node1")
	if err != nil {
		t.Fatal(err)
	}
	if c.Name != "node1" || c.Dir != "/state/node1" || c.Image != o.Image || c.Accel != guest.TCG || c.VCPUs != 2 || c.Memory != 1<<30 || c.Slots != 8 {
		t.Errorf("got %+v, want what was asked for", c)
	}
	if c.Address != "10.200.0.4:22" || c.Seed.Hostname != "node1" || string(c.Seed.Authorized.Marshal()) != string(f.key.PublicKey().Marshal()) {
		t.Errorf("got address %s, host name %s, key %s", c.Address, c.Seed.Hostname, ssh.FingerprintSHA256(c.Seed.Authorized))
	}
	interfaces := []guest.Interface{
		{MAC: p.managementMAC, Name: "mgmt", Address: "10.200.0.4/24"},
		{MAC: p.tenantMAC, Name: "eth0", Address: "10.201.0.4/16", Gateway: "10.201.0.1"},
	}
	if !slices.Equal(c.Seed.Interfaces, interfaces) {
		t.Errorf("interfaces: got %+v, want %+v", c.Seed.Interfaces, interfaces)
	}
	files := map[string]string{
		"/etc/unnest/ca.crt":                        string(f.authority.CertificatePEM()),
		"/etc/unnest/client.crt":                    string(credentials.CertificatePEM),
		"/etc/unnest/client.key":                    string(credentials.KeyPEM),
		"/etc/cni/net.d/50-brfusion.conflist":       cniConfig("brfusion", nil),
		"/etc/cni/net.d/51-brfusion-cold.conflist":  cniConfig("brfusion-cold", map[string]any{"pool": false}),
		"/etc/cni/net.d/52-brfusion-trunk.conflist": cniConfig("brfusion-trunk", map[string]any{"mode": "trunk"}),
		"/etc/cni/net.d/53-hostlo.conflist":         f.hostloConfig("hostlo", "unicast"),
		"/etc/cni/net.d/54-hostlo-plain.conflist":   f.hostloConfig("hostlo-plain", "plain"),
	}
	for path, want := range files {
		if c.Seed.Files[path] != want || want == "" {
			t.Errorf("%s: got %q, want %q", path, c.Seed.Files[path], want)
		}
	}
	again, err := f.config(o, p, credentials, "/state/node1")
	if err != nil || again.Seed.HostKey.Equal(c.Seed.HostKey) {
		t.Errorf("two guests have the same host key (%v)", err)
	}
}

// A guest for which the VMM vouches has no credentials in its files, has a drive also when it
// is frozen, and is enrolled without a certificate.
func TestVouched(t *testing.T) {
	f, o := openFleet(t), Options{Name: "node1", Image: image.Image{Root: "/cache/root.ext4"}, Accel: guest.TCG, VCPUs: 1, Memory: 1 << 30, Vouched: true}
	c, err := f.config(o, addressesOf(3), identity.Credentials{}, "/state/node1")
	if err != nil || !c.CredentialDrive {
		t.Fatalf("got %+v, %v", c, err)
	}
	for path := range c.Seed.Files {
		if strings.HasPrefix(path, "/etc/unnest/client") || strings.HasPrefix(path, "/etc/unnest/ca") {
			t.Errorf("the seed has %s", path)
		}
	}
	n := newNode(t, f)
	if err := n.save(f.Lab.Dir, o, identity.Credentials{}); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(record.Path(f.Lab.Dir, n.Name))
	if err != nil || !strings.Contains(string(content), `"credentials": "vmm"`) {
		t.Errorf("record is %s, %v", content, err)
	}
}
