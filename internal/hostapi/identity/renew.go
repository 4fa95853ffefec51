package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
)

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
