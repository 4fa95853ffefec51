// Package attachment names what a guest can be given (a NIC, an endpoint of a
// segment, a volume, shared memory), says how it is set up, and encodes both for the
// alias of the NIC's TAP.
//
// The host's devices are the daemon's only store. So everything that the next daemon
// must know about a NIC is in its alias. Encode a Record where a device is written and
// decode it where a device is read; everywhere else it is a value.
//
// Who may have an attachment and how it is made do not belong here.
package attachment

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"

	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/hostd/quota"
)

// Kind is what is attached.
type Kind uint8

// The kinds.
const (
	NIC      Kind = iota // a NIC of a pod, on a bridge (BrFusion: Bacou et al. 2019, §3)
	Trunk                // the guest's NIC that carries the VLANs of its pods
	Endpoint             // a NIC of a pod, on a segment (Hostlo: Bacou et al. 2019, §4)
	Volume               // a directory of the host that a pod shares (§4.3)
	Memory               // memory that a pod shares (§4.3)
)

// Key names one attachment of a guest. A container's interface can be both a NIC and
// an endpoint; these are two attachments.
type Key struct {
	Kind  Kind
	Owner string // the container's ID; of a volume or memory, the pod
	Name  string // of the interface in the container; of the volume or memory in the pod
}

// TrunkKey is the key of a guest's trunk NIC. A container cannot have it, because
// a container ID begins with a letter or a digit.
var TrunkKey = Key{Kind: Trunk, Owner: "@trunk", Name: "trunk"}

// String returns "OWNER/NAME" for a NIC and "volume.NAME.OWNER" for a volume. The
// latter is also the device's ID in the VMM.
func (k Key) String() string {
	switch k.Kind {
	case Volume:
		return "volume." + k.Name + "." + k.Owner
	case Memory:
		return "memory." + k.Name + "." + k.Owner
	case Endpoint:
		return "endpoint " + k.Owner + "/" + k.Name
	}
	return k.Owner + "/" + k.Name
}

// ParseKey returns the key of a NIC or an endpoint from its String.
func ParseKey(s string) (k Key) {
	s, endpoint := strings.CutPrefix(s, "endpoint ")
	if endpoint {
		k.Kind = Endpoint
	}
	k.Owner, k.Name, _ = strings.Cut(s, "/")
	return k
}

// Validate returns an error unless k can be written into an alias and read back.
func (k Key) Validate() error {
	if !validName(k.Owner) || !validName(k.Name) {
		return fmt.Errorf("attachment %q: want a container ID and an interface name in printable ASCII without blank and slash", k)
	}
	return checkLength(k, Record{})
}

func validName(s string) bool { return s != "" && printable(s) && !strings.Contains(s, "/") }

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// Record is how an attachment is set up. The zero Record says nothing.
type Record struct {
	Network string // name of the CNI network
	Since   int64  // of a NIC: when it was first attached, in seconds of Unix; 0: not known

	// Of a NIC.
	Bridge    string
	Addresses []netip.Prefix // from which the pod may send
	Services  []netip.Addr   // from which the guest may send, by its own NIC, for the pod
	DHCP      bool           // the pod may ask for an address
	MTU       int            // bytes, as the pod was told
	MAC       string         // of the pod, in lower case; empty: the NIC's
	Bandwidth quota.Bandwidth
	// PodUID is the Kubernetes pod's, as its guest has said, or NoPod. Empty: an earlier daemon
	// has not kept it, or nobody needs it.
	PodUID string

	// Of an endpoint.
	Pod      string // whose segment it is
	Fraction segment.Fraction
	OwnMAC   bool // the NIC has the MAC of its slot instead of the fraction's
}

// NoPod is the PodUID of a NIC that was attached for no Kubernetes pod.
const NoPod = "-"

// MaxPodUID is the longest UID of a pod, in bytes. Kubernetes' have 36, and 32 for static pods.
const MaxPodUID = 64

// IsPodUID reports whether a text can be the UID of a Kubernetes pod.
func IsPodUID(s string) bool {
	return s != "" && s != NoPod && len(s) <= MaxPodUID && !strings.ContainsFunc(s, func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	})
}

// IsZero reports whether r says nothing.
func (r Record) IsZero() bool { return r.Equal(Record{}) }

// Equal reports whether r and other say the same.
func (r Record) Equal(other Record) bool { return reflect.DeepEqual(r, other) }

// Addrs returns the addresses without their prefix lengths.
func (r Record) Addrs() []netip.Addr {
	all := make([]netip.Addr, len(r.Addresses))
	for i, a := range r.Addresses {
		all[i] = a.Addr()
	}
	return all
}
