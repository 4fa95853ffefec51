package hostd

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"unnest/internal/shape"
)

// note is what is written on the host's end of an attachment beside its key, so
// that another daemon can go on from there.
type note struct {
	network   string
	bridge    string
	addresses []netip.Prefix
	dhcp      bool
	mtu       int // that the pod was told
	limits    shape.Limits
}

// String gives the note without a blank: "n=pods,b=br0,a=10.201.0.9/16,m=1500".
// What is not set is left out.
func (n note) String() string {
	parts := []string{"n=" + n.network, "b=" + n.bridge, "m=" + strconv.Itoa(n.mtu)}
	for _, a := range n.addresses {
		parts = append(parts, "a="+a.String())
	}
	if n.dhcp {
		parts = append(parts, "d=1")
	}
	if l := n.limits; l != (shape.Limits{}) {
		parts = append(parts, fmt.Sprintf("l=%d:%d:%d:%d", l.IngressRate, l.IngressBurst, l.EgressRate, l.EgressBurst))
	}
	return strings.Join(parts, ",")
}

// parseNote reads what String has written. What it does not know is left for
// the version of the daemon that has written it.
func parseNote(s string) (n note, err error) {
	for part := range strings.SplitSeq(s, ",") {
		name, value, _ := strings.Cut(part, "=")
		switch name {
		case "n":
			n.network = value
		case "b":
			n.bridge = value
		case "m":
			n.mtu, err = strconv.Atoi(value)
		case "a":
			var a netip.Prefix
			a, err = netip.ParsePrefix(value)
			n.addresses = append(n.addresses, a)
		case "d":
			n.dhcp = true
		case "l":
			l := &n.limits
			_, err = fmt.Sscanf(value, "%d:%d:%d:%d", &l.IngressRate, &l.IngressBurst, &l.EgressRate, &l.EgressBurst)
		}
		if err != nil {
			return note{}, fmt.Errorf("read note %q: %s: %w", s, part, err)
		}
	}
	return n, nil
}

// addrs are the note's addresses without their prefixes' lengths.
func (n note) addrs() []netip.Addr {
	all := make([]netip.Addr, len(n.addresses))
	for i, a := range n.addresses {
		all[i] = a.Addr()
	}
	return all
}
