package quota

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/hostd/ipam"
)

func tenantPath(i int) string { return fmt.Sprintf("tenants[%d]", i) }
func guestPath(i int) string  { return fmt.Sprintf("guests[%d]", i) }

// check finds conflicts between keys.
func (f *file) check() {
	if !f.Require("", "tenants") {
		return
	}
	names, bridges := map[string]string{}, map[string]string{}
	for i, t := range f.config.Tenants {
		path := tenantPath(i)
		if !f.Require(path, "name", "bridge") {
			continue
		}
		f.unique(names, path+".name", t.Name)
		f.unique(bridges, path+".bridge", t.Bridge)
		for j, b := range t.Bridges {
			f.unique(bridges, fmt.Sprintf("%s.bridges[%d]", path, j), b)
		}
		f.checkNetwork(path, t)
		f.checkSubnets(i)
		f.checkVolumes(i)
		if l := t.Limits; l.RequestsPerSecond > 0 && l.Burst == 0 {
			f.Fail(path+".limits.burst", "want at least 1 with requestsPerSecond %d, got 0", l.RequestsPerSecond)
		}
	}
	if !f.Failed() {
		f.checkGuests()
	}
}

// unique records that value is at path, and fails if it is elsewhere too.
func (f *file) unique(seen map[string]string, path, value string) {
	if at, twice := seen[value]; twice {
		f.Fail(path, "%q is already %s", value, at)
		return
	}
	seen[value] = path
}

// checkNetwork checks the addresses of one tenant.
func (f *file) checkNetwork(path string, t Tenant) {
	for i, g := range t.Gateways {
		at := fmt.Sprintf("%s.gateways[%d]", path, i)
		if err := checkGateway(g); err != nil {
			f.Fail(at, "%v", err)
		}
		for _, earlier := range t.Gateways[:i] {
			if g.Overlaps(earlier) {
				f.Fail(at, "%s overlaps %s: want one gateway in a subnet", g, earlier)
			}
		}
	}
	for i := range t.Ranges {
		f.checkRange(fmt.Sprintf("%s.ranges[%d]", path, i), t, i)
	}
	f.checkRanges(path+".claimRanges", t.ClaimRanges)
	for i, r := range t.ClaimRanges {
		inside := func(s netip.Prefix) bool { return s.Contains(r.Addr()) && s.Bits() <= r.Bits() }
		if subnets := t.Subnets(); len(subnets) > 0 && !slices.ContainsFunc(subnets, inside) {
			f.Fail(fmt.Sprintf("%s.claimRanges[%d]", path, i), "want a part of a subnet of the tenant, %s, got %q", either(subnets), r)
		}
	}
	f.checkRanges(path+".podRanges", t.PodRanges)
	f.checkRanges(path+".nodeRanges", t.NodeRanges)
	if t.NAT && len(t.Gateways) == 0 {
		f.Fail(path+".nat", "true needs gateways, because the bridge needs addresses to route")
	}
	for i, p := range t.HostPorts {
		if _, _, single := p.Port(); !single && len(t.HostPorts) > 1 {
			f.Fail(fmt.Sprintf("%s.hostPorts[%d]", path, i), "%s stands alone: remove it, or the other ports", p)
		}
	}
	if t.MTU < t.minMTU() {
		f.Fail(path+".mtu", "want at least %d, the minimum of IPv6, got %d", t.minMTU(), t.MTU)
	}
}

func (f *file) checkRanges(path string, all []netip.Prefix) {
	for i, r := range all {
		if r != r.Masked() {
			f.Fail(fmt.Sprintf("%s[%d]", path, i), "want %s, got %q", r.Masked(), r)
		}
	}
}

func checkGateway(g netip.Prefix) error {
	if err := ipam.CheckSubnet(g.Masked()); err != nil {
		return err
	}
	return ipam.CheckHost(g.Addr(), g.Masked())
}

func (f *file) checkRange(path string, t Tenant, i int) {
	if !f.Require(path, "subnet") {
		return
	}
	r := t.Ranges[i]
	if err := r.Validate(); err != nil {
		field, text, _ := strings.Cut(err.Error(), ": ")
		f.Fail(path+"."+field, "%s", text)
		return
	}
	for j, earlier := range t.Ranges[:i] {
		if err := r.Conflict(earlier); err != nil {
			f.Fail(path, "with ranges[%d]: %v", j, err)
		}
	}
	var subnets []netip.Prefix
	for _, g := range t.Gateways {
		subnets = append(subnets, g.Masked())
	}
	if len(subnets) > 0 && !slices.Contains(subnets, r.Subnet) {
		f.Fail(path+".subnet", "want that of a gateway, %s, got %q: use first and last for a smaller range", either(subnets), r.Subnet)
	}
}

// checkSubnets compares the subnets of tenant i with those of earlier tenants.
func (f *file) checkSubnets(i int) {
	for j, earlier := range f.config.Tenants[:i] {
		for _, s := range f.config.Tenants[i].Subnets() {
			for _, o := range earlier.Subnets() {
				if s.Overlaps(o) {
					f.Fail(tenantPath(i), "subnet %s overlaps %s of %s: each tenant needs its own", s, o, tenantPath(j))
				}
			}
		}
	}
}

// checkVolumes compares the directory of tenant i with those of earlier tenants.
func (f *file) checkVolumes(i int) {
	dir := f.config.Tenants[i].Volumes
	for j, earlier := range f.config.Tenants[:i] {
		if dir != "" && earlier.Volumes != "" && (within(dir, earlier.Volumes) || within(earlier.Volumes, dir)) {
			f.Fail(tenantPath(i)+".volumes", "%s and %s of %s overlap: each tenant needs its own", dir, earlier.Volumes, tenantPath(j))
		}
	}
}

// checkExport compares the export of guest i with those of earlier guests, and with the
// tenants' directories.
func (f *file) checkExport(i int) {
	dir := f.config.Guests[i].Export
	if dir == "" {
		return
	}
	overlap := func(other, at string) {
		if other != "" && (within(dir, other) || within(other, dir)) {
			f.Fail(guestPath(i)+".export", "%s and %s of %s overlap: choose a directory that is not used otherwise", dir, other, at)
		}
	}
	for j, t := range f.config.Tenants {
		overlap(t.Volumes, tenantPath(j))
	}
	for j, g := range f.config.Guests[:i] {
		overlap(g.Export, guestPath(j))
	}
}

func within(dir, parent string) bool { return dir == parent || strings.HasPrefix(dir, parent+"/") }

func (f *file) checkGuests() {
	names, indices, addresses, taps := map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{}
	for i, g := range f.config.Guests {
		path := guestPath(i)
		if !f.Require(path, "name", "tenant", "index") {
			continue
		}
		f.unique(names, path+".name", g.Name)
		f.unique(indices, path+".index", strconv.Itoa(g.Index))
		f.checkVMM(path, g)
		f.checkPorts(path, g)
		f.checkOwnNIC(path, g)
		if g.TAP != "" {
			f.unique(taps, path+".tap", g.TAP)
		}
		f.checkExport(i)
		t, err := f.config.Tenant(g.Tenant)
		if err != nil {
			f.Fail(path+".tenant", "%v", err)
			continue
		}
		if g.Libvirt != nil && t.VHostPoll > 0 {
			f.Fail(path+".libvirt", "libvirt cannot make vhost-net poll, as vhostPoll of tenant %s says: remove that key, or move the guest to another tenant", t.Name)
		}
		for j, a := range g.Addresses {
			at := fmt.Sprintf("%s.addresses[%d]", path, j)
			f.unique(addresses, at, a.String())
			if err := t.checkGuestAddress(a); err != nil {
				f.Fail(at, "%v", err)
			}
		}
	}
}

func (f *file) checkVMM(path string, g Guest) {
	switch {
	case g.QMP == "" && g.Libvirt == nil:
		f.Fail(path, "want one of the keys qmp and libvirt")
	case g.QMP != "" && g.Libvirt != nil:
		f.Fail(path+".libvirt", "want one of the keys qmp and libvirt, got both")
	case g.Libvirt != nil:
		f.Require(path+".libvirt", "domain")
	}
}

// checkOwnNIC checks that the guest's own NIC can be guarded if it is given.
func (f *file) checkOwnNIC(path string, g Guest) {
	switch {
	case g.TAP == "" && g.MAC != "":
		f.Fail(path+".mac", "needs tap, the host's end of the NIC")
	case g.TAP != "" && g.Unguarded:
		f.Fail(path+".unguarded", "want one of the keys tap and unguarded, got both")
	case g.TAP != "" && g.MAC == "":
		f.Fail(path+".tap", "needs mac, the address of the NIC")
	case g.TAP != "" && len(g.Addresses) == 0:
		f.Fail(path+".tap", "needs addresses, from which the NIC may send")
	}
}

func (f *file) checkPorts(path string, g Guest) {
	if len(g.Ports) > maxPorts {
		f.Fail(path+".ports", "want at most %d, got %d", maxPorts, len(g.Ports))
	}
	seen := map[string]string{}
	for j, p := range g.Ports {
		f.unique(seen, fmt.Sprintf("%s.ports[%d]", path, j), p)
	}
}

// checkGuestAddress returns an error unless a guest of the tenant may have an address.
func (t Tenant) checkGuestAddress(a netip.Addr) error {
	if a.Is6() && a.IsLinkLocalUnicast() {
		return nil
	}
	for _, g := range t.Gateways {
		if g.Addr() == a {
			return fmt.Errorf("%s is a gateway of tenant %s: choose another address", a, t.Name)
		}
	}
	subnets := t.Subnets()
	for _, s := range subnets {
		if s.Contains(a) {
			return ipam.CheckHost(a, s)
		}
	}
	if len(subnets) > 0 {
		return fmt.Errorf("want an address in a subnet of tenant %s, %s, got %q", t.Name, either(subnets), a)
	}
	return nil
}

func either(subnets []netip.Prefix) string {
	texts := make([]string, len(subnets))
	for i, s := range subnets {
		texts[i] = s.String()
	}
	return strings.Join(texts, " or ")
}
