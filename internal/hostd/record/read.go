package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostd/quota"
)

// Read returns the record of a guest, completed from the configuration if the
// guest is in it. The name comes from outside, so it is checked before it becomes part
// of a path.
func Read(stateDir, guest string, configured []quota.Guest) (Guest, error) {
	r, err := ReadEnrolled(stateDir, guest)
	if err != nil {
		return Guest{}, err
	}
	for _, c := range configured {
		if c.Name == guest {
			r = Configured(c, r)
		}
	}
	if r.Tenant == "" { // it has only a certificate: the configuration had the rest
		return Guest{}, fmt.Errorf("%w: %s: the configuration does not have it", ErrNoRecord, guest)
	}
	if err := r.Check(); err != nil {
		return Guest{}, fmt.Errorf("read guest record %s: %w", Path(stateDir, guest), err)
	}
	return r, nil
}

// ReadEnrolled returns the record of a guest as it is in its file: of a guest of the
// configuration it has only the certificate.
func ReadEnrolled(stateDir, guest string) (Guest, error) {
	if err := identity.CheckGuestName(guest); err != nil {
		return Guest{}, err
	}
	path := Path(stateDir, guest)
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Guest{}, fmt.Errorf("%w: %s", ErrNoRecord, guest)
	}
	if err != nil {
		return Guest{}, fmt.Errorf("read guest record: %w", err)
	}
	var r Guest
	if err := json.Unmarshal(content, &r); err != nil {
		return Guest{}, fmt.Errorf("read guest record %s: %w", path, err)
	}
	if r.Name != guest {
		return Guest{}, fmt.Errorf("read guest record %s: name %q: want %q", path, r.Name, guest)
	}
	return r, nil
}

// Configured returns the record of a guest of the configuration with the certificate
// of its enrolment.
func Configured(c quota.Guest, enrolled Guest) Guest {
	r := Guest{
		Name: c.Name, Tenant: c.Tenant, Index: c.Index, QMP: c.QMP, Ports: c.Ports, Pool: c.Pool,
		CertificateSHA256: enrolled.CertificateSHA256, CertificateSerial: enrolled.CertificateSerial, CertificateExpires: enrolled.CertificateExpires,
		NICs: []BootNIC{{TAP: c.TAP, MAC: c.MAC, Addresses: c.Addresses, DHCP: true}}, Export: c.Export, Unguarded: c.Unguarded,
		Credentials: c.Credentials, Node: c.Node,
	}
	if c.Libvirt != nil {
		r.Libvirt = &Domain{Socket: c.Libvirt.Socket, Name: c.Libvirt.Domain}
	}
	return r
}

// Names lists the guests that have a record. The error wraps fs.ErrNotExist before the first.
func Names(stateDir string) ([]string, error) {
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

// Remove removes the record of a guest with its certificates, none of which is accepted
// after that, also if the guest is enrolled again.
func Remove(stateDir, guest string) error {
	dir := filepath.Dir(Path(stateDir, guest))
	for _, path := range []string{Path(stateDir, guest), CertificatesPath(stateDir, guest), BootPath(stateDir, guest)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove record of guest %s: %w", guest, err)
		}
	}
	_ = os.Remove(dir) // it may have files of others
	return nil
}

// Has reports whether a guest of a name that was not in the configuration, such as one
// of `unnest vm`, has a record in the state directory.
func Has(stateDir, guest string) bool {
	r, err := ReadEnrolled(stateDir, guest)
	return err == nil && r.Tenant != ""
}

// FreeIndex returns the lowest index that no guest has, of the configuration or with a
// record in the state directory.
func FreeIndex(stateDir string, p quota.Config) (int, error) {
	taken := map[int]bool{}
	for _, g := range p.Guests {
		taken[g.Index] = true
	}
	names, err := Names(stateDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	for _, name := range names {
		if r, err := ReadEnrolled(stateDir, name); err == nil {
			taken[r.Index] = true
		}
	}
	for i := 1; i <= maxIndex; i++ {
		if !taken[i] {
			return i, nil
		}
	}
	return 0, fmt.Errorf("choose an index: all %d are taken", maxIndex)
}

// Addresses are the guest's own.
func (g Guest) Addresses() (all []netip.Addr) {
	for _, n := range g.NICs {
		all = append(all, n.Addresses...)
	}
	return all
}
