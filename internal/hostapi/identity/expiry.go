package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// ErrExpired is wrapped when a guest's certificate has expired. The message names the
// guest, the date and the command that issues a new one.
var ErrExpired = errors.New("certificate has expired")

type expiredError struct {
	guest string
	date  time.Time
}

func (e *expiredError) Error() string {
	return fmt.Sprintf("certificate of guest %s expired on %s; run unnest hostd enroll %s on the host and copy the files to the guest",
		e.guest, e.date.UTC().Format(time.DateOnly), e.guest)
}

func (e *expiredError) Unwrap() error { return ErrExpired }

// Expired returns an error that wraps ErrExpired, for a certificate that has expired.
func Expired(c *x509.Certificate) error {
	name, err := nameOf(c)
	if err != nil {
		name = "of unknown name"
	}
	return &expiredError{name, c.NotAfter}
}

// CheckExpired returns an error that wraps ErrExpired if the handshake of a server with
// these roots has failed because the guest's certificate has expired, else nil. It
// verifies the rest of the certificate: anyone can make one that has expired.
func CheckExpired(handshake error, roots *x509.CertPool) error {
	failed := (*tls.CertificateVerificationError)(nil)
	invalid := x509.CertificateInvalidError{}
	if !errors.As(handshake, &failed) || !errors.As(failed.Err, &invalid) || invalid.Reason != x509.Expired || len(failed.UnverifiedCertificates) == 0 {
		return nil
	}
	c := failed.UnverifiedCertificates[0]
	if !time.Now().After(c.NotAfter) {
		return nil // not yet valid
	}
	o := x509.VerifyOptions{Roots: roots, CurrentTime: c.NotAfter, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if _, err := c.Verify(o); err != nil {
		return nil
	}
	return Expired(c)
}
