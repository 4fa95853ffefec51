// Package quota is the host daemon's configuration: a YAML file of the tenants, and
// of the guests that were not started by unnest. It decides what a request may get.
//
// Reading the file, counting what is in use, and carrying out requests do not belong
// here.
package quota

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"unnest.io/unnest/internal/hostd/ipam"
)

// Config is the daemon's configuration. One that comes from Parse is valid.
type Config struct {
	// Listen is the address for guests, as they see it. Zero: that of the command
	// line.
	Listen netip.AddrPort `yaml:"listen"`
	// HTTP is the host's address for metrics, health and status, in addition to the
	// daemon's unix socket. Zero: none.
	HTTP    netip.AddrPort `yaml:"http"`
	Tenants []Tenant       `yaml:"tenants"` // at least one
	Guests  []Guest        `yaml:"guests,omitempty"`
	// LogLevel is LogInfo, LogDebug or empty, which means LogInfo.
	LogLevel string `yaml:"logLevel,omitempty"`
	Pool     int    `yaml:"pool"`  // warm NICs per guest, unless the guest has its own number
	Trunk    bool   `yaml:"trunk"` // guests may ask for VLANs on a trunk
}

// Tenant is the owner of guests, with a network of its own.
type Tenant struct {
	Name    string   `yaml:"name"`              // a DNS label
	Bridge  string   `yaml:"bridge"`            // of NICs, unless a request names another
	Bridges []string `yaml:"bridges,omitempty"` // further bridges that a request may name; each has one tenant
	MTU     int      `yaml:"mtu"`               // bytes: default and maximum of NICs
	// Gateways are the addresses that the daemon gives to Bridge, which it makes.
	// Without gateways the operator owns the bridge.
	Gateways []netip.Prefix `yaml:"gateways,omitempty"`
	// HostPorts are the ports of the host that the pods reach, in addition to the
	// daemon's. Empty: none on the bridge that the daemon makes, all on those of the
	// operator, which others may be on.
	HostPorts []HostPort   `yaml:"hostPorts,omitempty"`
	Metadata  bool         `yaml:"metadata"`         // pods reach the metadata services of clouds
	NAT       bool         `yaml:"nat"`              // from the gateways' subnets to the outside
	Ranges    []ipam.Range `yaml:"ranges,omitempty"` // from which the daemon allocates addresses
	// ClaimRanges are where guests may choose addresses themselves: by an IPAM plugin of theirs, or
	// because a runtime asks for one. Empty: nowhere, or in all subnets if there are no Ranges.
	ClaimRanges []netip.Prefix `yaml:"claimRanges,omitempty"`
	// ClaimMACs are the MACs that guests may choose for their pods, each by its first one to six bytes, such as
	// "02:42". Empty: none.
	ClaimMACs []string      `yaml:"claimMACs,omitempty"`
	Cooldown  time.Duration `yaml:"cooldown"` // before a released address is allocated again
	Limits    Limits        `yaml:"limits"`
	Segments  Segments      `yaml:"segments,omitempty"`
	// Volumes is the directory of pods' volumes, DIRECTORY/POD/VOLUME. It is absolute
	// and no other tenant's. Empty: no volumes.
	Volumes string `yaml:"volumes,omitempty"`
	// VolumesUnbounded allows Volumes in a file system that is not the tenant's own,
	// which its guests can fill.
	VolumesUnbounded bool `yaml:"volumesUnbounded,omitempty"`
	// VHostPoll is how long the kernel thread of a NIC that is plugged from now on waits
	// for the next frame before it sleeps, in whole microseconds up to MaxVHostPoll. 0: not
	// at all, as QEMU's default. It needs vhost-net, and QEMU without libvirt.
	VHostPoll time.Duration `yaml:"vhostPoll,omitempty"`
	// Queues is how many pairs of queues a NIC has that is plugged from now on, up to MaxQueues.
	// 0 means 1. An endpoint of a segment has one.
	Queues int `yaml:"queues,omitempty"`
	// NetworkPolicy lets a client say which connections the pods may have: PolicyOptional,
	// PolicyRequired or empty, which means no client may.
	NetworkPolicy string `yaml:"networkPolicy,omitempty"`
	// PodRanges are where the API server's status of a pod may name addresses if the pod has no
	// NIC here: its node writes it. Empty: such pods are no peers of policies.
	PodRanges []netip.Prefix `yaml:"podRanges,omitempty"`
	// NodeRanges are the same for nodes, in addition to the addresses of the tenant's guests.
	NodeRanges []netip.Prefix `yaml:"nodeRanges,omitempty"`
}

// MaxVHostPoll is the longest time for which vhost-net may poll: it keeps a processor of the
// host busy.
const MaxVHostPoll = 10 * time.Millisecond

// MaxQueues is the largest number of pairs of queues of a NIC. Each pair takes two interrupt vectors
// of the guest, of which a processor has about 200.
const MaxQueues = 16

// What a pod may do as long as no client has said so.
const (
	PolicyOptional = "optional" // everything
	PolicyRequired = "required" // nothing
)

// Limits are the most that the guests of a tenant get. 0: no limit.
type Limits struct {
	NICs              int   `yaml:"nics"`              // of a guest at the same time
	TenantNICs        int   `yaml:"tenantNICs"`        // of all guests
	Addresses         int   `yaml:"addresses"`         // of the pods of a guest
	RequestsPerSecond int   `yaml:"requestsPerSecond"` // of a guest on average
	Burst             int   `yaml:"burst"`             // requests at once
	AttachesPerSecond int   `yaml:"attachesPerSecond"` // of all guests on average, if there are other tenants
	Connections       int   `yaml:"connections"`       // of a guest to the daemon; 0: 32
	Segments          int   `yaml:"segments"`          // of all guests
	Endpoints         int   `yaml:"endpoints"`         // of a segment; 0: MaxEndpoints
	Broadcasts        int   `yaml:"broadcasts"`        // of an endpoint, frames per second
	Volumes           int   `yaml:"volumes"`           // attached to all guests; one in two guests counts twice
	VolumeDirectories int   `yaml:"volumeDirectories"` // that a guest has made and that still exist, attached or not
	SharedMemory      int   `yaml:"sharedMemory"`      // of all pods, MiB
	Multicasts        int   `yaml:"multicasts"`        // broadcast and multicast frames of a NIC per second
	QueueMemory       int   `yaml:"queueMemory"`       // for frames that wait for the bandwidth of all pods, MiB
	Flows             int   `yaml:"flows"`             // connections of all pods to the host and through it
	Bandwidth         Rates `yaml:"bandwidth"`         // of a pod
}

// Rates are the bandwidth limits of a pod's NIC, seen from the pod.
type Rates struct {
	Ingress Rate `yaml:"ingress"`
	Egress  Rate `yaml:"egress"`
}

// HostPort is tcp/PORT, udp/PORT, AnyPort or NoPort.
type HostPort string

// The host ports that stand alone.
const (
	AnyPort HostPort = "any"
	NoPort  HostPort = "none" // also on the operator's bridges
)

// Port returns the protocol, tcp or udp, and the number of a single port.
func (p HostPort) Port() (protocol string, number uint16, ok bool) {
	protocol, text, _ := strings.Cut(string(p), "/")
	n, err := strconv.ParseUint(text, 10, 16)
	return protocol, uint16(n), err == nil && n > 0 && text[0] != '+' && (protocol == "tcp" || protocol == "udp")
}

// The levels of the log. LogDebug has each step of each attach and detach.
const (
	LogInfo  = "info"
	LogDebug = "debug"
)

// MaxEndpoints is the highest number of endpoints of a Hostlo segment.
const MaxEndpoints = 16

// The modes of a segment.
const (
	SegmentUnicast = "unicast" // a frame goes to the fraction with its address
	SegmentPlain   = "plain"   // a frame goes to all fractions (Bacou et al. 2019, §4)
)

// SpanHost is the only span of a segment: the VMs of one physical host.
const SpanHost = "host"

// Segments are the Hostlo segments that the guests of a tenant may have.
type Segments struct {
	Modes []string `yaml:"modes,omitempty"` // allowed; the first is the default; empty: all, unicast first
	Span  string   `yaml:"span,omitempty"`  // SpanHost or empty, which means the same
}

// Guest is a VM that was not started by unnest.
type Guest struct {
	Name    string  `yaml:"name"` // a DNS label, as in its certificate
	Tenant  string  `yaml:"tenant"`
	QMP     string  `yaml:"qmp,omitempty"`     // absolute path of the unix socket, used by the daemon only
	Libvirt *Domain `yaml:"libvirt,omitempty"` // in place of QMP
	// Ports are the IDs of the root ports for NICs, in the order of the slots. Empty:
	// the daemon discovers them.
	Ports []string `yaml:"ports,omitempty"`
	Pool  int      `yaml:"pool"` // warm NICs
	// Index is part of the names of TAPs and of MACs: 1 to MaxIndex, unique on the
	// host. It has no default, because MACs must not depend on the order of the file.
	Index int `yaml:"index"`
	// TAP is the host's end of the guest's own NIC on a bridge of the tenant, and MAC the
	// NIC's address. Empty: the daemon asks the VMM.
	TAP string `yaml:"tap,omitempty"`
	MAC string `yaml:"mac,omitempty"`
	// Addresses are the guest's own on the tenant's network. No pod gets them, and its own
	// NIC may send from these only. Without addresses the NIC is not guarded.
	Addresses []netip.Addr `yaml:"addresses,omitempty"`
	Unguarded bool         `yaml:"unguarded,omitempty"` // the guest's own NIC may send anything
	// Export is a directory, absolute and not used otherwise, that the guest has by 9p
	// from its start. Volumes are mounted there if the guest's memory is not shared. The
	// daemon mounts a read-only file system on it, before the guest starts.
	Export string `yaml:"export,omitempty"`
	// Node is the guest's node in the tenant's Kubernetes cluster. Empty: Name.
	Node string `yaml:"node,omitempty"`
	// Credentials is CredentialsVMM or empty, which means that the operator enrolls the guest
	// and copies its credentials.
	Credentials string `yaml:"credentials,omitempty"`
}

// CredentialsVMM lets the daemon hand the guest its credentials through the VMM, which
// vouches that it is this guest.
const CredentialsVMM = "vmm"

// Domain is a guest of libvirt.
type Domain struct {
	Socket string `yaml:"socket"` // absolute path
	Domain string `yaml:"domain"` // name
}

// MaxIndex is the highest index of a guest: two digits in base 36, which keep the
// names of its TAPs within 15 bytes.
const MaxIndex = 36*36 - 1

// Marshal writes a file from which Parse reads p. It writes every key except those of
// empty lists. When Parse would refuse the file, Marshal returns its error.
func Marshal(p Config) ([]byte, error) {
	content, err := yaml.MarshalWithOptions(p, yaml.IndentSequence(true))
	if err != nil {
		return nil, fmt.Errorf("write policy: %w", err)
	}
	if _, err := Parse("policy", content); err != nil {
		return nil, err
	}
	return content, nil
}

// ErrTenant is wrapped when a tenant does not exist.
var ErrTenant = errors.New("no such tenant")

// Tenant returns the tenant with the name. The error wraps ErrTenant.
func (p Config) Tenant(name string) (Tenant, error) {
	var names []string
	for _, t := range p.Tenants {
		if t.Name == name {
			return t, nil
		}
		names = append(names, t.Name)
	}
	return Tenant{}, fmt.Errorf("%w: %.80q: the configuration has %s", ErrTenant, name, strings.Join(names, ", "))
}

// AllBridges returns the tenant's bridges, the default one first.
func (t Tenant) AllBridges() []string { return append([]string{t.Bridge}, t.Bridges...) }

// Subnets returns the subnets of the tenant's gateways and ranges, each once.
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
