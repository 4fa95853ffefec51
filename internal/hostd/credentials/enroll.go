package credentials

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostd/certificates"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/hostd/statefile"
	"unnest.io/unnest/internal/hostd/status"
)

// Enroll issues the credentials of a guest of the configuration, or of one that `unnest
// vm` has started with this state directory, writes them to the directory out in the
// plugin's form (ca.crt, client.crt, client.key), and records them in the state directory.
// Earlier credentials of the guest become invalid. A step that fails removes the files
// that Enroll has written.
func Enroll(stateDir string, p quota.Config, guest, out string) error {
	r, err := enrolling(stateDir, p, guest)
	if err != nil {
		return fmt.Errorf("enroll guest %q: %w", guest, err)
	}
	err = issue(stateDir, out, func(a *identity.Authority) (identity.Credentials, error) { return a.Issue(guest) }, func(c identity.Credentials) error {
		r.CertificateSHA256, r.CertificateSerial, r.CertificateExpires = c.Fingerprint, c.Serial, c.Expires
		return statefile.Write(record.Path(stateDir, guest), r)
	})
	if err != nil {
		return fmt.Errorf("enroll guest %s: %w", guest, err)
	}
	return nil
}

// issue has the authority issue credentials, and writes them to the directory out. Then keep tells the daemon of them. issue removes
// what it wrote if it fails: nobody must find a key that the daemon does not know.
func issue(stateDir, out string, issued func(*identity.Authority) (identity.Credentials, error), keep func(identity.Credentials) error) error {
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return err
	}
	authority, err := identity.OpenAuthority(stateDir)
	if err != nil {
		return err
	}
	c, err := issued(authority)
	if err != nil {
		return err
	}
	dir, err := openOutput(out)
	if err != nil {
		return err
	}
	defer dir.Close()
	written, err := writeCredentials(dir, authority, c)
	if err == nil {
		err = keep(c)
	}
	if err != nil {
		return errors.Join(err, removeAll(dir, written))
	}
	return nil
}

// openOutput opens a directory, which it makes if necessary, once: another user may own it
// and replace it.
func openOutput(out string) (*os.Root, error) {
	if err := os.MkdirAll(out, 0o700); err != nil {
		return nil, err
	}
	return os.OpenRoot(out)
}

// enrolling returns the record of a guest that may be enrolled. Of a guest of the
// configuration it has only the name.
func enrolling(stateDir string, p quota.Config, guest string) (record.Guest, error) {
	if i := slices.IndexFunc(p.Guests, func(g quota.Guest) bool { return g.Name == guest }); i >= 0 {
		return record.Guest{Name: guest, Credentials: p.Guests[i].Credentials}, nil
	}
	r, err := record.ReadEnrolled(stateDir, guest)
	if errors.Is(err, record.ErrNoRecord) || err == nil && r.Tenant == "" {
		return r, fmt.Errorf("%w: the configuration has none of the name, and no guest of `unnest vm` has a record in %s: "+
			"add it under guests, or name the state directory with --state", record.ErrNoRecord, stateDir)
	}
	if err == nil {
		err = r.Check()
	}
	return r, err
}

// writeCredentials writes the files of a guest, none of which may exist, and returns their
// names.
func writeCredentials(dir *os.Root, a *identity.Authority, c identity.Credentials) (written []string, err error) {
	for name, content := range map[string][]byte{
		identity.CAFile: a.CertificatePEM(), identity.CertificateFile: c.CertificatePEM, identity.KeyFile: c.KeyPEM,
	} {
		f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return written, err
		}
		written = append(written, name)
		_, err = f.Write(content)
		if err = errors.Join(err, f.Close()); err != nil {
			return written, err
		}
	}
	return written, nil
}

func removeAll(dir *os.Root, names []string) (err error) {
	for _, name := range names {
		err = errors.Join(err, dir.Remove(name))
	}
	return err
}

// Unenroll revokes the certificates of a guest and removes its record, so that a daemon
// that runs removes what it has of the guest. It is not an error if there is none.
func Unenroll(ctx context.Context, stateDir, guest string) error {
	if _, err := Revoke(ctx, stateDir, guest, ""); err != nil && !errors.Is(err, record.ErrNoRecord) {
		return err
	}
	return record.Remove(stateDir, guest)
}

// Revoke revokes the certificate of a guest that has a serial number, or all certificates
// if serial is empty, and returns those that were accepted until now. A daemon that runs
// ends their connections before Revoke returns; another reads it at its start. It takes a
// guest that has no certificate left out of the daemon's service until it is enrolled.
func Revoke(ctx context.Context, stateDir, guest, serial string) (revoked []certificates.Certificate, err error) {
	r, err := record.ReadEnrolled(stateDir, guest)
	if err != nil {
		return nil, err
	}
	if err := record.ChangeCertificates(stateDir, r, func(s certificates.Set) (certificates.Set, error) {
		s, revoked, err = s.Revoke(serial, time.Now())
		return s, err
	}); err != nil {
		return nil, err
	}
	return revoked, status.CheckConnections(ctx, stateDir)
}
