package cni

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// shape returns an error if a result does not have the form of section 5 of a version.
func shape(version string, text []byte) error {
	var r struct {
		CNIVersion string `json:"cniVersion"`
		Interfaces []struct {
			Name    string `json:"name"`
			Sandbox string `json:"sandbox"`
		} `json:"interfaces"`
		IPs []struct {
			Version   string `json:"version"`
			Address   string `json:"address"`
			Interface *int   `json:"interface"`
		} `json:"ips"`
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("the result is not JSON: %w: %s", err, brief(text))
	}
	if r.CNIVersion != version {
		return fmt.Errorf("the result has cniVersion %q, want %q", r.CNIVersion, version)
	}
	if len(r.Interfaces) == 0 {
		return fmt.Errorf("the result has no interfaces: %s", brief(text))
	}
	for _, ip := range r.IPs {
		addr, _, err := net.ParseCIDR(ip.Address)
		if err != nil {
			return fmt.Errorf("an address of the result: %w", err)
		}
		if want := ipVersion(addr); older(version, "1.0.0") && ip.Version != want {
			return fmt.Errorf("address %s has version %q, want %q", ip.Address, ip.Version, want)
		}
		if ip.Interface != nil && (*ip.Interface < 0 || *ip.Interface >= len(r.Interfaces)) {
			return fmt.Errorf("address %s has interface index %d of %d", ip.Address, *ip.Interface, len(r.Interfaces))
		}
	}
	return nil
}

func ipVersion(a net.IP) string {
	if a.To4() != nil {
		return "4"
	}
	return "6"
}

// converts returns an error if a result cannot be converted to each version of Versions
// and back with the same addresses.
func converts(version string, text []byte) error {
	r, err := create.Create(version, text)
	if err != nil {
		return fmt.Errorf("read the result: %w", err)
	}
	for _, v := range Versions {
		other, err := r.GetAsVersion(v)
		if err != nil {
			return fmt.Errorf("convert to %s: %w", v, err)
		}
		back, err := other.GetAsVersion(version)
		if err != nil {
			return fmt.Errorf("convert to %s and back: %w", v, err)
		}
		if was, is := addressesOf(r), addressesOf(back); !slices.Equal(was, is) {
			return fmt.Errorf("convert to %s and back: addresses %v became %v", v, was, is)
		}
	}
	return nil
}

func addressesOf(r types.Result) (all []string) {
	if c, err := types100.NewResultFromResult(r); err == nil {
		for _, ip := range c.IPs {
			all = append(all, ip.Address.String())
		}
	}
	return all
}

// verify compares the pod with a result: interfaces, MACs, MTUs, addresses and routes.
func verify(p *pod, ifname string, r *types100.Result) error {
	return p.inside(func(h *netlink.Handle) error {
		named := false
		for _, i := range r.Interfaces {
			if i.Sandbox != p.path {
				continue
			}
			named = named || i.Name == ifname
			if err := verifyInterface(h, i); err != nil {
				return err
			}
		}
		if !named {
			return fmt.Errorf("the result has no interface %s in %s", ifname, p.path)
		}
		for _, ip := range r.IPs {
			if err := verifyAddress(h, p, ifname, r, ip); err != nil {
				return err
			}
		}
		for _, route := range r.Routes {
			if err := verifyRoute(h, route); err != nil {
				return err
			}
		}
		return nil
	})
}

func verifyInterface(h *netlink.Handle, i *types100.Interface) error {
	l, err := linkIn(h, i.Name)
	if err != nil {
		return err
	}
	a := l.Attrs()
	if i.Mac != "" {
		if mac, err := net.ParseMAC(i.Mac); err != nil || mac.String() != a.HardwareAddr.String() {
			return fmt.Errorf("%s has MAC %s, the result says %q", i.Name, a.HardwareAddr, i.Mac)
		}
	}
	if i.Mtu != 0 && i.Mtu != a.MTU {
		return fmt.Errorf("%s has MTU %d, the result says %d", i.Name, a.MTU, i.Mtu)
	}
	if a.Flags&net.FlagUp == 0 {
		return fmt.Errorf("%s is down", i.Name)
	}
	return nil
}

func verifyAddress(h *netlink.Handle, p *pod, ifname string, r *types100.Result, ip *types100.IPConfig) error {
	if ip.Interface != nil {
		if *ip.Interface < 0 || *ip.Interface >= len(r.Interfaces) {
			return fmt.Errorf("address %s has interface index %d of %d", &ip.Address, *ip.Interface, len(r.Interfaces))
		}
		i := r.Interfaces[*ip.Interface]
		if i.Sandbox != p.path {
			return nil // "Plugins may include IPs assigned external to the container."
		}
		ifname = i.Name
	}
	l, err := linkIn(h, ifname)
	if err != nil {
		return err
	}
	addrs, err := listed(func() ([]netlink.Addr, error) { return h.AddrList(l, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("list the addresses of %s: %w", ifname, err)
	}
	for _, a := range addrs {
		if a.IPNet.String() == ip.Address.String() {
			return nil
		}
	}
	return fmt.Errorf("%s has %v, the result says %s", ifname, addrs, &ip.Address)
}

// verifyRoute checks that the pod has a route of the result. If the result has no gateway,
// the plugin may choose one.
func verifyRoute(h *netlink.Handle, want *types.Route) error {
	routes, err := routesTo(h, want)
	if err != nil {
		return err
	}
	for _, r := range routes {
		if want.GW == nil || r.Gw.Equal(want.GW) || slices.ContainsFunc(r.MultiPath,
			func(n *netlink.NexthopInfo) bool { return n.Gw.Equal(want.GW) }) {
			return nil
		}
	}
	return fmt.Errorf("the pod has no route %s, but the result has", want)
}

// routesTo lists the routes with the destination, priority and MTU of a route of a result.
func routesTo(h *netlink.Handle, want *types.Route) ([]netlink.Route, error) {
	filter := &netlink.Route{Table: unix.RT_TABLE_MAIN}
	if want.Table != nil {
		filter.Table = *want.Table
	}
	fam := netlink.FAMILY_V4
	if want.Dst.IP.To4() == nil {
		fam = netlink.FAMILY_V6
	}
	all, err := listed(func() ([]netlink.Route, error) { return h.RouteListFiltered(fam, filter, netlink.RT_FILTER_TABLE) })
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return slices.DeleteFunc(all, func(r netlink.Route) bool {
		return !sameDestination(r.Dst, want.Dst) ||
			want.Priority != 0 && r.Priority != want.Priority || want.MTU != 0 && r.MTU != want.MTU
	}), nil
}

// sameDestination handles both forms of the default route in netlink.
func sameDestination(have *net.IPNet, want net.IPNet) bool {
	ones, _ := want.Mask.Size()
	if have == nil {
		return ones == 0
	}
	haveOnes, _ := have.Mask.Size()
	return haveOnes == ones && have.IP.Equal(want.IP.Mask(want.Mask))
}
