package daemon

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"time"

	"unnest/internal/hostapi/identity"
	"unnest/internal/hostd/policy"
)

// GuestRecord describes a guest to the daemon. Whoever starts the guest writes it once
// the VMM can be reached, and removes it with the guest. The daemon reads it at each
// request. For a guest of the configuration file it holds only the certificate (Enroll);
// the rest is in that file.
type GuestRecord struct {
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
	// VHostPoll is that of the guest's NICs in place of the tenant's (policy.Tenant). 0: the
	// tenant's.
	VHostPoll time.Duration `json:"vhost_poll_ns,omitempty"`
	// Export is the directory that the guest mounts by 9p, for volumes.
	Export string `json:"export,omitempty"`
	// Credentials is policy.CredentialsVMM if the daemon hands the guest its credentials. In
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

// RecordPath returns the path of a guest's record.
func RecordPath(stateDir, guest string) string {
	return filepath.Join(stateDir, "guests", guest, "guest.json")
}

// WriteRecord writes r to its place in a state directory, whole or not at all,
// and creates missing directories. A guest that gets its credentials from the VMM needs no
// certificate before.
func WriteRecord(stateDir string, r GuestRecord) error {
	path := RecordPath(stateDir, r.Name)
	if r.Credentials == policy.CredentialsVMM && r.CertificateSHA256 == "" {
		if err := r.beginSet(stateDir); err != nil {
			return fmt.Errorf("write guest record %s: %w", path, err)
		}
	}
	if err := r.check(); err != nil {
		return fmt.Errorf("write guest record %s: %w", path, err)
	}
	return writeJSON(path, r)
}

// writeJSON writes a file that only root can read, whole or not at all, also when the
// host fails.
func writeJSON(path string, v any) error {
	content, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(append(content, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := syncDirectory(filepath.Dir(path)); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// syncDirectory makes a rename in a directory last.
func syncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// readRecord returns the record of a guest, completed from the configuration if the
// guest is in it. The name comes from outside, so it is checked before it becomes part
// of a path.
func readRecord(stateDir, guest string, configured []policy.Guest) (GuestRecord, error) {
	r, err := readEnrolled(stateDir, guest)
	if err != nil {
		return GuestRecord{}, err
	}
	for _, c := range configured {
		if c.Name == guest {
			r = configuredRecord(c, r)
		}
	}
	if r.Tenant == "" { // it has only a certificate: the configuration had the rest
		return GuestRecord{}, fmt.Errorf("%w: %s: the configuration does not have it", ErrNoRecord, guest)
	}
	if err := r.check(); err != nil {
		return GuestRecord{}, fmt.Errorf("read guest record %s: %w", RecordPath(stateDir, guest), err)
	}
	return r, nil
}

// readEnrolled returns the record of a guest as it is in its file: of a guest of the
// configuration it has only the certificate.
func readEnrolled(stateDir, guest string) (GuestRecord, error) {
	if err := identity.CheckGuestName(guest); err != nil {
		return GuestRecord{}, err
	}
	path := RecordPath(stateDir, guest)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return GuestRecord{}, fmt.Errorf("%w: %s", ErrNoRecord, guest)
	}
	if err != nil {
		return GuestRecord{}, fmt.Errorf("read guest record: %w", err)
	}
	var r GuestRecord
	if err := json.Unmarshal(content, &r); err != nil {
		return GuestRecord{}, fmt.Errorf("read guest record %s: %w", path, err)
	}
	if r.Name != guest {
		return GuestRecord{}, fmt.Errorf("read guest record %s: name %q: want %q", path, r.Name, guest)
	}
	return r, nil
}

// configuredRecord returns the record of a guest of the configuration with the certificate
// of its enrolment.
func configuredRecord(c policy.Guest, enrolled GuestRecord) GuestRecord {
	r := GuestRecord{
		Name: c.Name, Tenant: c.Tenant, Index: c.Index, QMP: c.QMP, Ports: c.Ports, Pool: c.Pool,
		CertificateSHA256: enrolled.CertificateSHA256, CertificateSerial: enrolled.CertificateSerial, CertificateExpires: enrolled.CertificateExpires,
		NICs: []BootNIC{{TAP: c.TAP, MAC: c.MAC, Addresses: c.Addresses, DHCP: true}}, Export: c.Export, Unguarded: c.Unguarded,
		Credentials: c.Credentials,
	}
	if c.Libvirt != nil {
		r.Libvirt = &Domain{Socket: c.Libvirt.Socket, Name: c.Libvirt.Domain}
	}
	return r
}

// maxIndex keeps a TAP's name within 15 bytes.
const maxIndex = 36*36 - 1

func (r GuestRecord) check() error {
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
	case r.VHostPoll < 0 || r.VHostPoll > policy.MaxVHostPoll:
		return fmt.Errorf("vhost_poll_ns %d: want 0 to %d", r.VHostPoll, policy.MaxVHostPoll)
	case r.Pool < 0:
		return fmt.Errorf("pool %d: want 0 or more", r.Pool)
	case (r.QMP == "") == (r.Libvirt == nil):
		return errors.New("want one of qmp and libvirt")
	case r.Libvirt == nil && !filepath.IsAbs(r.QMP):
		return fmt.Errorf("qmp %q: want an absolute path", r.QMP)
	case r.Credentials != "" && r.Credentials != policy.CredentialsVMM:
		return fmt.Errorf("credentials %q: want %s or none", r.Credentials, policy.CredentialsVMM)
	case r.Export != "" && (!filepath.IsAbs(r.Export) || filepath.Clean(r.Export) != r.Export):
		return fmt.Errorf("export %q: want an absolute path", r.Export)
	case err != nil || len(sum) != 32:
		return fmt.Errorf("certificate_sha256 %q: want 64 hex digits", r.CertificateSHA256)
	}
	for _, n := range r.NICs {
		if _, err := net.ParseMAC(n.MAC); n.TAP != "" && (err != nil || checkInterface(n.TAP) != nil) {
			return fmt.Errorf("nics: TAP %q with MAC %q: want an interface's name and a MAC", n.TAP, n.MAC)
		}
	}
	return nil
}

// tapPrefix returns the prefix of the guest's TAPs: "u1n3-1" is the first NIC in slot 3
// of the guest with index 1. The index is in base 36.
func (r GuestRecord) tapPrefix() string { return "u" + strconv.FormatInt(int64(r.Index), 36) + "n" }

// vlanPrefix returns the prefix of the ports of the guest's VLANs.
func (r GuestRecord) vlanPrefix() string { return "u" + strconv.FormatInt(int64(r.Index), 36) + "v" }

// macPrefix returns the prefix of the guest's MACs: locally administered, unicast.
func (r GuestRecord) macPrefix() [3]byte {
	return [3]byte{0x0a, byte(r.Index >> 8), byte(r.Index)}
}

func guestNames(stateDir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(stateDir, "guests"))
	if err != nil {
		return nil, fmt.Errorf("list guests: %w", err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// same reports whether two records describe the same run of a guest.
func (r GuestRecord) same(other GuestRecord) bool { return reflect.DeepEqual(r, other) }
