package loopback

import (
	"crypto/sha256"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// WireGuardPort is the UDP port of the WireGuard device of each node.
const WireGuardPort = 26678

// wireGuardNetwork has the addresses of nodes inside WireGuard (RFC 4193).
var wireGuardNetwork = netip.MustParsePrefix("fd75:6e6e:6573::/48")

// WireGuardAddress returns the address of a node inside WireGuard: 80 bits of a hash of its name in the API server. It is unique in a
// cluster, and stays after a restart of the node.
func WireGuardAddress(node string) netip.Addr {
	a, sum := wireGuardNetwork.Addr().As16(), sha256.Sum256([]byte(node))
	copy(a[wireGuardNetwork.Bits()/8:], sum[:])
	return netip.AddrFrom16(a)
}

// Node is what the API server says of a node.
type Node struct {
	Name     string
	Key      string // public, in base64; "": none yet
	Internal []netip.Addr
}

// peersOf returns the changes that make all other nodes with a key the peers of the node own, instead of the peers present. A peer may send with its
// address only. Its endpoint is its first internal address of a family that own has, too. Nodes that claim the same key are one peer,
// whose endpoint stays, so none can send as the other. Peers that need no change are left out.
func peersOf(own string, nodes []Node, present []wgtypes.Peer) (changes []wgtypes.PeerConfig) {
	is4 := map[bool]bool{}
	for _, n := range nodes {
		for _, a := range n.Internal {
			is4[a.Is4()] = is4[a.Is4()] || n.Name == own
		}
	}
	nodes = slices.SortedFunc(slices.Values(nodes), func(a, b Node) int { return strings.Compare(a.Name, b.Name) })
	for _, n := range nodes {
		key, err := wgtypes.ParseKey(n.Key)
		if err != nil || key == (wgtypes.Key{}) || n.Name == own {
			continue
		}
		address := net.IPNet{IP: WireGuardAddress(n.Name).AsSlice(), Mask: net.CIDRMask(128, 128)}
		if i := slices.IndexFunc(changes, func(c wgtypes.PeerConfig) bool { return c.PublicKey == key }); i >= 0 {
			changes[i].AllowedIPs, changes[i].Endpoint = append(changes[i].AllowedIPs, address), nil
			continue
		}
		peer := wgtypes.PeerConfig{PublicKey: key, ReplaceAllowedIPs: true, AllowedIPs: []net.IPNet{address}}
		if i := slices.IndexFunc(n.Internal, func(a netip.Addr) bool { return is4[a.Is4()] }); i >= 0 {
			peer.Endpoint = net.UDPAddrFromAddrPort(netip.AddrPortFrom(n.Internal[i], WireGuardPort))
		}
		changes = append(changes, peer)
	}
	var gone []wgtypes.PeerConfig // first, so that their addresses pass to the next peers of their nodes
	for _, p := range present {
		if !slices.ContainsFunc(changes, func(c wgtypes.PeerConfig) bool { return c.PublicKey == p.PublicKey }) {
			gone = append(gone, wgtypes.PeerConfig{PublicKey: p.PublicKey, Remove: true, UpdateOnly: true})
		}
	}
	changes = slices.DeleteFunc(changes, func(c wgtypes.PeerConfig) bool { // a tunnel of another peer would lose packets meanwhile
		return slices.ContainsFunc(present, func(p wgtypes.Peer) bool {
			return p.PublicKey == c.PublicKey && (c.Endpoint == nil || c.Endpoint.String() == p.Endpoint.String()) &&
				slices.EqualFunc(p.AllowedIPs, c.AllowedIPs, func(a, b net.IPNet) bool { return a.String() == b.String() })
		})
	})
	return append(gone, changes...)
}
