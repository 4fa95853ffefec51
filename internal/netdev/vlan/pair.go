package vlan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/containernetworking/plugins/pkg/netlinksafe"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// MaxPrefix is the longest prefix of port names in bytes.
const MaxPrefix = 15 - len("4094") - len(innerSuffix)

const innerSuffix = "i"

// PortName returns the name of a VLAN's port. A filter can use it before the port
// exists.
func PortName(prefix string, vlan int) string { return prefix + strconv.Itoa(vlan) }

func innerName(port string) string { return port + innerSuffix }

func checkPrefix(p string) error {
	if p == "" || len(p) > MaxPrefix || strings.ContainsAny(p[len(p)-1:], "0123456789") {
		return fmt.Errorf("prefix %q of port names: want 1 to %d bytes, the last of them not a digit", p, MaxPrefix)
	}
	return nil
}

// parseInner returns the VLAN in the name of an inner end, or false for another name.
func parseInner(name, prefix string) (int, bool) {
	rest, ours := strings.CutPrefix(name, prefix)
	vlan, err := strconv.Atoi(strings.TrimSuffix(rest, innerSuffix))
	return vlan, ours && err == nil && vlan > 0 && vlan <= MaxVLAN && innerName(PortName(prefix, vlan)) == name
}

// innerAlias names the TAP of an inner end by its index, which unlike its name is
// never reused. It begins like all aliases of the daemon, but names no attachment.
func innerAlias(tap int) string { return "unnest:trunk=" + strconv.Itoa(tap) }

// pair holds the two ends of a port.
type pair struct {
	vlan         int
	outer, inner netlink.Link
}

// pairs lists the veths with the names of ports, sorted by VLAN.
func (t *Trunk) pairs() ([]pair, error) {
	links, err := netlinksafe.LinkList()
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	byName := make(map[string]netlink.Link, len(links))
	for _, l := range links {
		byName[l.Attrs().Name] = l
	}
	var found []pair
	for _, inner := range links {
		vlan, ours := parseInner(inner.Attrs().Name, t.prefix)
		outer := byName[PortName(t.prefix, vlan)]
		if ours && outer != nil && peers(outer.Attrs(), inner.Attrs()) {
			found = append(found, pair{vlan, outer, inner})
		}
	}
	slices.SortFunc(found, func(a, b pair) int { return cmp.Compare(a.vlan, b.vlan) })
	return found, nil
}

func peers(a, b *netlink.LinkAttrs) bool { return a.ParentIndex == b.Index && b.ParentIndex == a.Index }

// missing reports whether an error means that a link does not exist.
func missing(err error) bool {
	return errors.As(err, new(netlink.LinkNotFoundError)) || errors.Is(err, unix.ENODEV)
}
