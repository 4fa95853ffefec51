// Package status is what the host daemon reports about itself to the host's operator:
// GET /status on its unix socket, as JSON. The command line and the metrics read it.
//
// The daemon fills it. Nothing here looks at a guest or at the host's network.
package status

import (
	"time"

	"unnest.io/unnest/internal/hostapi/segment"
)

// SchemaVersion is the version of the JSON of a Status. Keys are added without a new version;
// it changes when one is removed or gets another meaning.
const SchemaVersion = 1

// Status is one report.
type Status struct {
	Version  string    `json:"version"`
	Revision string    `json:"revision"`
	Protocol int       `json:"protocol"`
	Since    time.Time `json:"since"`
	Listen   string    `json:"listen"`
	// Configuration is that of the configuration file.
	Configuration Configuration `json:"configuration"`
	Guests        []Guest       `json:"guests"`
	Tenants       []Tenant      `json:"tenants"`
	Segments      []Segment     `json:"segments"` // ordered by tenant and pod
	// Unguarded are the TAPs on bridges of tenants that no rule limits.
	Unguarded []Port `json:"unguarded,omitempty"`
	// Problems are those of other programs of the host that drop frames of pods.
	Problems []Problem `json:"problems,omitempty"`
}

// Problem is one of a bridge of a tenant, which the daemon cannot repair.
type Problem struct {
	Tenant string `json:"tenant"`
	Bridge string `json:"bridge"`
	Cause  string `json:"cause"` // with the fix
}

// Port is a TAP on a bridge of a tenant that may send anything: other guests' and pods'
// addresses, router advertisements, answers of a DHCP server.
type Port struct {
	Tenant    string `json:"tenant"`
	Bridge    string `json:"bridge"`
	Interface string `json:"interface"`
	Guest     string `json:"guest,omitempty"` // whose NIC it is; empty: not known
	Cause     string `json:"cause"`           // with the fix
	Intended  bool   `json:"intended,omitempty"`
}

// Configuration says which configuration the daemon has.
type Configuration struct {
	Loaded  time.Time `json:"loaded"`
	Error   string    `json:"error,omitempty"`   // why the file of now is not in use
	Restart []string  `json:"restart,omitempty"` // keys of the file that take effect at the next start
}

// Guest is one guest. If its VMM does not answer, only Name, Tenant, Error and CertificateExpires
// are set.
type Guest struct {
	Name   string `json:"name"`
	Tenant string `json:"tenant"`
	Error  string `json:"error,omitempty"`
	// CertificateExpires is zero if the guest has not called yet, unless the host has
	// enrolled it.
	CertificateExpires time.Time `json:"certificate_expires,omitzero"`
	// Certificates are those that the guest was enrolled with or has renewed, the oldest first.
	Certificates     []Certificate `json:"certificates,omitempty"`
	Awake            bool          `json:"awake"` // its system has called since it booted
	Slots            int           `json:"slots"`
	SlotsFree        int           `json:"slots_free"`
	SlotsQuarantined int           `json:"slots_quarantined"`
	SlotsForeign     int           `json:"slots_foreign"` // with devices that the daemon did not plug, such as a disk
	Pool             int           `json:"pool"`
	PoolTarget       int           `json:"pool_target"`
	Attachments      int           `json:"attachments"`
	NICs             []NIC         `json:"nics"`
	Shared           []Share       `json:"shared,omitempty"` // in no order
}

// Certificate is a certificate of a guest.
type Certificate struct {
	Serial  string    `json:"serial,omitempty"` // hex; empty: not known
	Expires time.Time `json:"expires,omitzero"`
	State   string    `json:"state"` // unused, used, superseded, revoked or expired
}

// NIC is one NIC of a guest, or another device in a slot.
type NIC struct {
	Slot      int      `json:"slot,omitempty"`
	VLAN      int      `json:"vlan,omitempty"`
	State     string   `json:"state"`            // "foreign": it is another device
	Device    string   `json:"device,omitempty"` // the VMM's name of a foreign device
	Container string   `json:"container,omitempty"`
	Interface string   `json:"interface,omitempty"`
	Network   string   `json:"network,omitempty"`
	Bridge    string   `json:"bridge,omitempty"`
	MAC       string   `json:"mac,omitempty"`
	PodMAC    string   `json:"pod_mac,omitempty"` // that the pod has in place of MAC
	Addresses []string `json:"addresses,omitempty"`
	Pod       string   `json:"pod,omitempty"`      // of an endpoint: the segment's
	Fraction  int      `json:"fraction,omitempty"` // of an endpoint
	// Since is when the NIC was attached. It is zero for endpoints, and for NICs of an earlier daemon.
	Since time.Time `json:"since,omitzero"`
}

// Share is a volume or shared memory of a guest.
type Share struct {
	Kind  string `json:"kind"`
	Pod   string `json:"pod"`
	Name  string `json:"name"`
	Port  int    `json:"port,omitempty"` // 0: in the guest's export, or being detached
	Bytes int64  `json:"bytes,omitempty"`
	Kept  bool   `json:"kept,omitempty"` // the guest did not give it up when it was detached
}

// Tenant is one tenant.
type Tenant struct {
	Name             string `json:"name"`
	Bridge           string `json:"bridge"`
	Attachments      int    `json:"attachments"`
	AddressesInUse   int    `json:"addresses_in_use"`
	AddressesCooling int    `json:"addresses_cooling"`
	Segments         int    `json:"segments"`
	// Policies is nil if the tenant has no networkPolicy.
	Policies *Policies `json:"policies,omitempty"`
	// PolicyClientExpires is when the certificate of the policy client expires, zero if there is none.
	PolicyClientExpires time.Time `json:"policy_client_expires,omitzero"`
}

// Policies are the network policies of a tenant.
type Policies struct {
	Bytes   int      `json:"bytes"`             // of the rules in the packet filter, at most
	Share   int      `json:"share"`             // of the packet filter, in bytes
	Refused []string `json:"refused,omitempty"` // namespaces that are too large: their isolated pods have no connections
	Unknown string   `json:"unknown,omitempty"` // why no pod has connections until the client is back
	Unkept  string   `json:"unkept,omitempty"`  // why no pod will have, after a restart
}

// Segment is one segment.
type Segment struct {
	Tenant     string     `json:"tenant"`
	Pod        string     `json:"pod"`
	TAP        string     `json:"tap"`
	Mode       string     `json:"mode"`
	Network    string     `json:"network,omitempty"`
	Generation uint32     `json:"generation"`
	Fractions  []Fraction `json:"fractions"`
	// Counts are by the sender's fraction, 0 for frames of an unknown sender. They start
	// at zero with the daemon.
	Counts map[segment.Fraction]Frames `json:"counts"`

	Members segment.Set `json:"-"`
}

// Fraction is one endpoint of a segment.
type Fraction struct {
	Fraction segment.Fraction `json:"fraction"`
	Guest    string           `json:"guest"`
	Member   bool             `json:"member"` // false while it joins or leaves
	// Silent: a member whose VM hangs or is stopped. The others do not wait for its refusals.
	Silent bool `json:"silent,omitempty"`
}

// Frames counts frames by what the segment did with them; see reflector.Counters.
type Frames struct {
	Frames    uint64 `json:"frames"` // passed on
	Bytes     uint64 `json:"bytes"`
	Broadcast uint64 `json:"broadcast"` // of the frames
	Spoofed   uint64 `json:"spoofed"`   // this and the following: dropped
	Limited   uint64 `json:"limited"`
	Oversize  uint64 `json:"oversize"`
	Unknown   uint64 `json:"unknown"`
	Full      uint64 `json:"full,omitempty"` // by a full queue of the TAP; of all senders, under fraction 0
}

// Dropped is how many frames were not passed on.
func (f Frames) Dropped() uint64 { return f.Spoofed + f.Limited + f.Oversize + f.Unknown + f.Full }

// Total adds up the counts of all fractions.
func (s Segment) Total() (all Frames) {
	for _, c := range s.Counts {
		all.Frames += c.Frames
		all.Bytes += c.Bytes
		all.Broadcast += c.Broadcast
		all.Spoofed += c.Spoofed
		all.Limited += c.Limited
		all.Oversize += c.Oversize
		all.Unknown += c.Unknown
		all.Full += c.Full
	}
	return all
}

// Detachment names a NIC that the operator takes from its pod.
type Detachment struct {
	Guest     string `json:"guest"`
	Container string `json:"container"`
	Interface string `json:"interface"`
	Endpoint  bool   `json:"endpoint,omitempty"` // of a segment
}
