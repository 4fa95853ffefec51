package daemon

import (
	"crypto/x509"
	"sync"
	"time"
)

const (
	expiryWarning  = 7 * 24 * time.Hour // before a certificate expires
	expiryInterval = 24 * time.Hour     // between two warnings of one certificate
)

// expiries knows when the guests' certificates expire. Records of earlier versions do not
// say so; the guest's connection does.
type expiries struct {
	mu     sync.Mutex
	seen   map[string]time.Time // by fingerprint
	warned map[string]time.Time // by fingerprint: when
}

func newExpiries() *expiries {
	return &expiries{seen: map[string]time.Time{}, warned: map[string]time.Time{}}
}

func (e *expiries) see(fingerprint string, c *x509.Certificate) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen[fingerprint] = c.NotAfter
}

// of returns when a guest's certificate expires; zero: not known.
func (e *expiries) of(r GuestRecord) time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !r.CertificateExpires.IsZero() {
		return r.CertificateExpires
	}
	return e.seen[r.CertificateSHA256]
}

// due reports whether it is time to warn of a guest's certificate.
func (e *expiries) due(r GuestRecord, now time.Time) (expires time.Time, ok bool) {
	expires = e.of(r)
	e.mu.Lock()
	defer e.mu.Unlock()
	last, warned := e.warned[r.CertificateSHA256]
	if expires.IsZero() || expires.Sub(now) > expiryWarning || warned && now.Sub(last) < expiryInterval {
		return expires, false
	}
	e.warned[r.CertificateSHA256] = now
	return expires, true
}

// warnOfExpiry logs once a day which certificates expire soon.
func (d *daemon) warnOfExpiry(now time.Time) {
	for _, r := range d.records() {
		expires, due := d.expiries.due(r, now)
		switch {
		case !due:
		case now.After(expires):
			d.config.Logger.Warn("certificate of guest has expired: run unnest hostd enroll "+r.Name, "guest", r.Name, "expired", expires)
		default:
			d.config.Logger.Warn("certificate of guest expires soon: run unnest hostd enroll "+r.Name, "guest", r.Name, "expires", expires)
		}
	}
}
