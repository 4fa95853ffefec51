// Package policy is the host daemon's configuration: a YAML file of the tenants
// and of the guests that others have started, and what follows from it for a
// request.
//
// Reading the file, counting what is in use, and carrying anything out do not
// belong here.
package policy

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"unnest/internal/hostd/ipam"
)

// Policy is the daemon's configuration. It comes from Parse, or goes through
// Marshal, and is valid.
type Policy struct {
	// Listen is where guests call, as they see it. Zero: the command line says.
	Listen netip.AddrPort `yaml:"listen"`
	// HTTP is where the host asks for metrics, health and status. Zero: nowhere
	// but on the daemon's unix socket.
	HTTP    netip.AddrPort `yaml:"http"`
	Tenants []Tenant       `yaml:"tenants"` // at least one
	Guests  []Guest        `yaml:"guests,omitempty"`
	Pool    int            `yaml:"pool"`  // warm NICs of a guest that does not say
	Trunk   bool           `yaml:"trunk"` // whether guests may ask for VLANs on a trunk
}

// Tenant is whom guests belong to: a network of its own.
type Tenant struct {
	Name    string   `yaml:"name"`              // a DNS label
	Bridge  string   `yaml:"bridge"`            // of the NICs, unless a request names another
	Bridges []string `yaml:"bridges,omitempty"` // that a request may name; no other tenant has any of them
	MTU     int      `yaml:"mtu"`               // bytes: of a NIC that does not say, and the most
	// Gateways are the addresses that the daemon gives to Bridge, which it then
	// makes. Without any the bridge is the operator's.
	Gateways []netip.Prefix `yaml:"gateways,omitempty"`
	NAT      bool           `yaml:"nat"`              // from the gateways' subnets to the outside
	Ranges   []ipam.Range   `yaml:"ranges,omitempty"` // of the addresses that the daemon gives
	Cooldown time.Duration  `yaml:"cooldown"`         // how long a released address is not given
	Limits   Limits         `yaml:"limits"`
	Segments Segments       `yaml:"segments,omitempty"`
	// Volumes is the directory of pods' volumes, absolute and the tenant's alone:
	// DIRECTORY/POD/VOLUME. Empty: none.
	Volumes string `yaml:"volumes,omitempty"`
}

// Limits bound what the guests of a tenant get. 0: no limit.
type Limits struct {
	NICs              int   `yaml:"nics"`              // of a guest, at a time
	TenantNICs        int   `yaml:"tenantNICs"`        // of all guests together
	RequestsPerSecond int   `yaml:"requestsPerSecond"` // of a guest, in the long run
	Burst             int   `yaml:"burst"`             // requests at once
	Connections       int   `yaml:"connections"`       // of a guest to the daemon
	Segments          int   `yaml:"segments"`          // of all guests together
	Endpoints         int   `yaml:"endpoints"`         // of a segment: at most MaxEndpoints, which 0 is
	Broadcasts        int   `yaml:"broadcasts"`        // of an endpoint, frames a second
	Volumes           int   `yaml:"volumes"`           // that all guests together have at a time, each as often as a guest has it
	SharedMemory      int   `yaml:"sharedMemory"`      // of all pods together, MiB
	Bandwidth         Rates `yaml:"bandwidth"`         // of a pod
}

// Rates are the most that a pod's NIC carries, seen from the pod.
type Rates struct {
	Ingress Rate `yaml:"ingress"`
	Egress  Rate `yaml:"egress"`
}

// Guest is a VM that unnest has not started.
type Guest struct {
	Name    string  `yaml:"name"` // a DNS label, as in its certificate
	Tenant  string  `yaml:"tenant"`
	QMP     string  `yaml:"qmp,omitempty"`     // absolute path of the unix socket, which only the daemon uses
	Libvirt *Domain `yaml:"libvirt,omitempty"` // in place of QMP
	// Ports are the IDs of the root ports for NICs, in the order of the slots.
	// Without any they are discovered.
	Ports []string `yaml:"ports,omitempty"`
	Pool  int      `yaml:"pool"` // warm NICs
	// Index is part of TAPs' names and of MACs: 1 to MaxIndex, no other guest of
	// the host has it. It has no default, since MACs must not change with the
	// order of the file.
	Index int `yaml:"index"`
	// Addresses are the guest's own on the tenant's network. No pod gets them.
	Addresses []netip.Addr `yaml:"addresses,omitempty"`
	// Export is the directory, absolute and of no other use, that the guest has by 9p
	// from its start. Volumes are mounted there if its memory is not shared.
	Export string `yaml:"export,omitempty"`
}

// Domain is a guest of libvirt.
type Domain struct {
	Socket string `yaml:"socket"` // absolute path
	Domain string `yaml:"domain"` // its name
}

// MaxIndex is the highest index of a guest: two digits in base 36, so that the
// names of its TAPs stay within 15 bytes.
const MaxIndex = 36*36 - 1

// Reasons to refuse a request, to be told apart with errors.Is.
var (
	ErrTenant = errors.New("no such tenant")
	ErrBridge = errors.New("bridge is not the tenant's")
	ErrLimit  = errors.New("limit reached")
	ErrMTU    = errors.New("MTU out of bounds")
)

// Tenant returns the tenant called name. The error wraps ErrTenant.
func (p Policy) Tenant(name string) (Tenant, error) {
	var names []string
	for _, t := range p.Tenants {
		if t.Name == name {
			return t, nil
		}
		names = append(names, t.Name)
	}
	return Tenant{}, fmt.Errorf("%w: %.80q: the configuration has %s", ErrTenant, name, strings.Join(names, ", "))
}

// Subnets returns the tenant's subnets, each once: those of the gateways, or of
// the ranges.
func (t Tenant) Subnets() []netip.Prefix {
	var all []netip.Prefix
	for _, g := range t.Gateways {
		all = append(all, g.Masked())
	}
	for _, r := range t.Ranges {
		if !slices.Contains(all, r.Subnet) {
			all = append(all, r.Subnet)
		}
	}
	return all
}

// BridgeFor returns the bridge of a NIC for which asked was asked, "" for none.
// The error wraps ErrBridge; it does not tell a guest of others' bridges.
func (t Tenant) BridgeFor(asked string) (string, error) {
	if asked == "" || asked == t.Bridge || slices.Contains(t.Bridges, asked) {
		return cmp.Or(asked, t.Bridge), nil
	}
	return "", fmt.Errorf("%w: %.40q: want %s", ErrBridge, asked, strings.Join(slices.Concat([]string{t.Bridge}, t.Bridges), ", "))
}

// AdmitNIC returns an error, which wraps ErrLimit, when a guest with so many NICs,
// of a tenant with so many, may not have one more.
func (t Tenant) AdmitNIC(guestNICs, tenantNICs int) error {
	switch l := t.Limits; {
	case l.NICs > 0 && guestNICs >= l.NICs:
		return fmt.Errorf("%w: the guest has %d NICs of at most %d: remove pods", ErrLimit, guestNICs, l.NICs)
	case l.TenantNICs > 0 && tenantNICs >= l.TenantNICs:
		return fmt.Errorf("%w: the guests of tenant %s have %d NICs of at most %d: remove pods", ErrLimit, t.Name, tenantNICs, l.TenantNICs)
	}
	return nil
}

// MTUFor returns the MTU of a NIC for which asked bytes were asked, 0 for the
// tenant's. The error wraps ErrMTU.
func (t Tenant) MTUFor(asked int) (int, error) {
	if asked == 0 {
		return t.MTU, nil
	}
	if asked < t.leastMTU() || asked > t.MTU {
		return 0, fmt.Errorf("%w: %d: want 0 or %d to %d", ErrMTU, asked, t.leastMTU(), t.MTU)
	}
	return asked, nil
}

// The least MTU of a link in bytes: RFC 791, RFC 8200 §5.
const (
	leastMTU4 = 68
	leastMTU6 = 1280
)

func (t Tenant) leastMTU() int {
	if slices.ContainsFunc(t.Subnets(), func(s netip.Prefix) bool { return s.Addr().Is6() }) {
		return leastMTU6
	}
	return leastMTU4
}

// Bandwidth limits a NIC, seen from the pod. A rate of 0 is none; a burst of 0
// leaves the choice to who carries it out.
type Bandwidth struct {
	IngressRate, EgressRate   uint64 // bit/s
	IngressBurst, EgressBurst uint64 // bit
}

// BandwidthFor returns the smaller of what was asked and the tenant's. A tenant's
// rate also bounds the burst, to what it carries in a second: a burst without
// end would be a rate without limit.
func (t Tenant) BandwidthFor(asked Bandwidth) Bandwidth {
	var b Bandwidth
	b.IngressRate, b.IngressBurst = t.Limits.Bandwidth.Ingress.bound(asked.IngressRate, asked.IngressBurst)
	b.EgressRate, b.EgressBurst = t.Limits.Bandwidth.Egress.bound(asked.EgressRate, asked.EgressBurst)
	return b
}

func (r Rate) bound(rate, burst uint64) (uint64, uint64) {
	most := uint64(r)
	switch {
	case most == 0 && rate == 0:
		return 0, 0
	case most == 0:
		return rate, burst
	case rate == 0:
		return most, 0 // a burst without a rate means nothing
	}
	return min(rate, most), min(burst, most)
}
