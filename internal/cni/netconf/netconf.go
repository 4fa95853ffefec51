// Package netconf reads the configuration that a container runtime gives to our
// CNI plugins, and says which key is wrong.
//
// It does not look at the machine: whether a file or a link exists belongs to
// the plugin that needs it.
package netconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// Limits of an Ethernet NIC's MTU in bytes: what IPv4 needs (RFC 791), and what
// virtio-net can carry.
const (
	minMTU = 68
	maxMTU = 65535
)

// maxBurst is in bytes: what the kernel's token bucket can hold.
const maxBurst = 1<<32 - 1

// Modes of BrFusion: how a pod gets its NIC.
const (
	Hotplug = "hotplug" // a NIC of its own, plugged by the VMM
	Trunk   = "trunk"   // a VLAN of its own on the guest's trunk NIC
)

// IPAM types that are not only the name of a plugin.
const (
	Daemon = "hostd" // the host daemon chooses the addresses
	DHCP   = "dhcp"  // the plugin dhcp, which needs the interface in the pod
)

// BrFusion is the configuration of the plugin brfusion. Beside CNI's own keys and
// Host's it has:
//
//	"bridge"       the host's bridge for the NIC; default: the guest's own
//	"mode"         "hotplug" (default) or "trunk"
//	"pool"         false: plug a new NIC although the host has a warm one; default true
//	"mtu"          bytes; default 0: what the host daemon says
//	"ipam"         with the "type" of the IPAM plugin, or "hostd"; required
//	"bandwidth"    limits of the NIC, by the host; see Bandwidth
//	"services"     {"ranges": ["10.96.0.0/12"]}: what the pod reaches through the
//	               guest, such as the cluster's services, and that it can be reached
//	               through the guest, such as by host ports; default: nothing
//
// With the IPAM type "hostd" the section may have "routes", a list of routes as
// in a CNI result. Without the key there is one default route for each family
// that has a gateway; with an empty list there is none.
//
// The capability "bandwidth" (runtimeConfig) goes before the key. "ips" and
// whatever else an IPAM plugin knows reaches it, as it gets the whole
// configuration.
type BrFusion struct {
	types.PluginConf
	Host
	Bridge    string         `json:"bridge"`
	Mode      string         `json:"mode"`
	Cold      bool           `json:"-"` // the key "pool" is false
	MTU       int            `json:"mtu"`
	IPAM      IPAM           `json:"ipam"`
	Bandwidth Bandwidth      `json:"bandwidth"` // after the capability
	Services  []netip.Prefix `json:"-"`         // nil: no service path

	// Complete says that ValidAttachments is all there are. Without it the runtime
	// has not said which are valid.
	Complete bool `json:"-"`

	RawPool     *bool           `json:"pool"`
	RawServices *services       `json:"services"`
	RawRuntime  runtimeConfig   `json:"runtimeConfig"`
	RawValid    json.RawMessage `json:"cni.dev/valid-attachments"`
}

// IPAM is the part of the section "ipam" that the plugin itself reads.
type IPAM struct {
	Type string `json:"type"`
	// Routes are those of the type "hostd". Nil: the key is missing.
	Routes []types.Route `json:"-"`

	RawRoutes json.RawMessage `json:"routes"` // of another type: its plugin's business
}

// Delegated reports whether an IPAM plugin chooses the addresses.
func (i IPAM) Delegated() bool { return i.Type != Daemon }

// Bandwidth limits a NIC as seen from the pod, as in CNI's conventions and as the
// plugin bandwidth has it. 0: no limit.
type Bandwidth struct {
	IngressRate  uint64 `json:"ingressRate"`  // bit/s
	IngressBurst uint64 `json:"ingressBurst"` // bit
	EgressRate   uint64 `json:"egressRate"`   // bit/s
	EgressBurst  uint64 `json:"egressBurst"`  // bit
}

type services struct {
	Ranges []string `json:"ranges"`
}

type runtimeConfig struct {
	Bandwidth *Bandwidth `json:"bandwidth"`
}

// ParseBrFusion reads the configuration from a plugin's standard input. An error
// names the key; it wraps ErrDecode when the input is not JSON of these types.
func ParseBrFusion(stdin []byte) (BrFusion, error) {
	var c BrFusion
	if err := json.Unmarshal(stdin, &c); err != nil {
		return BrFusion{}, fmt.Errorf("%w: %w", ErrDecode, err)
	}
	if err := c.complete(); err != nil {
		return BrFusion{}, fmt.Errorf("network configuration: %w", err)
	}
	var err error
	if c.Complete, err = readAttachments(&c.PluginConf, c.RawValid); err != nil {
		return BrFusion{}, err
	}
	return c, nil
}

// ErrDecode is wrapped when the input is not JSON, or a value is of another type
// than its key wants.
var ErrDecode = errors.New("parse network configuration")

// readAttachments reads prevResult, and the attachments that are valid. Complete
// tells a list that is missing from one that is empty, which runtimes also write
// as null.
func readAttachments(c *types.PluginConf, valid json.RawMessage) (complete bool, err error) {
	if valid != nil {
		if err := json.Unmarshal(valid, &c.ValidAttachments); err != nil {
			return false, fmt.Errorf("%w: cni.dev/valid-attachments: %w", ErrDecode, err)
		}
	}
	if err := version.ParsePrevResult(c); err != nil {
		return false, fmt.Errorf("network configuration: prevResult: %w", err)
	}
	return valid != nil, nil
}

func (c *BrFusion) complete() (err error) {
	if err := c.Host.complete(); err != nil {
		return err
	}
	if c.Services, err = c.RawServices.prefixes(); err != nil {
		return err
	}
	if b := c.RawRuntime.Bandwidth; b != nil {
		c.Bandwidth = *b
	}
	if err := c.Bandwidth.check(); err != nil {
		return err
	}
	c.Cold = c.RawPool != nil && !*c.RawPool
	if c.Mode == "" {
		c.Mode = Hotplug
	}
	switch {
	case c.Bridge != "" && !isInterfaceName(c.Bridge):
		return fmt.Errorf("bridge %q: want the name of a network interface", c.Bridge)
	case c.Mode != Hotplug && c.Mode != Trunk:
		return fmt.Errorf("mode %q: want %q or %q", c.Mode, Hotplug, Trunk)
	case c.MTU != 0 && (c.MTU < minMTU || c.MTU > maxMTU):
		return fmt.Errorf("mtu %d: want 0 or %d to %d", c.MTU, minMTU, maxMTU)
	}
	return c.IPAM.check()
}

// check also reads the routes.
func (i *IPAM) check() error {
	switch {
	case i.Type == "":
		return fmt.Errorf("ipam.type is missing: want an IPAM plugin, such as %q, or %q", "host-local", Daemon)
	case strings.ContainsRune(i.Type, '/'):
		return fmt.Errorf("ipam.type %q: want a file name in CNI_PATH, without a directory", i.Type)
	case i.Delegated() || i.RawRoutes == nil:
		return nil
	}
	if err := json.Unmarshal(i.RawRoutes, &i.Routes); err != nil {
		return fmt.Errorf("ipam.routes: %w", err)
	}
	for n, r := range i.Routes {
		if r.Dst.IP == nil {
			return fmt.Errorf("ipam.routes: route %d has no dst: want ADDRESS/PREFIX-LENGTH, such as %q", n+1, "0.0.0.0/0")
		}
	}
	return nil
}

// check wants a burst with each rate, as the plugin bandwidth does: without one
// no frame could pass.
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

func (s *services) prefixes() ([]netip.Prefix, error) {
	if s == nil {
		return nil, nil
	}
	if len(s.Ranges) == 0 {
		return nil, fmt.Errorf("services.ranges is missing: want the cluster's service ranges, such as %q", "10.96.0.0/12")
	}
	var all []netip.Prefix
	for _, r := range s.Ranges {
		p, err := netip.ParsePrefix(r)
		if err != nil || p != p.Masked() || p.Bits() == 0 {
			return nil, fmt.Errorf("services.ranges: %q: want ADDRESS/PREFIX-LENGTH of a network, such as %q", r, "10.96.0.0/12")
		}
		all = append(all, p)
	}
	return all, nil
}

// isInterfaceName follows the kernel (dev_valid_name in net/core/dev.c).
func isInterfaceName(s string) bool {
	return s != "" && len(s) <= 15 && s != "." && s != ".." &&
		!strings.ContainsFunc(s, func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) })
}
