package record

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostd/certificates"
	"unnest.io/unnest/internal/hostd/statefile"
)

// This file keeps the set of a guest's certificates. It is in the guest's directory once
// one was renewed or revoked; before that, the record has the only one. Processes change it
// under a lock, and the daemon reads it for each request.

// CertificatesPath returns the path of the file with a guest's certificates.
func CertificatesPath(stateDir, guest string) string {
	return filepath.Join(filepath.Dir(Path(stateDir, guest)), "certificates.json")
}

// Certificates returns the certificates of a guest. A file that began with another
// certificate than the record's is of an earlier guest, or from before it was enrolled
// again.
func Certificates(stateDir string, r Guest) (certificates.Set, error) {
	path := CertificatesPath(stateDir, r.Name)
	enrolled := certificates.New(certificates.Certificate{SHA256: r.CertificateSHA256, Serial: r.CertificateSerial, Expires: r.CertificateExpires})
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return enrolled, nil
	}
	var s certificates.Set
	if err == nil {
		err = json.Unmarshal(content, &s)
	}
	if err != nil {
		return s, fmt.Errorf("read certificates of guest %s in %s: %w; run unnest hostd enroll %s to issue a new one", r.Name, path, err, r.Name)
	}
	if s.Enrolled != r.CertificateSHA256 {
		return enrolled, nil
	}
	return s, nil
}

// ChangeCertificates changes the certificates of a guest. Other processes that do so wait.
func ChangeCertificates(stateDir string, r Guest, change func(certificates.Set) (certificates.Set, error)) error {
	path := CertificatesPath(stateDir, r.Name)
	return statefile.WhileLocked(filepath.Dir(path), func() error {
		s, err := Certificates(stateDir, r)
		if err == nil {
			s, err = change(s)
		}
		if err != nil {
			return err
		}
		return statefile.Write(path, s)
	})
}

// BeginSet begins an empty set of certificates for the guest, before its record is written.
func (r *Guest) BeginSet(stateDir string) error {
	if err := identity.CheckGuestName(r.Name); err != nil {
		return err
	}
	id := make([]byte, 32)
	if _, err := rand.Read(id); err != nil {
		return err
	}
	r.CertificateSHA256 = hex.EncodeToString(id)
	return statefile.Write(CertificatesPath(stateDir, r.Name), certificates.Set{Enrolled: r.CertificateSHA256})
}
