package cluster

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/hostd/ipam"
	"unnest.io/unnest/internal/testbed/lab"
)

// The families of addresses that pods and Services can have.
const (
	IPv4      = "ipv4"
	IPv6      = "ipv6"
	DualStack = IPv4 + "," + IPv6
)

// family are the addresses of a cluster in one family.
type family struct {
	name     string       // as the API writes it
	host     netip.Prefix // of the host in the network of the nodes, and of pods with a NIC of their own
	services netip.Prefix
	bridges  netip.Addr // the first address of pods behind bridges; each node has 256
}

var (
	family4 = family{
		name: "IPv4", host: netip.PrefixFrom(netip.MustParseAddr(lab.TenantGateway), lab.TenantPrefix),
		services: netip.MustParsePrefix("10.96.0.0/16"), bridges: netip.MustParseAddr("10.244.0.0"),
	}
	family6 = family{
		name: "IPv6", host: netip.PrefixFrom(netip.MustParseAddr(lab.TenantGateway6), lab.TenantPrefix6),
		services: netip.MustParsePrefix("fd00:10:96::/112"), bridges: netip.MustParseAddr("fd00:10:244::"),
	}
)

// familiesOf parses the value of Options.IPFamilies. The first family is that of the API server.
func familiesOf(names string) []family {
	switch names {
	case IPv6:
		return []family{family6}
	case DualStack:
		return []family{family4, family6}
	}
	return []family{family4}
}

func (c *Cluster) families() []family { return familiesOf(c.options.IPFamilies) }

// plus adds n to the byte of the address that is place bytes before its last one.
func plus(a netip.Addr, place int, n byte) netip.Addr {
	b := a.AsSlice()
	b[len(b)-1-place] += n
	sum, _ := netip.AddrFromSlice(b)
	return sum
}

// api and dns are the addresses of two Services: of the API server and of the DNS server.
func (f family) api() netip.Addr { return plus(f.services.Addr(), 0, 1) }
func (f family) dns() netip.Addr { return plus(f.services.Addr(), 0, 10) }

// server is the address of the API server for nodes.
func (f family) server() string { return net.JoinHostPort(f.host.Addr().String(), "6443") }

// node is the address of a node. Guests of a lab have the same last byte in both families.
func (f family) node(address netip.Addr) netip.Addr {
	return plus(f.host.Masked().Addr(), 0, lastByte(address))
}

// bridgeSubnet is the subnet of the pods behind the bridge of a node.
func (f family) bridgeSubnet(node netip.Addr) netip.Prefix {
	return netip.PrefixFrom(plus(f.bridges, 1, lastByte(node)), f.bridges.BitLen()-8)
}

// bridged has the pods behind the bridges of all nodes, whose indices fit into a byte.
func (f family) bridged() netip.Prefix { return netip.PrefixFrom(f.bridges, f.bridges.BitLen()-16) }

func lastByte(a netip.Addr) byte { return a.AsSlice()[a.BitLen()/8-1] }

// all returns what get returns for each family, as text.
func all[T fmt.Stringer](families []family, get func(family) T) (texts []string) {
	for _, f := range families {
		texts = append(texts, get(f).String())
	}
	return texts
}

func serviceRanges(families []family) []string {
	return all(families, func(f family) netip.Prefix { return f.services })
}

// addFamilies gives the network of the lab IPv6 addresses if the cluster has some, and the host
// daemon the ranges of pods. IPv4 stays for what is not Kubernetes', such as logins to nodes.
func (c *Cluster) addFamilies() error {
	if err := os.WriteFile(c.path(familiesFile), []byte(c.options.IPFamilies), 0o600); err != nil {
		return err
	}
	families := c.families()
	if !slices.Contains(families, family6) {
		return nil
	}
	if err := c.Lab.AddIPv6(); err != nil {
		return err
	}
	tenant := &c.fleet.Policy.Tenants[0]
	if len(families) == 1 {
		tenant.Ranges, tenant.ClaimRanges = nil, nil
	}
	network := family6.host.Masked()
	tenant.ClaimRanges = append(tenant.ClaimRanges, network)
	tenant.Ranges = append(tenant.Ranges, ipam.Range{
		Subnet: network, First: plus(network.Addr(), 2, 1), Last: plus(network.Addr(), 2, 0xff), Gateway: family6.host.Addr(),
	})
	return nil
}

// familiesFile tells later commands the families of the cluster.
const familiesFile = "families"

// readFamilies returns the families of the cluster that is up, as Options.IPFamilies.
func readFamilies(l *lab.Lab) (string, error) {
	content, err := os.ReadFile((&Cluster{Lab: l}).path(familiesFile))
	return string(content), err
}

// IPFamilies are the families of the cluster, as in Options.
func (c *Cluster) IPFamilies() string { return c.options.IPFamilies }

// routeTo makes the host route packets to the pods behind the bridge of a node.
func (c *Cluster) routeTo(node netip.Addr) error {
	return lab.Do(c.Lab.HostNS(), func() error {
		for _, f := range c.families() {
			subnet := f.bridgeSubnet(node)
			to := net.IPNet{IP: subnet.Addr().AsSlice(), Mask: net.CIDRMask(subnet.Bits(), subnet.Addr().BitLen())}
			if err := netlink.RouteReplace(&netlink.Route{Dst: &to, Gw: f.node(node).AsSlice()}); err != nil {
				return err
			}
		}
		return nil
	})
}

// routes are the ways to the bridges' subnets of the other nodes, as lines of subnet and
// gateway. The nodes of a new lab have addresses in sequence.
func routes(families []family, node netip.Addr, nodes int) string {
	var lines strings.Builder
	other := netip.MustParseAddr(lab.TenantGateway).Next()
	for range nodes {
		for _, f := range families {
			if other != node {
				fmt.Fprintln(&lines, f.bridgeSubnet(other), f.node(other))
			}
		}
		other = other.Next()
	}
	return lines.String()
}

// moreAddresses are those that a node sends from besides its IPv4 address: its IPv6 address, and
// those of pods behind its bridge.
func moreAddresses(families []family, node netip.Addr) (more []netip.Addr) {
	for _, f := range families {
		if f == family6 {
			more = append(more, f.node(node))
		}
		subnet := f.bridgeSubnet(node)
		for a := subnet.Addr().Next(); subnet.Contains(a); a = a.Next() {
			more = append(more, a)
		}
	}
	return more
}

func nodeVariables(families []family, node netip.Addr, proxyMode string) string {
	addresses := all(families, func(f family) netip.Addr { return f.node(node) })
	text := fmt.Sprintf("address=%s proxy_mode=%s", strings.Join(addresses, ","), proxyMode)
	if slices.Contains(families, family6) {
		text += fmt.Sprintf(" address6=%s gateway6=%s", netip.PrefixFrom(family6.node(node), family6.host.Bits()), family6.host.Addr())
	}
	return text + "\n"
}
