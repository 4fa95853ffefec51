package identity

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Files are the content of a guest's credentials directory, in PEM.
type Files struct{ CA, Certificate, Key []byte }

// Check returns an error unless the files are credentials of a guest that are valid now.
func (f Files) Check() error {
	pair, err := tls.X509KeyPair(f.Certificate, f.Key)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(f.CA) {
		return fmt.Errorf("%s has no certificate", CAFile)
	}
	if _, err := nameOf(pair.Leaf); err != nil {
		return err
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
}

// SameGuest reports whether the credentials in dir can be used now, and are of the guest and
// the authority of f. The error says why they cannot be used.
func (f Files) SameGuest(dir string) (bool, error) {
	ca, err := os.ReadFile(filepath.Join(dir, CAFile))
	if err != nil {
		return false, err
	}
	config, err := ClientConfig(dir)
	if err != nil {
		return false, err
	}
	present := config.Certificates[0].Leaf
	next, err := tls.X509KeyPair(f.Certificate, f.Key)
	if err != nil {
		return false, err
	}
	if _, err := present.Verify(x509.VerifyOptions{Roots: config.RootCAs, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return false, err
	}
	was, err := nameOf(present)
	if err != nil {
		return false, err
	}
	is, err := nameOf(next.Leaf)
	return was == is && bytes.Equal(bytes.TrimSpace(ca), bytes.TrimSpace(f.CA)), err
}

// Install makes f the credentials in dir, which it makes if necessary. Each file is there
// whole or not at all, and only its owner can read it. If the system fails in between,
// Install has to be called again.
func (f Files) Install(dir string) error {
	if err := f.Check(); err != nil {
		return fmt.Errorf("refuse credentials: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("install credentials: %w", err)
	}
	var err error
	for _, file := range []struct {
		name    string
		content []byte
	}{{CAFile, f.CA}, {KeyFile, f.Key}, {CertificateFile, f.Certificate}} {
		if err == nil {
			err = writeSynced(filepath.Join(dir, file.name+nextSuffix), file.content)
		}
	}
	for _, name := range []string{CAFile, KeyFile, CertificateFile} {
		if err == nil {
			err = os.Rename(filepath.Join(dir, name+nextSuffix), filepath.Join(dir, name))
		}
	}
	if err == nil {
		err = SyncDirectory(dir)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("install credentials: %w", err), removeNext(dir))
	}
	return nil
}

func removeNext(dir string) (err error) {
	for _, name := range []string{CAFile, KeyFile, CertificateFile} {
		if e := os.Remove(filepath.Join(dir, name+nextSuffix)); !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}
