package quota_test

import (
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/hostd/ipam"
	"unnest.io/unnest/internal/hostd/quota"
)

const small = `tenants:
  - name: default
    bridge: br0
    gateways: [10.201.0.1/16, "fd00:c9::1/64"]
    ranges:
      - {subnet: 10.201.0.0/16, first: 10.201.1.1, gateway: 10.201.0.1}
  - name: shop
    bridge: br1
guests:
  - name: node1
    tenant: default
    index: 7
    qmp: /run/qemu/node1.qmp
    ports: [rp1, rp2]
    addresses: [10.201.0.8]
`

var addrs = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
	cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
}

func mustParse(t *testing.T, text string) quota.Config {
	t.Helper()
	p, err := quota.Parse("x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestParseFillsWhatIsLeftOut(t *testing.T) {
	limits := quota.Limits{NICs: 128, Addresses: 512, RequestsPerSecond: 20, Burst: 200, AttachesPerSecond: 2, Connections: 32, Segments: 256, Endpoints: 16, Broadcasts: 20000, Volumes: 256, VolumeDirectories: 1024, SharedMemory: 256, Multicasts: 1000, QueueMemory: 2048, Flows: 32768}
	want := quota.Config{
		Tenants: []quota.Tenant{{
			Name: "default", Bridge: "br0", MTU: 1500, Cooldown: time.Minute, Limits: limits,
			Gateways: []netip.Prefix{netip.MustParsePrefix("10.201.0.1/16"), netip.MustParsePrefix("fd00:c9::1/64")},
			Ranges: []ipam.Range{{
				Subnet: netip.MustParsePrefix("10.201.0.0/16"), First: netip.MustParseAddr("10.201.1.1"), Gateway: netip.MustParseAddr("10.201.0.1"),
			}},
		}, {Name: "shop", Bridge: "br1", MTU: 1500, Cooldown: time.Minute, Limits: limits}},
		Guests: []quota.Guest{{
			Name: "node1", Tenant: "default", Index: 7, QMP: "/run/qemu/node1.qmp", Ports: []string{"rp1", "rp2"},
			Pool: 4, Addresses: []netip.Addr{netip.MustParseAddr("10.201.0.8")},
		}},
		Pool: 4, Trunk: true,
	}
	if diff := cmp.Diff(want, mustParse(t, small), addrs); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for limits, want := range map[string]int{"{nics: 10}": 40, "{nics: 0}": 0, "{addresses: 7}": 7, "{nics: 10, addresses: 0}": 0} {
		if got := mustParse(t, strings.Replace(small, "bridge: br1", "bridge: br1\n    limits: "+limits, 1)).Tenants[1].Limits.Addresses; got != want {
			t.Errorf("limits %s: %d addresses, want %d", limits, got, want)
		}
	}
	if got := mustParse(t, small+"pool: 9\n").Guests[0].Pool; got != 9 {
		t.Errorf("the guest's pool is %d, want the file's 9", got)
	}
}

const full = `
listen: "[fd00::1]:7443"
http: 127.0.0.1:9477
tenants:
  - name: a
    bridge: br0
    bridges: [br-db, br-x]
    mtu: 9000
    gateways: [10.0.0.1/16]
    nat: true
    hostPorts: [tcp/53, udp/65535]
    metadata: true
    ranges: [{subnet: 10.0.0.0/16, first: 10.0.1.1, last: 10.0.199.254, gateway: 10.0.0.1}, {subnet: 10.0.0.0/16, first: 10.0.200.1}]
    cooldown: 0s
    vhostPoll: 0
    limits: {nics: 0, tenantNICs: 500, requestsPerSecond: 0, burst: 0, attachesPerSecond: 4, connections: 0, segments: 0, endpoints: 3, broadcasts: 70, volumes: 7, volumeDirectories: 8, sharedMemory: 0, multicasts: 5, queueMemory: 6, flows: 9, bandwidth: {ingress: 1500M, egress: 64K}}
    segments: {modes: [plain], span: host}
  - {name: c, bridge: br-c, vhostPoll: 50us, queues: 16}
  - {name: b, bridge: "1e3", gateways: [], ranges: [], bridges: []}
guests:
  - {name: "on", tenant: a, index: 1295, pool: 0, libvirt: {socket: /run/l, domain: "null"}}
  - {name: "007", tenant: b, index: 1, libvirt: {domain: "x: y #"}, tap: tap7, mac: 52:54:00:AB:cd:ef, addresses: ["fd00::8", "fe80::8"], ports: []}
  - {name: router, tenant: b, index: 2, qmp: /q, unguarded: true}
pool: 0
trunk: false
logLevel: debug
`

func TestParseAllKeys(t *testing.T) {
	p := mustParse(t, full)
	a := p.Tenants[0]
	if p.Listen.String() != "[fd00::1]:7443" || p.HTTP.String() != "127.0.0.1:9477" || p.Pool != 0 || p.Trunk || p.LogLevel != quota.LogDebug ||
		len(a.Bridges) != 2 || len(a.HostPorts) != 2 || a.HostPorts[1] != "udp/65535" || !a.Metadata || a.MTU != 9000 || !a.NAT || len(a.Ranges) != 2 || a.Cooldown != 0 ||
		a.Limits != (quota.Limits{TenantNICs: 500, AttachesPerSecond: 4, Endpoints: 3, Broadcasts: 70, Volumes: 7, VolumeDirectories: 8, Multicasts: 5, QueueMemory: 6, Flows: 9, Bandwidth: quota.Rates{Ingress: 1.5e9, Egress: 64000}}) ||
		len(a.Segments.Modes) != 1 || a.Segments.Modes[0] != quota.SegmentPlain || a.Segments.Span != quota.SpanHost ||
		a.VHostPoll != 0 || p.Tenants[1].VHostPoll != 50*time.Microsecond || a.Queues != 0 || p.Tenants[1].Queues != quota.MaxQueues || p.Tenants[2].Bridge != "1e3" || p.Guests[0].Pool != 0 || *p.Guests[0].Libvirt != (quota.Domain{Socket: "/run/l", Domain: "null"}) ||
		p.Guests[1].Name != "007" || *p.Guests[1].Libvirt != (quota.Domain{Socket: "/run/libvirt/libvirt-sock", Domain: "x: y #"}) ||
		p.Guests[1].TAP != "tap7" || p.Guests[1].MAC != "52:54:00:AB:cd:ef" || p.Guests[1].Unguarded || !p.Guests[2].Unguarded {
		t.Errorf("%+v", p)
	}
	for _, off := range []string{"off", `""`} {
		if p := mustParse(t, strings.Replace(full, "127.0.0.1:9477", off, 1)); p.HTTP.IsValid() {
			t.Errorf("http %s: %v", off, p.HTTP)
		}
	}
}

// Each test replaces a part of the small file and wants this error.
func TestParseRefuses(t *testing.T) {
	for _, test := range []struct{ old, new, want string }{
		{small, "", `x.yaml:1: the file is empty`},
		{small, "# nothing\n", `x.yaml:1: the file is empty`},
		{small, "pool: 1", `x.yaml:1: key tenants is missing`},
		{small, "tenants: []", `x.yaml:1: tenants: the list is empty`},
		{small, small + "---\na: b\n", `x.yaml:17: a second document begins: want one in a file`},
		{small, "a: [", `x.yaml:1: parse YAML: `},
		{"tenants:\n", "trunk: maybe\ntenants:\n", `x.yaml:1: trunk: want true or false, got "maybe"`},
		{"tenants:\n", "listen: 7443\ntenants:\n", `x.yaml:1: listen: want IP-ADDRESS:PORT, as the guests see it, such as 10.200.0.1:7443, got "7443"`},
		{"tenants:\n", "listen: 0.0.0.0:7443\ntenants:\n", `x.yaml:1: listen: want IP-ADDRESS:PORT, as the guests see it`},
		{"tenants:\n", "http: localhost:1\ntenants:\n", `x.yaml:1: http: want IP-ADDRESS:PORT, such as 127.0.0.1:9477, or off, got "localhost:1"`},
		{"tenants:\n", "pool: 256\ntenants:\n", `x.yaml:1: pool: want a whole number from 0 to 255, got "256"`},
		{"tenants:\n", "logLevel: warn\ntenants:\n", `x.yaml:1: logLevel: want info or debug, got "warn"`},
		{"tenants:\n", "poll: 2\ntenants:\n", `x.yaml:1: poll: unknown key: did you mean pool?`},
		{"name: default", "nam: default", `x.yaml:2: tenants[0].nam: unknown key: did you mean name?`},
		{"  - name: default\n    bridge", "  - bridge", `x.yaml:2: tenants[0]: key name is missing`},
		{"    bridge: br0\n", "", `x.yaml:2: tenants[0]: key bridge is missing`},
		{"name: default", "name: Default", `x.yaml:2: tenants[0].name: want 1 to 63 of a-z, 0-9 and, inside, '-', got "Default"`},
		{"name: default", "name: d-", `x.yaml:2: tenants[0].name: want 1 to 63`},
		{"name: shop", "name: default", `x.yaml:7: tenants[1].name: "default" is already tenants[0].name`},
		{"bridge: br0", "bridge: br/0", `x.yaml:3: tenants[0].bridge: want the name of a network interface, 1 to 15 bytes without '/', ':' and white space, got "br/0"`},
		{"bridge: br0", "bridge: a-bridge-too-long", `x.yaml:3: tenants[0].bridge: want the name`},
		{"bridge: br1", "bridge: br0", `x.yaml:8: tenants[1].bridge: "br0" is already tenants[0].bridge`},
		{"bridge: br1", "bridge: br1\n    bridges: [br2, br0]", `x.yaml:9: tenants[1].bridges[1]: "br0" is already tenants[0].bridge`},
		{"bridge: br1", "bridge: br1\n    bridges: [br1]", `x.yaml:9: tenants[1].bridges[0]: "br1" is already tenants[1].bridge`},
		{"bridge: br1", "bridge: br1\n    mtu: 67", `x.yaml:9: tenants[1].mtu: want a whole number from 68 to 65535, got "67"`},
		{"bridge: br0", "bridge: br0\n    mtu: 1279", `x.yaml:4: tenants[0].mtu: want at least 1280, the minimum of IPv6, got 1279`},
		{"bridge: br1", "bridge: br1\n    nat: true", `x.yaml:9: tenants[1].nat: true needs gateways`},
		{"bridge: br1", "bridge: br1\n    hostPorts: [tcp/0]", `x.yaml:9: tenants[1].hostPorts[0]: want tcp/PORT, udp/PORT, any or none, got "tcp/0"`},
		{"bridge: br1", "bridge: br1\n    hostPorts: [icmp/1]", `x.yaml:9: tenants[1].hostPorts[0]: want tcp/PORT`},
		{"bridge: br1", "bridge: br1\n    hostPorts: [tcp/65536]", `x.yaml:9: tenants[1].hostPorts[0]: want tcp/PORT`},
		{"bridge: br1", "bridge: br1\n    hostPorts: [tcp/53, any]", `x.yaml:9: tenants[1].hostPorts[1]: any stands alone: remove it, or the other ports`},
		{"bridge: br1", "bridge: br1\n    cooldown: 60", `x.yaml:9: tenants[1].cooldown: want a duration such as 200ms, 1s or 2m, got "60"`},
		{"bridge: br1", "bridge: br1\n    vhostPoll: 50", `x.yaml:9: tenants[1].vhostPoll: want whole microseconds from 0 to 10ms, such as 50us, got "50"`},
		{"bridge: br1", "bridge: br1\n    queues: 0", `x.yaml:9: tenants[1].queues: want a whole number from 1 to 16, got "0"`},
		{"bridge: br1", "bridge: br1\n    vhostPoll: 1500ns", `x.yaml:9: tenants[1].vhostPoll: want whole microseconds`},
		{"bridge: br1", "bridge: br1\n    vhostPoll: 11ms", `x.yaml:9: tenants[1].vhostPoll: want whole microseconds`},
		{small, "tenants: [{name: a, bridge: b, vhostPoll: 1us}]\nguests: [{name: on, tenant: a, index: 1, libvirt: {domain: d}}]\n",
			`x.yaml:2: guests[0].libvirt: libvirt cannot make vhost-net poll, as vhostPoll of tenant a says: remove that key, or move the guest to another tenant`},
		{"bridge: br1", "bridge: br1\n    gateways: [10.201.9.1/24]", `x.yaml:7: tenants[1]: subnet 10.201.9.0/24 overlaps 10.201.0.0/16 of tenants[0]: each tenant needs its own`},
		{"bridge: br1", "bridge: br1\n    ranges: [{subnet: 10.0.0.0/8}]", `x.yaml:7: tenants[1]: subnet 10.0.0.0/8 overlaps 10.201.0.0/16 of tenants[0]`},
		{"bridge: br1", "bridge: br1\n    limits: {nics: -1}", `x.yaml:9: tenants[1].limits.nics: want a whole number from 0 to 1048576, got "-1"`},
		{"bridge: br1", "bridge: br1\n    limits: {burst: 0}", `x.yaml:9: tenants[1].limits.burst: want at least 1 with requestsPerSecond 20, got 0`},
		{"bridge: br1", "bridge: br1\n    limits: {tenantnics: 1}", `x.yaml:9: tenants[1].limits.tenantnics: unknown key: did you mean tenantNICs?`},
		{"bridge: br1", "bridge: br1\n    limits: {bandwidth: {ingress: 1Gbit}}", `x.yaml:9: tenants[1].limits.bandwidth.ingress: want a rate in bit/s such as 1G, 100M or 64K, or 0 for no limit, got "1Gbit"`},
		{"bridge: br1", "bridge: br1\n    limits: {bandwidth: {egress: 18446744074G}}", `x.yaml:9: tenants[1].limits.bandwidth.egress: want a rate`},
		{"bridge: br1", "bridge: br1\n    limits: {endpoints: 17}", `x.yaml:9: tenants[1].limits.endpoints: want a whole number from 0 to 16, got "17"`},
		{"bridge: br1", "bridge: br1\n    limits: {broadcast: 1}", `x.yaml:9: tenants[1].limits.broadcast: unknown key: did you mean broadcasts?`},
		{"bridge: br1", "bridge: br1\n    segments: {modes: [unicast, paper]}", `x.yaml:9: tenants[1].segments.modes[1]: want unicast or plain, got "paper"`},
		{"bridge: br1", "bridge: br1\n    segments: {span: hosts}", `x.yaml:9: tenants[1].segments.span: segment span not possible: want host, got hosts: a segment is a device of one physical host`},
		{"bridge: br1", "bridge: br1\n    segments: {span: rack}", `x.yaml:9: tenants[1].segments.span: want host, got "rack"`},
		{"[10.201.0.1/16,", "[10.201.0.1,", `x.yaml:4: tenants[0].gateways[0]: want ADDRESS/PREFIX-LENGTH, such as 10.201.0.1/16, got "10.201.0.1"`},
		{"[10.201.0.1/16,", "[10.201.0.0/16,", `x.yaml:4: tenants[0].gateways[0]: want an address from 10.201.0.1 to 10.201.255.254, of subnet 10.201.0.0/16, got "10.201.0.0"`},
		{"[10.201.0.1/16,", "[10.201.0.1/16, 10.201.0.2/16,", `x.yaml:4: tenants[0].gateways[1]: 10.201.0.2/16 overlaps 10.201.0.1/16: want one gateway in a subnet`},
		{"[10.201.0.1/16,", "[10.202.0.1/16,", `x.yaml:6: tenants[0].ranges[0].subnet: want that of a gateway, 10.202.0.0/16 or fd00:c9::/64, got "10.201.0.0/16": use first and last for a smaller range`},
		{"subnet: 10.201.0.0/16", "subnet: 10.201.1.0/16", `x.yaml:6: tenants[0].ranges[0].subnet: want 10.201.0.0/16, got "10.201.1.0/16"`},
		{"subnet: 10.201.0.0/16, ", "", `x.yaml:6: tenants[0].ranges[0]: key subnet is missing`},
		{"first: 10.201.1.1", "first: 10.202.1.1", `x.yaml:6: tenants[0].ranges[0].first: want an address from 10.201.0.1 to`},
		{"first: 10.201.1.1", "first: 10.201.1.1/16", `x.yaml:6: tenants[0].ranges[0].first: want an IP address, such as 10.201.0.8, got "10.201.1.1/16"`},
		{"gateway: 10.201.0.1}", "gateway: 10.201.0.1}\n      - {subnet: 10.201.0.0/16}", `x.yaml:7: tenants[0].ranges[1]: with ranges[0]: 10.201.0.1 to 10.201.255.254 overlaps 10.201.1.1 to 10.201.255.254: bound the ranges by first and last`},
		{"name: node1", "name: node.1", `x.yaml:10: guests[0].name: want 1 to 63`},
		{"tenant: default", "tenant: other", `x.yaml:11: guests[0].tenant: no such tenant: "other": the configuration has default, shop`},
		{"    tenant: default\n", "", `x.yaml:10: guests[0]: key tenant is missing`},
		{"    index: 7\n", "", `x.yaml:10: guests[0]: key index is missing`},
		{"index: 7", "index: 1296", `x.yaml:12: guests[0].index: want a whole number from 1 to 1295, got "1296"`},
		{"guests:\n", "guests:\n  - {name: node0, tenant: shop, index: 7, qmp: /q}\n", `x.yaml:13: guests[1].index: "7" is already guests[0].index`},
		{"guests:\n", "guests:\n  - {name: node1, tenant: shop, index: 6, qmp: /q}\n", `x.yaml:11: guests[1].name: "node1" is already guests[0].name`},
		{"guests:\n", "guests:\n  - {name: node0, tenant: default, index: 6, qmp: /q, addresses: [10.201.0.8]}\n", `x.yaml:16: guests[1].addresses[0]: "10.201.0.8" is already guests[0].addresses[0]`},
		{"qmp: /run/qemu/node1.qmp", "qmp: node1.qmp", `x.yaml:13: guests[0].qmp: want an absolute path, got "node1.qmp"`},
		{"    qmp: /run/qemu/node1.qmp\n", "", `x.yaml:10: guests[0]: want one of the keys qmp and libvirt`},
		{"    ports", "    libvirt: {domain: node1}\n    ports", `x.yaml:14: guests[0].libvirt: want one of the keys qmp and libvirt, got both`},
		{"qmp: /run/qemu/node1.qmp", "libvirt: {socket: /run/x}", `x.yaml:13: guests[0].libvirt: key domain is missing`},
		{"[rp1, rp2]", "[rp1, rp1]", `x.yaml:14: guests[0].ports[1]: "rp1" is already guests[0].ports[0]`},
		{"[rp1, rp2]", "[1]", `x.yaml:14: guests[0].ports[0]: want the ID of a root port, a letter and then letters, digits, '-', '.' and '_', got "1"`},
		{"[10.201.0.8]", "[10.201.0.1]", `x.yaml:15: guests[0].addresses[0]: 10.201.0.1 is a gateway of tenant default: choose another address`},
		{"[10.201.0.8]", "[10.201.255.255]", `x.yaml:15: guests[0].addresses[0]: want an address from 10.201.0.1 to`},
		{"index: 7", "index: 7\n    mac: 52:54:00:00:00:01", `x.yaml:13: guests[0].mac: needs tap, the host's end of the NIC`},
		{"index: 7", "index: 7\n    tap: tap0", `x.yaml:13: guests[0].tap: needs mac, the address of the NIC`},
		{"index: 7", "index: 7\n    tap: tap0\n    mac: 53:54:00:00:00:01", `x.yaml:14: guests[0].mac: want a MAC address, such as 52:54:00:12:34:56, got "53:54:00:00:00:01"`},
		{"index: 7", "index: 7\n    tap: tap0\n    mac: 52:54:00:00:00:01\n    unguarded: true", `x.yaml:15: guests[0].unguarded: want one of the keys tap and unguarded, got both`},
		{"guests:\n", "guests:\n  - {name: node0, tenant: shop, index: 6, qmp: /q, tap: tap0, mac: 52:54:00:00:00:01}\n", `x.yaml:10: guests[0].tap: needs addresses, from which the NIC may send`},
		{"guests:\n", "guests:\n  - {name: a, tenant: shop, index: 6, qmp: /q, tap: t, mac: 52:54:00:00:00:01, addresses: [\"fe80::1\"]}\n  - {name: b, tenant: shop, index: 5, qmp: /q, tap: t, mac: 52:54:00:00:00:02, addresses: [\"fe80::2\"]}\n", `x.yaml:11: guests[1].tap: "t" is already guests[0].tap`},
		{"[10.201.0.8]", "[10.9.0.8]", `x.yaml:15: guests[0].addresses[0]: want an address in a subnet of tenant default, 10.201.0.0/16 or fd00:c9::/64, got "10.9.0.8"`},
	} {
		text := strings.Replace(small, test.old, test.new, 1)
		if text == small {
			t.Fatalf("nothing to replace: %q", test.old)
		}
		_, err := quota.Parse("x.yaml", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), test.want) {
			t.Errorf("%q for %q:\n got %v\nwant %s", test.new, test.old, err, test.want)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q for %q: more than one line: %v", test.new, test.old, err)
		}
	}
}

func TestParseTellsEveryMistake(t *testing.T) {
	text := strings.NewReplacer("bridge: br0", "brige: br0", "index: 7", "index: x", "name: shop", "name: x-").Replace(small)
	_, err := quota.Parse("x.yaml", []byte(text))
	want := `x.yaml:3: tenants[0].brige: unknown key: did you mean bridge?
x.yaml:7: tenants[1].name: want 1 to 63 of a-z, 0-9 and, inside, '-', got "x-"
x.yaml:12: guests[0].index: want a whole number from 1 to 1295, got "x"`
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
}

func TestMarshal(t *testing.T) {
	for _, text := range []string{small, full} {
		p := mustParse(t, text)
		content, err := quota.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(p, mustParse(t, string(content)), addrs); diff != "" {
			t.Errorf("(-before +after):\n%s\n%s", diff, content)
		}
	}
	p := mustParse(t, small)
	p.Guests[0].Index = 0
	if content, err := quota.Marshal(p); err == nil || !strings.Contains(err.Error(), "guests[0].index: want a whole number") {
		t.Errorf("got %s, %v, want a refusal", content, err)
	}
}

// The installed file is valid, and so are the examples in it.
func TestDeployedFile(t *testing.T) {
	content, err := os.ReadFile("../../../deploy/hostd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	installed := mustParse(t, string(content))
	if len(installed.Tenants) != 1 || len(installed.Guests) != 0 || installed.Tenants[0].Limits != quota.DefaultLimits ||
		installed.Pool != quota.DefaultPool || !installed.Trunk || installed.Tenants[0].Cooldown != quota.DefaultCooldown {
		t.Errorf("the file differs from the defaults: %+v", installed)
	}
	p := mustParse(t, regexp.MustCompile(`(?m)^( *)#([^ ])`).ReplaceAllString(string(content), "$1$2"))
	if len(p.Tenants) != 2 || len(p.Guests) != 2 || len(p.Tenants[0].Bridges) != 1 || p.Guests[1].Libvirt == nil {
		t.Errorf("the examples are not all there: %+v", p)
	}
	for _, tenant := range p.Tenants {
		if _, err := ipam.New(tenant.Ranges, tenant.Cooldown, tenant.Subnets()...); err != nil {
			t.Error(err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{small, full, "", "tenants: [{name: a, bridge: b}]", "tenants: &a [*a]", "guests: {", "- -"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		p, err := quota.Parse("fuzz.yaml", content)
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				if !strings.HasPrefix(line, "fuzz.yaml:") {
					t.Fatalf("error %q does not name the file", line)
				}
			}
			return
		}
		for _, tenant := range p.Tenants {
			if _, err := ipam.New(tenant.Ranges, tenant.Cooldown, tenant.Subnets()...); err != nil {
				t.Fatalf("the tenant's addresses: %v", err)
			}
		}
		again, err := quota.Marshal(p)
		if err != nil {
			t.Fatalf("marshal: %v", err)
		}
		second, err := quota.Parse("again.yaml", again)
		if diff := cmp.Diff(p, second, addrs); err != nil || diff != "" {
			t.Fatalf("%v (-before +after):\n%s\n%s", err, diff, again)
		}
	})
}
