package antispoof

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/nft"
)

// targetChain names a port's chain in the map of targets. The interface's name is in
// hexadecimal digits, because nft does not read every character.
func targetChain(iface string) *nftables.Chain {
	return &nftables.Chain{Table: bridgeTable, Name: fmt.Sprintf("target-%x", iface)}
}

// floodChain names a port's chain in the map of floods.
func floodChain(iface string) *nftables.Chain {
	return &nftables.Chain{Table: bridgeTable, Name: fmt.Sprintf("flood-%x", iface)}
}

// addChains adds or replaces the chains of a port.
func addChains(c *nftables.Conn, p Port) {
	addTargets(c, p)
	chain := c.AddChain(floodChain(p.Interface))
	c.FlushChain(chain)
	if rate := cmp.Or(p.Multicasts, defaultMulticasts); rate > 0 {
		c.AddRule(&nftables.Rule{Table: bridgeTable, Chain: chain, Exprs: nft.Rule(nft.Over(uint64(rate), uint32(rate)), drop("flood"))})
	}
}

func addTargets(c *nftables.Conn, p Port) {
	chain := c.AddChain(targetChain(p.Interface))
	c.FlushChain(chain)
	for _, e := range p.elements() {
		if a := e.key[unix.IFNAMSIZ:]; e.set == v6 && a != unspecified {
			c.AddRule(&nftables.Rule{Table: bridgeTable, Chain: chain, Exprs: nft.Rule(nft.Is(ndTarget, []byte(a)...), accept)})
		}
	}
}

var unspecified = string(netip.IPv6Unspecified().AsSlice())

func deleteChains(c *nftables.Conn, iface string) {
	for _, chain := range []*nftables.Chain{targetChain(iface), floodChain(iface)} {
		c.FlushChain(chain)
		c.DelChain(chain)
	}
}
