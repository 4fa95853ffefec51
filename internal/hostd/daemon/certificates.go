package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"unnest/internal/hostd/certificates"
)

// This file keeps the set of a guest's certificates. It is in the guest's directory once
// one was renewed or revoked; before that, the record has the only one. Processes change it
// under a lock, and the daemon reads it for each request.

func certificatesPath(stateDir, guest string) string {
	return filepath.Join(filepath.Dir(RecordPath(stateDir, guest)), "certificates.json")
}

// readCertificates returns the certificates of a guest. A file that began with another
// certificate than the record's is of an earlier guest, or from before it was enrolled
// again.
func readCertificates(stateDir string, r GuestRecord) (certificates.Set, error) {
	path := certificatesPath(stateDir, r.Name)
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

// changeCertificates changes the certificates of a guest. Other processes that do so wait.
func changeCertificates(stateDir string, r GuestRecord, change func(certificates.Set) (certificates.Set, error)) error {
	path := certificatesPath(stateDir, r.Name)
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("lock certificates of guest %s: %w", r.Name, err)
	}
	defer dir.Close() // ends the lock
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("lock certificates of guest %s: %w", r.Name, err)
	}
	s, err := readCertificates(stateDir, r)
	if err == nil {
		s, err = change(s)
	}
	if err != nil {
		return err
	}
	return writeJSON(path, s)
}
