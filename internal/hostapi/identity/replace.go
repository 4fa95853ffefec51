package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// nextSuffix is that of the files that a renewal has written and not yet renamed.
const nextSuffix = ".new"

// loadTries is how often loadPair reads certificate and key, which a renewal may replace
// in between.
const loadTries = 5

// loadPair reads the certificate and the key in dir. Replace renames the key first, so a
// key that does not match belongs to the certificate that is not yet renamed.
func loadPair(dir string) (pair tls.Certificate, err error) {
	certificate, key := filepath.Join(dir, CertificateFile), filepath.Join(dir, KeyFile)
	for range loadTries {
		if pair, err = tls.LoadX509KeyPair(certificate, key); err == nil || errors.Is(err, fs.ErrNotExist) {
			return pair, err
		}
		if next, nextErr := tls.LoadX509KeyPair(certificate+nextSuffix, key); nextErr == nil {
			return next, nil
		}
		time.Sleep(time.Millisecond)
	}
	return pair, err
}

// PrepareReplace writes the key of a renewal to dir, before the daemon is asked for its
// certificate: a directory that cannot be written is found first.
func PrepareReplace(dir string, keyPEM []byte) error {
	if err := writeSynced(filepath.Join(dir, KeyFile+nextSuffix), keyPEM); err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	return nil
}

// Replace makes the key of PrepareReplace and its certificate, in DER, the credentials in
// dir. ClientConfig finds the old pair or the new one at every moment, also if the system
// fails in between. Replace refuses a certificate that does not belong to the key, is of
// another authority or guest, or is not valid now.
func Replace(dir string, certificate []byte) error {
	key, file := filepath.Join(dir, KeyFile), filepath.Join(dir, CertificateFile)
	content := encodeCertificate(certificate)
	if err := checkNext(dir, content); err != nil {
		return fmt.Errorf("refuse the new certificate: %w", err)
	}
	err := writeSynced(file+nextSuffix, content)
	if err == nil {
		err = os.Rename(key+nextSuffix, key)
	}
	if err == nil {
		err = os.Rename(file+nextSuffix, file)
	}
	if err == nil {
		err = SyncDirectory(dir)
	}
	if err != nil {
		return fmt.Errorf("replace credentials: %w", err)
	}
	return nil
}

// DropReplace removes the key of a renewal that has failed.
func DropReplace(dir string) { _ = os.Remove(filepath.Join(dir, KeyFile+nextSuffix)) }

func checkNext(dir string, certificatePEM []byte) error {
	key, err := os.ReadFile(filepath.Join(dir, KeyFile+nextSuffix))
	if err != nil {
		return err
	}
	next, err := tls.X509KeyPair(certificatePEM, key)
	if err != nil {
		return err
	}
	present, err := ClientConfig(dir)
	if err != nil {
		return err
	}
	want, err := nameOf(present.Certificates[0].Leaf)
	if err != nil {
		return err
	}
	if name, err := nameOf(next.Leaf); err != nil || name != want {
		return fmt.Errorf("it is of guest %q, want %q", name, want)
	}
	_, err = next.Leaf.Verify(x509.VerifyOptions{Roots: present.RootCAs, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
}

// writeSynced writes a file that only its owner may read, in place of an earlier one.
func writeSynced(path string, content []byte) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

// SyncDirectory makes a rename in a directory last.
func SyncDirectory(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// maxRequest is the most bytes of a request for a certificate. One that NewRequest makes
// has about 200.
const maxRequest = 2 << 10

// ErrRequest is wrapped when a request for a certificate is refused.
var ErrRequest = errors.New("certificate request is refused")

// NewRequest makes a key, in PEM, and a request for a certificate of it, as Renew wants it.
func NewRequest() (request, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err == nil {
		keyPEM, err = encodeKey(key)
	}
	if err == nil {
		request, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{SignatureAlgorithm: x509.ECDSAWithSHA256}, key)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("make key: %w", err)
	}
	return request, keyPEM, nil
}

// Renew issues a certificate to a guest for the key of a request, which comes from the
// guest: only the key is taken from it. The certificate is like one from Issue. A request
// that asks for more, or for the key of the present certificate, is refused; the error
// wraps ErrRequest.
func (a *Authority) Renew(guest string, present *x509.Certificate, request []byte) (*x509.Certificate, error) {
	key, err := checkRequest(request)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if key.Equal(present.PublicKey) {
		return nil, fmt.Errorf("%w: its key is that of the present certificate: make a new one", ErrRequest)
	}
	t, err := guestTemplate(guest)
	if err != nil {
		return nil, err
	}
	return a.certify(t, key)
}

// checkRequest returns the key of a request. It looks at the key's type before it verifies
// the signature, which a large key of another type makes slow.
func checkRequest(der []byte) (*ecdsa.PublicKey, error) {
	if len(der) > maxRequest {
		return nil, fmt.Errorf("%d bytes: want at most %d", len(der), maxRequest)
	}
	r, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, err
	}
	key, ok := r.PublicKey.(*ecdsa.PublicKey)
	switch {
	case !ok || key.Curve != elliptic.P256():
		return nil, fmt.Errorf("key of type %s: want one of the curve P-256", r.PublicKeyAlgorithm)
	case r.SignatureAlgorithm != x509.ECDSAWithSHA256:
		return nil, fmt.Errorf("signature by %s: want %s", r.SignatureAlgorithm, x509.ECDSAWithSHA256)
	case len(r.Subject.Names) > 0 || len(r.Extensions) > 0:
		return nil, errors.New("it names a subject or extensions: want neither, the daemon decides what the certificate says")
	}
	return key, r.CheckSignature()
}
