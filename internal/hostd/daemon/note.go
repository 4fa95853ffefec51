package daemon

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"unnest/internal/hostapi/segment"
	"unnest/internal/netdev/ratelimit"
)

// note is what is written on the host's end of an attachment beside its key, so
// that another daemon can go on from there.
type note struct {
	network   string
	bridge    string
	addresses []netip.Prefix
	dhcp      bool
	mtu       int // that the pod was told
	limits    ratelimit.Limits

	// Of an endpoint of a segment, which has nothing of the above but the network.
	pod      string // whose segment it is
	fraction segment.Fraction
	ownMAC   bool // the NIC has the slot's MAC, not the fraction's
}

// String gives the note without a blank: "n=pods,b=br0,a=10.201.0.9/16,m=1500".
// What is not set is left out. An endpoint has "s=web,f=2,n=pods".
func (n note) String() string {
	if n.pod != "" {
		return n.endpoint()
	}
	parts := []string{"n=" + n.network, "b=" + n.bridge, "m=" + strconv.Itoa(n.mtu)}
	for _, a := range n.addresses {
		parts = append(parts, "a="+a.String())
	}
	if n.dhcp {
		parts = append(parts, "d=1")
	}
	if l := n.limits; l != (ratelimit.Limits{}) {
		parts = append(parts, fmt.Sprintf("l=%d:%d:%d:%d", l.IngressRate, l.IngressBurst, l.EgressRate, l.EgressBurst))
	}
	return strings.Join(parts, ",")
}

func (n note) endpoint() string {
	text := fmt.Sprintf("s=%s,f=%d,n=%s", n.pod, n.fraction, n.network)
	if n.ownMAC {
		text += ",o=1"
	}
	return text
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
		case "s":
			n.pod = value
		case "f":
			var f uint64
			f, err = strconv.ParseUint(value, 10, 8)
			n.fraction = segment.Fraction(f)
		case "o":
			n.ownMAC = true
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
