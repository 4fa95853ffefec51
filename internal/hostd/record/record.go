// Package record reads and writes what the state directory has of a guest: its record and its
// certificates. Whoever starts a guest outside the configuration writes its record.
package record

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"strconv"
	"time"

	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/statefile"
	"unnest.io/unnest/internal/netdev/link"
)

// Guest describes a guest to the daemon. Whoever starts the guest writes it once
// the VMM can be reached, and removes it with the guest. The daemon reads it at each
// request. For a guest of the configuration file it holds only the certificate (Enroll);
// the rest is in that file.
type Guest struct {
	Name   string `json:"name"` // as in the guest's certificate
	Tenant string `json:"tenant,omitempty"`
	Index  int    `json:"index,omitempty"` // 1 to 1295, unique on the host; part of the names of TAPs and of MACs
	PID    int    `json:"pid,omitempty"`   // of the VMM; used if the VMM does not answer
	// QMP is a unix socket that only the daemon uses. Ports are the IDs of the
	// pcie-root-ports for hot-plugged NICs, in the order of the slots; empty: the daemon
	// discovers them.
	QMP     string   `json:"qmp,omitempty"`
	Ports   []string `json:"ports,omitempty"`
	Libvirt *Domain  `json:"libvirt,omitempty"` // instead of QMP
	Pool    int      `json:"pool"`              // warm NICs to keep
	// CertificateSHA256 is the fingerprint of the certificate issued to this
	// guest (identity.Credentials), or 64 random hex digits if the daemon has enrolled it. An
	// earlier guest of the same name has another. Those that the guest has renewed it by, or
	// that the VMM has handed to it, are in a file of their own.
	CertificateSHA256  string    `json:"certificate_sha256"`
	CertificateSerial  string    `json:"certificate_serial,omitempty"` // empty: not known
	CertificateExpires time.Time `json:"certificate_expires,omitzero"` // zero: known once the guest has called
	// NICs are the NICs that the guest has from its start. They may send from their
	// own addresses only, and no pod gets these.
	NICs []BootNIC `json:"nics,omitempty"`
	// Unguarded lets NICs without a TAP in this record send anything.
	Unguarded bool `json:"unguarded,omitempty"`
	// VHostPoll and Queues are those of the guest's NICs in place of the tenant's (quota.Tenant). 0: the
	// tenant's.
	VHostPoll time.Duration `json:"vhost_poll_ns,omitempty"`
	Queues    int           `json:"queues,omitempty"`
	// Export is the directory that the guest mounts by 9p, for volumes.
	Export string `json:"export,omitempty"`
	Node   string `json:"node,omitempty"` // in the tenant's Kubernetes cluster; empty: Name
	// Credentials is quota.CredentialsVMM if the daemon hands the guest its credentials. In
	// a record without tenant it says that they end with the guest's entry in the
	// configuration.
	Credentials string `json:"credentials,omitempty"`
}

// Domain identifies a guest of libvirt.
type Domain struct {
	Socket string `json:"socket"` // of libvirtd
	Name   string `json:"name"`
}

// BootNIC is a NIC that a guest has from its start.
type BootNIC struct {
	TAP       string       `json:"tap,omitempty"` // empty: the daemon asks the VMM
	MAC       string       `json:"mac,omitempty"`
	Addresses []netip.Addr `json:"addresses"`
	DHCP      bool         `json:"dhcp,omitempty"` // it may ask a DHCP server for an address
}

// ErrNoRecord is wrapped when there is no guest of the name.
var ErrNoRecord = errors.New("no such guest")

// Path returns the path of a guest's record.
func Path(stateDir, guest string) string {
	return filepath.Join(stateDir, "guests", guest, "guest.json")
}

// Write writes r to its place in a state directory, whole or not at all,
// and creates missing directories. A guest that gets its credentials from the VMM needs no
// certificate before.
func Write(stateDir string, r Guest) error {
	path := Path(stateDir, r.Name)
	if r.Credentials == quota.CredentialsVMM && r.CertificateSHA256 == "" {
		if err := r.BeginSet(stateDir); err != nil {
			return fmt.Errorf("write guest record %s: %w", path, err)
		}
	}
	if err := r.Check(); err != nil {
		return fmt.Errorf("write guest record %s: %w", path, err)
	}
	return statefile.Write(path, r)
}

// maxIndex keeps a TAP's name within 15 bytes.
const maxIndex = 36*36 - 1

// Check returns an error unless a record is complete and within its bounds.
func (r Guest) Check() error {
	sum, err := hex.DecodeString(r.CertificateSHA256)
	switch {
	case identity.CheckGuestName(r.Name) != nil:
		return identity.CheckGuestName(r.Name)
	case r.Tenant == "":
		return errors.New("tenant is missing")
	case r.Index < 1 || r.Index > maxIndex:
		return fmt.Errorf("index %d: want 1 to %d", r.Index, maxIndex)
	case len(r.Ports) > 255:
		return fmt.Errorf("%d ports: want at most 255", len(r.Ports))
	case r.VHostPoll < 0 || r.VHostPoll > quota.MaxVHostPoll:
		return fmt.Errorf("vhost_poll_ns %d: want 0 to %d", r.VHostPoll, quota.MaxVHostPoll)
	case r.Queues < 0 || r.Queues > quota.MaxQueues:
		return fmt.Errorf("queues %d: want 0 to %d", r.Queues, quota.MaxQueues)
	case r.Pool < 0:
		return fmt.Errorf("pool %d: want 0 or more", r.Pool)
	case (r.QMP == "") == (r.Libvirt == nil):
		return errors.New("want one of qmp and libvirt")
	case r.Libvirt == nil && !filepath.IsAbs(r.QMP):
		return fmt.Errorf("qmp %q: want an absolute path", r.QMP)
	case r.Credentials != "" && r.Credentials != quota.CredentialsVMM:
		return fmt.Errorf("credentials %q: want %s or none", r.Credentials, quota.CredentialsVMM)
	case r.Export != "" && (!filepath.IsAbs(r.Export) || filepath.Clean(r.Export) != r.Export):
		return fmt.Errorf("export %q: want an absolute path", r.Export)
	case err != nil || len(sum) != 32:
		return fmt.Errorf("certificate_sha256 %q: want 64 hex digits", r.CertificateSHA256)
	}
	for _, n := range r.NICs {
		if _, err := net.ParseMAC(n.MAC); n.TAP != "" && (err != nil || link.CheckName(n.TAP) != nil) {
			return fmt.Errorf("nics: TAP %q with MAC %q: want an interface's name and a MAC", n.TAP, n.MAC)
		}
	}
	return nil
}

// TAPPrefix returns the prefix of the guest's TAPs: "u1n3-1" is the first NIC in slot 3
// of the guest with index 1. The index is in base 36.
func (r Guest) TAPPrefix() string { return "u" + strconv.FormatInt(int64(r.Index), 36) + "n" }

// VLANPrefix returns the prefix of the ports of the guest's VLANs.
func (r Guest) VLANPrefix() string { return "u" + strconv.FormatInt(int64(r.Index), 36) + "v" }

// NodeName returns the guest's node in the tenant's Kubernetes cluster.
func (r Guest) NodeName() string { return cmp.Or(r.Node, r.Name) }

// MACPrefix returns the prefix of the guest's MACs: locally administered, unicast.
func (r Guest) MACPrefix() [3]byte {
	return [3]byte{0x0a, byte(r.Index >> 8), byte(r.Index)}
}

// Same reports whether two records describe the same run of a guest.
func (r Guest) Same(other Guest) bool { return reflect.DeepEqual(r, other) }

// Owner names an attachment of the guest for the tenant's addresses.
func (r Guest) Owner(key attachment.Key) string { return r.Name + "/" + key.String() }
