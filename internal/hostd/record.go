package hostd

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"unnest/internal/identity"
)

// GuestRecord is what the daemon knows of a guest. Whoever starts the guest
// writes it, when the QMP socket is there, and removes it with the guest; the
// daemon reads it at each request.
type GuestRecord struct {
	Name  string `json:"name"`  // as in the guest's certificate
	Index int    `json:"index"` // 1 to 1295, no other guest of the lab has it; it is part of TAPs' names and MACs
	PID   int    `json:"pid"`   // of the VMM, for people
	QMP   string `json:"qmp"`   // unix socket that only the daemon uses
	Slots int    `json:"slots"` // free pcie-root-ports with the IDs rp1 to rpN, N from 0 to 255
	// Bridge is the host's bridge for the guest's NICs. It needs a MAC that was
	// set by hand: else that follows its ports.
	Bridge string `json:"bridge"`
	MTU    int    `json:"mtu"` // of the NICs, bytes
	// CertificateSHA256 is the fingerprint of the certificate issued to this
	// guest (identity.Credentials). An earlier guest's of the same name differs.
	CertificateSHA256 string `json:"certificate_sha256"`
}

// ErrNoRecord is wrapped when the lab has no guest of the name.
var ErrNoRecord = errors.New("no such guest")

// RecordPath is where the record of a guest is.
func RecordPath(stateDir, guest string) string {
	return filepath.Join(stateDir, "guests", guest, "guest.json")
}

// WriteRecord writes r to its place in a lab's state directory, whole or not at
// all, and makes the directories on the way.
func WriteRecord(stateDir string, r GuestRecord) error {
	path := RecordPath(stateDir, r.Name)
	if err := r.check(r.Name); err != nil {
		return fmt.Errorf("write guest record %s: %w", path, err)
	}
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write guest record %s: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("write guest record: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write guest record: %w", err)
	}
	_, err = f.Write(append(content, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write guest record: %w", err)
	}
	return nil
}

// readRecord reads and checks the record of a guest. The name comes from
// outside; it is checked before it becomes part of a path.
func readRecord(stateDir, guest string) (GuestRecord, error) {
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
	if err := r.check(guest); err != nil {
		return GuestRecord{}, fmt.Errorf("read guest record %s: %w", path, err)
	}
	return r, nil
}

// maxIndex keeps a TAP's name within 15 bytes.
const maxIndex = 36*36 - 1

func (r GuestRecord) check(name string) error {
	switch sum, err := hex.DecodeString(r.CertificateSHA256); {
	case r.Name != name:
		return fmt.Errorf("name %q: want %q", r.Name, name)
	case identity.CheckGuestName(name) != nil:
		return identity.CheckGuestName(name)
	case r.Index < 1 || r.Index > maxIndex:
		return fmt.Errorf("index %d: want 1 to %d", r.Index, maxIndex)
	case r.Slots < 0 || r.Slots > 255:
		return fmt.Errorf("slots %d: want 0 to 255", r.Slots)
	case r.MTU < 68 || r.MTU > 65535:
		return fmt.Errorf("mtu %d: want 68 to 65535", r.MTU)
	case !filepath.IsAbs(r.QMP):
		return fmt.Errorf("qmp %q: want an absolute path", r.QMP)
	case checkInterface(r.Bridge) != nil:
		return fmt.Errorf("bridge: %w", checkInterface(r.Bridge))
	case err != nil || len(sum) != 32:
		return fmt.Errorf("certificate_sha256 %q: want 64 hex digits", r.CertificateSHA256)
	}
	return nil
}

// tapPrefix begins the names of the guest's TAPs, between two letters: "u1n3-1"
// is the first NIC in slot 3 of the guest with index 1. The index is in base 36.
func (r GuestRecord) tapPrefix() string {
	return "u" + strconv.FormatInt(int64(r.Index), 36) + "n"
}

// macPrefix begins the guest's MACs: locally administered, unicast.
func (r GuestRecord) macPrefix() [3]byte {
	return [3]byte{0x0a, byte(r.Index >> 8), byte(r.Index)}
}

// guestNames lists the guests that may have a record.
func guestNames(stateDir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(stateDir, "guests"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list guests: %w", err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}
