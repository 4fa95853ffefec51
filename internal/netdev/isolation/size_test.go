package isolation

import (
	"net/netip"
	"testing"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"

	"unnest.io/unnest/internal/hostapi/iprange"
	"unnest.io/unnest/internal/hostapi/policylimit"
	"unnest.io/unnest/internal/netdev/nft"
)

// transaction returns the bytes of a transaction that adds a port.
func transaction(t *testing.T, p Port) (bytes int) {
	t.Helper()
	c, err := nftables.New(nftables.WithTestDial(func(messages []netlink.Message) ([]netlink.Message, error) {
		for _, m := range messages {
			bytes += 16 + len(m.Data)
		}
		return nil, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	table := &Table{peers: map[string]*nftables.Set{}, uses: map[key][]string{}, users: map[string]int{}, partial: map[string]bool{}, lastID: firstID}
	if _, err := table.addPeers(c, map[key]Port{p.key(): p}, []key{p.key()}); err != nil {
		t.Fatal(err)
	}
	if err := table.addPort(c, p, true); err != nil {
		t.Fatal(err)
	}
	_ = c.Flush() // no answer comes
	return bytes
}

// The limits of policies count more bytes for rules and ranges than a transaction has.
func TestSizeOfRules(t *testing.T) {
	port := func(allow ...Rule) Port { // its chains have the longest names
		return Port{Interface: "u1234n5678-9012", Address: v6(1), Ingress: &Direction{Allow: allow}}
	}
	var many6 []iprange.Range
	for i := range 1000 {
		a := v6(0).As16()
		a[8], a[9] = byte(i>>8), byte(i)
		many6 = append(many6, iprange.Range{First: netip.AddrFrom16(a), Last: netip.AddrFrom16(a)})
	}
	services := make([]Service, 50)
	for i := range services {
		services[i] = Service{6, uint16(2 * i), uint16(2*i + 1)}
	}
	if policylimit.TransactionShare > nft.SendBuffer/4 {
		t.Errorf("policies take %d bytes of a transaction with %d", policylimit.TransactionShare, nft.SendBuffer)
	}
	// The kernel doubles the buffer.
	if base := transaction(t, Port{Interface: "u1234n5678-9012", Link: link}); 1000*base > 2*nft.SendBuffer-policylimit.TransactionShare {
		t.Errorf("a port takes %d bytes: a thousand do not fit into a transaction", base)
	}
	none := transaction(t, port())
	for name, tt := range map[string]struct {
		rule     Rule
		families int
	}{
		"everyone":             {Rule{everyone, nil}, 2},
		"everyone, services":   {Rule{everyone, services}, 2},
		"one family, services": {Rule{many6[:1], services}, 1},
		"few":                  {Rule{many6[:few], nil}, 1},
		"few, services":        {Rule{many6[:few/2], services[:2]}, 1},
		"ranges":               {Rule{many6, services[:1]}, 1},
		"both":                 {Rule{append(pod(1)[:1:1], many6...), services}, 2},
	} {
		rules, _ := tt.rule.Parts(len(tt.rule.Peers) / tt.families)
		bound := policylimit.RuleMessage*tt.families*rules + policylimit.RangeMessage*len(tt.rule.Peers)
		if got := transaction(t, port(tt.rule)) - none; got > bound || got < bound/3 {
			t.Errorf("%s: %d bytes, want less than %d and not much less", name, got, bound)
		}
	}
}
