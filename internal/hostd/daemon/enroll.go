package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"unnest/internal/hostapi/identity"
	"unnest/internal/hostd/policy"
)

// Enroll issues the credentials of a guest of the configuration, writes them to
// the directory out in the plugin's form (ca.crt, client.crt, client.key), and records
// them in the state directory. Earlier credentials of the guest become invalid. A step
// that fails removes the files that Enroll has written.
func Enroll(stateDir string, p policy.Policy, guest, out string) error {
	known := false
	for _, g := range p.Guests {
		known = known || g.Name == guest
	}
	if !known {
		return fmt.Errorf("enroll guest %q: the configuration has no such guest: add it under guests", guest)
	}
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return fmt.Errorf("enroll guest %s: %w", guest, err)
	}
	authority, err := identity.OpenAuthority(stateDir)
	if err != nil {
		return err
	}
	credentials, err := authority.Issue(guest)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o700); err != nil {
		return fmt.Errorf("enroll guest %s: %w", guest, err)
	}
	var written []string
	for name, content := range map[string][]byte{
		identity.CAFile:          authority.CertificatePEM(),
		identity.CertificateFile: credentials.CertificatePEM,
		identity.KeyFile:         credentials.KeyPEM,
	} {
		path := filepath.Join(out, name)
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			written = append(written, path)
			_, err = f.Write(content)
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			return errors.Join(fmt.Errorf("enroll guest %s: %w", guest, err), removeAll(written))
		}
	}
	// The plugin must not find a key that the daemon does not know.
	if err := writeJSON(RecordPath(stateDir, guest), GuestRecord{Name: guest, CertificateSHA256: credentials.Fingerprint, CertificateExpires: credentials.Expires}); err != nil {
		return errors.Join(fmt.Errorf("enroll guest %s: %w", guest, err), removeAll(written))
	}
	return nil
}

func removeAll(paths []string) (err error) {
	for _, p := range paths {
		err = errors.Join(err, os.Remove(p))
	}
	return err
}
