package loopback

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// wireGuardDevice is the name of the device of the node, and of its packet filter.
const wireGuardDevice = "unnest-wg"

const (
	// wireGuardHeader is the most that WireGuard adds to a packet, in bytes: headers of IPv6, UDP and WireGuard, and a tag. It also pads
	// packets to a multiple of wireGuardBlock.
	wireGuardHeader, wireGuardBlock = 40 + 8 + 16 + 16, 16
	// wireGuardMTU is larger than the MTU of the nodes' links. The kernel fragments the packets that WireGuard sends, but not those of a tunnel
	// over IPv6 inside it. WireGuard drops packets of more than 25 fragments (MAX_SKB_FRAGS+8); links of 1280 bytes need 24.
	wireGuardMTU = (24*(1280-40-8) - wireGuardHeader + 40) / wireGuardBlock * wireGuardBlock
)

// EnsureWireGuard makes the WireGuard device of a node in the network namespace of the calling thread, or what of it is missing, and returns
// its public key in base64. It generates a private key, which it stores in the kernel only, unless the device has one. The device
// passes tunnels only. On an error it removes a device that it made.
func EnsureWireGuard(node string) (key string, err error) {
	_, err = netlinksafe.LinkByName(wireGuardDevice)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = wireGuardDevice, wireGuardMTU
		err = netlink.LinkAdd(&netlink.Wireguard{LinkAttrs: attrs})
		if errors.Is(err, unix.EOPNOTSUPP) {
			return "", errors.New("the node's kernel has no WireGuard: give the node a kernel with the module wireguard (Linux 5.6 or newer), or set splitPods.encryption=none")
		}
		made := err == nil
		defer func() {
			if made && err != nil {
				err = errors.Join(err, RemoveWireGuard())
			}
		}()
	}
	if err == nil {
		err = onlyTunnels()
	}
	if err != nil {
		return "", fmt.Errorf("make device %s: %w", wireGuardDevice, err)
	}
	err = withWireGuard(func(c *wgctrl.Client, d *wgtypes.Device) error {
		port, private := WireGuardPort, d.PrivateKey
		if private == (wgtypes.Key{}) {
			if private, err = wgtypes.GeneratePrivateKey(); err != nil {
				return err
			}
		}
		key = private.PublicKey().String()
		if d.PrivateKey == private && d.ListenPort == port {
			return nil
		}
		return c.ConfigureDevice(wireGuardDevice, wgtypes.Config{PrivateKey: &private, ListenPort: &port})
	})
	if err != nil {
		return "", err
	}
	return key, startWireGuard(WireGuardAddress(node))
}

// startWireGuard gives the device its address. It is deprecated, so that the kernel never chooses it as a source.
func startWireGuard(address netip.Addr) error {
	link, err := netlinksafe.LinkByName(wireGuardDevice)
	if err != nil {
		return err
	}
	a := &netlink.Addr{IPNet: &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(wireGuardNetwork.Bits(), 128)}, Flags: unix.IFA_F_NODAD, ValidLft: math.MaxUint32}
	if err := netlink.AddrAdd(link, a); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("give %s the address %s: %w; it needs IPv6 in the kernel, without the sysctl net.ipv6.conf.default.disable_ipv6=1", wireGuardDevice, address, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("set %s up, with UDP port %d: %w", wireGuardDevice, WireGuardPort, err)
	}
	return nil
}

// onlyTunnels sets the packet filter of the device, unless it is there: the device passes tunnels of other nodes only, and forwards
// nothing. It replaces no filter, because the kernel then drops the packets that wait in the queues of the node's user space.
func onlyTunnels() error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("open nftables: %w", err)
	}
	filter := &nftables.Table{Name: wireGuardDevice, Family: nftables.TableFamilyINet}
	if slices.IndexFunc([]string{"input", "forward"}, func(chain string) bool {
		rules, err := conn.GetRules(filter, &nftables.Chain{Name: chain, Table: filter})
		return err != nil || len(rules) != 2
	}) < 0 {
		return nil
	}
	conn.AddTable(filter)
	conn.DelTable(filter) // at once with the next
	conn.AddTable(filter)
	chain := func(name string, hook *nftables.ChainHook, rules ...[]expr.Any) {
		c := conn.AddChain(&nftables.Chain{Name: name, Table: filter, Type: nftables.ChainTypeFilter, Hooknum: hook, Priority: nftables.ChainPriorityFilter})
		for _, r := range rules {
			conn.AddRule(&nftables.Rule{Table: filter, Chain: c, Exprs: r})
		}
	}
	from, to := onWireGuard(expr.MetaKeyIIFNAME, expr.CmpOpEq), onWireGuard(expr.MetaKeyOIFNAME, expr.CmpOpEq)
	drop := []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}}
	chain("input", nftables.ChainHookInput,
		slices.Concat(from, tunnelPackets(), []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}}), slices.Concat(from, drop))
	chain("forward", nftables.ChainHookForward, slices.Concat(from, drop), slices.Concat(to, drop))
	return conn.Flush()
}

// onWireGuard matches packets whose link is the device, or is not.
func onWireGuard(link expr.MetaKey, op expr.CmpOp) []expr.Any {
	name := make([]byte, unix.IFNAMSIZ)
	copy(name, wireGuardDevice)
	return []expr.Any{&expr.Meta{Key: link, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: name}}
}

// SetWireGuardPeers makes the other nodes the only peers of the device of the node own.
func SetWireGuardPeers(own string, nodes []Node) error {
	return withWireGuard(func(c *wgctrl.Client, d *wgtypes.Device) error {
		return c.ConfigureDevice(wireGuardDevice, wgtypes.Config{Peers: peersOf(own, nodes, d.Peers)})
	})
}

// RemoveWireGuard removes the device, its key, and its packet filter. It does nothing if they are not there. Tunnels inside it pass no packets then.
func RemoveWireGuard() error {
	link, err := netlinksafe.LinkByName(wireGuardDevice)
	if err == nil {
		err = netlink.LinkDel(link)
	} else if errors.As(err, new(netlink.LinkNotFoundError)) {
		err = nil
	}
	var conn *nftables.Conn
	if err == nil {
		conn, err = nftables.New()
	}
	if err == nil {
		if filter, missing := conn.ListTableOfFamily(wireGuardDevice, nftables.TableFamilyINet); missing == nil && filter != nil {
			conn.DelTable(filter)
			err = conn.Flush()
		}
	}
	if err != nil {
		return fmt.Errorf("remove device %s: %w", wireGuardDevice, err)
	}
	return nil
}

// withWireGuard calls f with the device's present configuration.
func withWireGuard(f func(*wgctrl.Client, *wgtypes.Device) error) error {
	c, err := wgctrl.New()
	if err == nil {
		defer c.Close()
		var d *wgtypes.Device
		if d, err = c.Device(wireGuardDevice); err == nil {
			err = f(c, d)
		}
	}
	if errors.Is(err, os.ErrNotExist) {
		err = errors.New("it is not there; the node's condition UnnestNetworkReady, or the log of Unnest's DaemonSet, says why")
	}
	if err != nil {
		return fmt.Errorf("WireGuard device %s: %w", wireGuardDevice, err)
	}
	return nil
}

// encrypted reports whether the tunnel is inside WireGuard.
func (t Tunnel) encrypted() bool { return wireGuardNetwork.Contains(t.local()) }

// underlay returns the peers' addresses on the network of the nodes: their own, or their endpoints if the tunnel is inside WireGuard.
func (t Tunnel) underlay() (to []netip.Addr, err error) {
	if !t.encrypted() {
		for _, node := range t.peers {
			to = append(to, node)
		}
		return to, nil
	}
	err = withWireGuard(func(_ *wgctrl.Client, d *wgtypes.Device) error {
		for f, node := range t.peers {
			i := slices.IndexFunc(d.Peers, func(p wgtypes.Peer) bool {
				return slices.ContainsFunc(p.AllowedIPs, func(n net.IPNet) bool { return n.IP.Equal(node.AsSlice()) })
			})
			if i < 0 {
				return fmt.Errorf("the node of fraction %d, %s, is not its peer yet: it waits for that node's annotation unnest.io/wireguard-key, which Unnest's DaemonSet sets", f, node)
			}
			if d.Peers[i].Endpoint == nil {
				return fmt.Errorf("the node of fraction %d, %s, has no internal address of a family that this node has, or two nodes have its key", f, node)
			}
			to = append(to, d.Peers[i].Endpoint.AddrPort().Addr().Unmap())
		}
		return nil
	})
	return to, err
}
