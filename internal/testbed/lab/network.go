package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostd/statefile"
	"unnest.io/unnest/internal/netdev/bridge"
	"unnest.io/unnest/internal/testbed/place"
)

// hostNS is the namespace of the bridges, the guests' TAPs and the host daemon.
// clientNS is that of the clients. Like the ID of the lab, the names differ between
// state directories.
func (l *Lab) hostNS() string   { return nsPrefix + l.Name + l.suffix() }
func (l *Lab) clientNS() string { return nsPrefix + l.Name + "-client" + l.suffix() }

const nsPrefix = "unnest-"

// HostNS is the path of the namespace that stands for the host.
func (l *Lab) HostNS() string { return nsPath(l.hostNS()) }

// ClientNS is the path of the clients' namespace. Its network is behind the host's NAT,
// like that of a client on the physical host in Bacou et al. 2019, §5.1.
func (l *Lab) ClientNS() string { return nsPath(l.clientNS()) }

// The further addresses of clients: see AddClients.
const (
	clientsNetwork = "10.202.1.0/24"
	clientsPattern = "10.202.1.%d"
)

// nsDir is the directory of the names of network namespaces, also for iproute2.
const nsDir = "/run/netns"

func nsPath(name string) string { return filepath.Join(nsDir, name) }

func (l *Lab) buildNetwork() error {
	if err := Do(l.HostNS(), l.buildHost); err != nil {
		return err
	}
	return Do(l.ClientNS(), buildClient)
}

// newNS makes a named network namespace, as `ip netns add` does. The error wraps
// fs.ErrExist if the name is taken.
func newNS(name string) error {
	if err := shareNSDir(); err != nil {
		return fmt.Errorf("create network namespace %s: %w", name, err)
	}
	return place.InNetNS("/proc/thread-self/ns/net", func() error { // NewNamed moves the thread
		ns, err := netns.NewNamed(name)
		if err != nil {
			if !errors.Is(err, fs.ErrExist) {
				_ = os.Remove(nsPath(name)) // NewNamed leaves the name. A namespace is busy.
			}
			return fmt.Errorf("create network namespace %s: %w", name, err)
		}
		return ns.Close()
	})
}

// shareNSDir makes the directory of the names a shared mount point, under the lock that
// `ip netns add` takes. That command would otherwise do so later, over existing names,
// which could then not be removed.
func shareNSDir() error {
	if err := os.MkdirAll(nsDir, 0o755); err != nil {
		return err
	}
	share := func() error { return unix.Mount("", nsDir, "none", unix.MS_SHARED|unix.MS_REC, "") }
	err := statefile.WhileLocked(nsDir, func() (err error) {
		if err = share(); errors.Is(err, unix.EINVAL) {
			if err = unix.Mount(nsDir, nsDir, "none", unix.MS_BIND|unix.MS_REC, ""); err == nil {
				err = share()
			}
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("share mounts below %s: %w", nsDir, err)
	}
	return nil
}

func deleteNS(name string) error {
	err := netns.DeleteNamed(name)
	if errors.Is(err, unix.EINVAL) { // a name without a namespace: newNS was killed
		err = os.Remove(nsPath(name))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete network namespace %s: %w", name, err)
	}
	return nil
}

// Do runs f in the network namespace at path. Goroutines that f starts are not in it.
func Do(path string, f func() error) error { return place.InNetNS(path, f) }

// Dial connects to a literal address from the host's namespace of the lab.
func (l *Lab) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = Do(l.HostNS(), func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// buildHost makes the host's side in the current namespace: two separate bridges, the
// link to the clients, routing and NAT.
func (l *Lab) buildHost() error {
	if err := linkUp("lo"); err != nil {
		return err
	}
	if err := ensureBridges(gateway(TenantGateway, TenantPrefix)); err != nil {
		return err
	}
	if err := l.addClientLink(); err != nil {
		return err
	}
	return masqueradeClients()
}

// ensureBridges makes the bridges, or gives that of the tenant other addresses.
func ensureBridges(tenant []netip.Prefix) error {
	filter, err := bridge.Open(bridge.Lab)
	if err != nil {
		return err
	}
	defer filter.Close()
	return filter.Ensure([]bridge.Network{
		{Bridge: ManagementBridge, MTU: MTU, Gateways: gateway(ManagementGateway, ManagementPrefix)},
		{Bridge: TenantBridge, MTU: MTU, Gateways: tenant},
	})
}

// AddIPv6 gives the tenant's bridge an IPv6 address, too.
func (l *Lab) AddIPv6() error {
	both := append(gateway(TenantGateway, TenantPrefix), gateway(TenantGateway6, TenantPrefix6)...)
	if err := Do(l.HostNS(), func() error { return ensureBridges(both) }); err != nil {
		return fmt.Errorf("add IPv6 to lab %s: %w", l.Name, err)
	}
	return nil
}

func gateway(address string, bits int) []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(netip.MustParseAddr(address), bits)}
}

func addAddress(name, address string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find interface %s: %w", name, err)
	}
	addr, err := netlink.ParseAddr(address)
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("add address %s to %s: %w", address, name, err)
	}
	return linkUp(name)
}

func linkUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

func (l *Lab) addClientLink() error {
	client, err := netns.GetFromPath(l.ClientNS())
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", l.ClientNS(), err)
	}
	defer client.Close()
	veth := &netlink.Veth{
		LinkAttrs:     netlink.LinkAttrs{Name: "client", MTU: MTU},
		PeerName:      "eth0",
		PeerNamespace: netlink.NsFd(client),
	}
	if err := netlink.LinkAdd(veth); err != nil {
		return fmt.Errorf("add veth to the clients: %w", err)
	}
	return addAddress("client", clientGateway+"/30")
}

func buildClient() error {
	if err := linkUp("lo"); err != nil {
		return err
	}
	if err := addAddress("eth0", ClientAddress+"/30"); err != nil {
		return err
	}
	if err := netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(clientGateway)}); err != nil {
		return fmt.Errorf("add the clients' default route: %w", err)
	}
	return nil
}

// MaxClients is the largest number of addresses that AddClients makes.
const MaxClients = 100

// AddClients gives the clients n addresses in addition to their first one, and returns them. What
// they send is routed to the guests and not hidden behind the host's address: a thousand
// connections a second would use up its ports. Closed connections are tracked for a second and
// not for two minutes.
func (l *Lab) AddClients(n int) (addresses []string, err error) {
	for i := range min(n, MaxClients) {
		addresses = append(addresses, fmt.Sprintf(clientsPattern, i+1))
	}
	err = Do(l.ClientNS(), func() error {
		for _, address := range addresses {
			if err := addAddress("eth0", address+"/32"); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return addresses, Do(l.HostNS(), func() error {
		_, all, err := net.ParseCIDR(clientsNetwork)
		if err == nil {
			err = netlink.RouteAdd(&netlink.Route{Dst: all, Gw: net.ParseIP(ClientAddress)})
		}
		if err != nil {
			return fmt.Errorf("add route to the clients: %w", err)
		}
		if err := os.WriteFile(ClosedConnections, []byte("1"), 0); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("shorten the tracking of closed connections: %w", err)
		}
		return nil
	})
}

// ClosedConnections says for how many seconds a network namespace tracks closed connections.
const ClosedConnections = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_time_wait"

// masqueradeClients hides the clients behind the addresses of the bridges, as the
// default network of a VMM does.
func masqueradeClients() error {
	_, clients, err := net.ParseCIDR(clientNetwork)
	if err != nil {
		return err
	}
	c, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "unnest"})
	chain := c.AddChain(&nftables.Chain{
		Name: "postrouting", Table: table, Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
	})
	c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4}, // source address
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: clients.Mask, Xor: binaryutil.NativeEndian.PutUint32(0)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: clients.IP.To4()},
		&expr.Masq{},
	}})
	if err := c.Flush(); err != nil {
		return fmt.Errorf("add NAT for the clients: %w", err)
	}
	return nil
}
