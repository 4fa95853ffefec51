package netconf

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// Limits of a NIC's MTU in bytes: IPv4's minimum (RFC 791) and virtio-net's maximum.
const (
	minMTU = 68
	maxMTU = 65535
)

// maxBurst is the largest burst of the kernel's token bucket, in bytes.
const maxBurst = 1<<32 - 1

// Modes of BrFusion: how a pod gets its NIC.
const (
	Hotplug = "hotplug" // a NIC of its own, plugged by the VMM
	Trunk   = "trunk"   // a VLAN of its own on the guest's trunk NIC
)

// Values of ipam.type that mean more than the name of an IPAM plugin.
const (
	Daemon = "hostd" // the host daemon chooses the addresses
	DHCP   = "dhcp"  // the plugin dhcp, which needs the interface in the pod
)

// BrFusion is the configuration of the plugin brfusion. Besides Base's keys it has:
//
//	"bridge"       the host's bridge for the NIC; default: the guest's own
//	"mode"         "hotplug" (default) or "trunk"
//	"pool"         false: plug a new NIC although the host has a warm one; default true
//	"mtu"          bytes; default 0: the host daemon's choice
//	"ipam"         with the "type" of the IPAM plugin, or "hostd"; required
//	"bandwidth"    limits of the NIC, enforced by the host; see Bandwidth
//	"services"     {"ranges": ["10.96.0.0/12"]}: destinations that the pod reaches
//	               through the guest, such as the cluster's services; the pod can then
//	               also be reached through the guest, such as by host ports; default: none
//
// With the IPAM type "hostd" the section may have "routes", a list of routes as
// in a CNI result. Without the key there is one default route for each family
// that has a gateway; with an empty list there is none.
//
// The capabilities "bandwidth" and "dns" (runtimeConfig) have precedence over the keys.
// An IPAM plugin gets the whole configuration, with "ips" and its other capabilities.
type BrFusion struct {
	Base
	Bridge    string         `json:"bridge"`
	Mode      string         `json:"mode"`
	Cold      bool           `json:"-"` // the key "pool" is false
	MTU       int            `json:"mtu"`
	IPAM      IPAM           `json:"ipam"`
	Bandwidth Bandwidth      `json:"bandwidth"` // the capability's, if there is one
	Services  []netip.Prefix `json:"-"`         // nil: no service path

	// Requested are the addresses that the runtime requests for the pod, after
	// ReadRequest. Bits is -1 for an address without a prefix length.
	Requested []netip.Prefix `json:"-"`

	RawPool     *bool `json:"pool"`
	RawServices *struct {
		Ranges []string `json:"ranges"`
	} `json:"services"`
}

// IPAM is the part of the section "ipam" that brfusion itself reads.
type IPAM struct {
	Type string `json:"type"`
	// Routes are those of the type "hostd". Nil: the key is missing.
	Routes []types.Route `json:"-"`

	RawRoutes json.RawMessage `json:"routes"` // read by the plugin itself for other types
}

// Delegated reports whether an IPAM plugin chooses the addresses.
func (i IPAM) Delegated() bool { return i.Type != Daemon }

// Bandwidth limits a NIC as seen from the pod, with the keys of CNI's conventions and
// of the plugin bandwidth. 0: no limit.
type Bandwidth struct {
	IngressRate  uint64 `json:"ingressRate"`  // bit/s
	IngressBurst uint64 `json:"ingressBurst"` // bit
	EgressRate   uint64 `json:"egressRate"`   // bit/s
	EgressBurst  uint64 `json:"egressBurst"`  // bit
}

// ParseBrFusion parses the standard input of the plugin. An error names the key; it
// wraps ErrDecode when the input is not JSON of these types.
func ParseBrFusion(stdin []byte) (BrFusion, error) {
	var c BrFusion
	err := parse(stdin, &c, &c.Base, func() error {
		var runtime *Bandwidth
		if err := c.capability("bandwidth", &runtime); err != nil {
			return err
		}
		if runtime != nil {
			c.Bandwidth = *runtime
		}
		if err := c.complete(); err != nil {
			return fmt.Errorf("%w: %w", errConfiguration, err)
		}
		return nil
	})
	return c, err
}

func (c *BrFusion) complete() (err error) {
	if c.RawServices != nil {
		if c.Services, err = parseRanges(c.RawServices.Ranges); err != nil {
			return err
		}
	}
	if err := c.Bandwidth.check(); err != nil {
		return err
	}
	c.Cold = c.RawPool != nil && !*c.RawPool
	c.Mode = cmp.Or(c.Mode, Hotplug)
	switch {
	case c.Bridge != "" && !isInterfaceName(c.Bridge):
		return fmt.Errorf("bridge %q: want the name of a network interface", c.Bridge)
	case c.Mode != Hotplug && c.Mode != Trunk:
		return fmt.Errorf("mode %q: want %q or %q", c.Mode, Hotplug, Trunk)
	case c.MTU != 0 && (c.MTU < minMTU || c.MTU > maxMTU):
		return fmt.Errorf("mtu %d: want 0 or %d to %d", c.MTU, minMTU, maxMTU)
	}
	return c.IPAM.complete()
}

func (i *IPAM) complete() error {
	switch {
	case i.Type == "":
		return fmt.Errorf("ipam.type is missing: want an IPAM plugin, such as %q, or %q", "host-local", Daemon)
	case strings.ContainsRune(i.Type, '/'):
		return fmt.Errorf("ipam.type %q: want a file name in CNI_PATH, without a directory", i.Type)
	case i.Delegated() || i.RawRoutes == nil:
		return nil
	}
	if err := json.Unmarshal(i.RawRoutes, &i.Routes); err != nil {
		return fmt.Errorf("ipam.routes: %w", inWords(err))
	}
	for n, r := range i.Routes {
		if r.Dst.IP == nil {
			return fmt.Errorf("ipam.routes: route %d has no dst: want ADDRESS/PREFIX-LENGTH, such as %q", n+1, "0.0.0.0/0")
		}
	}
	return nil
}

// check requires a burst with each rate, as the plugin bandwidth does: without a
// burst no frame passes.
func (b Bandwidth) check() error {
	for _, d := range []struct {
		name        string
		rate, burst uint64
	}{{"ingress", b.IngressRate, b.IngressBurst}, {"egress", b.EgressRate, b.EgressBurst}} {
		switch {
		case (d.rate == 0) != (d.burst == 0):
			return fmt.Errorf("bandwidth: %[1]sRate %[2]d with %[1]sBurst %[3]d: want both or neither", d.name, d.rate, d.burst)
		case d.burst/8 > maxBurst:
			return fmt.Errorf("bandwidth: %sBurst %d: want at most %d bit", d.name, d.burst, uint64(maxBurst)*8)
		}
	}
	return nil
}

func parseRanges(ranges []string) (all []netip.Prefix, err error) {
	if len(ranges) == 0 {
		return nil, fmt.Errorf("services.ranges is missing: want the cluster's service ranges, such as %q", "10.96.0.0/12")
	}
	for _, r := range ranges {
		p, err := netip.ParsePrefix(r)
		if err != nil || p != p.Masked() || p.Bits() == 0 {
			return nil, fmt.Errorf("services.ranges: %q: want ADDRESS/PREFIX-LENGTH of a network, such as %q", r, "10.96.0.0/12")
		}
		all = append(all, p)
	}
	return all, nil
}
