package credentials

import (
	"errors"
	"io/fs"
	"sync"
	"time"

	"unnest.io/unnest/internal/hostd/certificates"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/hostd/status"
)

const (
	expiryWarning  = 7 * 24 * time.Hour // before a certificate expires
	expiryInterval = 24 * time.Hour     // between two warnings of one certificate
)

// expiries knows what was warned of, and when certificates expire whose records, of
// earlier versions, do not say so; the guest's connection does.
type expiries struct {
	mu     sync.Mutex
	seen   map[string]time.Time // by fingerprint
	warned map[string]time.Time // by fingerprint: when
}

func (e *expiries) see(fingerprint string, expires time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen[fingerprint] = expires
}

// complete returns a certificate with the time when it expires, if that is known.
func (e *expiries) complete(c certificates.Certificate) certificates.Certificate {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.Expires.IsZero() {
		c.Expires = e.seen[c.SHA256]
	}
	return c
}

// due reports whether it is time to warn of a certificate.
func (e *expiries) due(c certificates.Certificate, now time.Time) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	last, warned := e.warned[c.SHA256]
	if c.Expires.IsZero() || c.Expires.Sub(now) > expiryWarning || warned && now.Sub(last) < expiryInterval {
		return false
	}
	e.warned[c.SHA256] = now
	return true
}

func (k *Store) certificatesOf(r record.Guest) certificates.Set {
	s, err := record.Certificates(k.stateDir, r)
	if err != nil {
		k.logs.Of(r.Name).Warn("read certificates", "guest", r.Name, "error", err)
	}
	for i, c := range s.Certificates {
		s.Certificates[i] = k.expiries.complete(c)
	}
	return s
}

// DescribeCertificates returns a guest's certificates for the operator, and when the one
// that the guest uses expires.
func (k *Store) DescribeCertificates(r record.Guest) (all []status.Certificate, expires time.Time) {
	s, now := k.certificatesOf(r), time.Now()
	for _, c := range s.Certificates {
		all = append(all, status.Certificate{Serial: c.Serial, Expires: c.Expires, State: c.State(now)})
	}
	current, _ := s.Current(now)
	return all, current.Expires
}

// WarnOfExpiry logs once a day which certificates of guests, and of policy clients, expire soon, and which records of policy clients it cannot read.
func (k *Store) WarnOfExpiry(records []record.Guest, tenants []quota.Tenant, now time.Time) {
	for _, t := range tenants {
		if t.NetworkPolicy == "" {
			continue
		}
		r, err := k.policyClient(t.Name)
		path := policyClientPath(k.stateDir, t.Name)
		unreadable := certificates.Certificate{SHA256: path, Expires: now}
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil && k.expiries.due(unreadable, now):
			k.log.Warn("cannot read the record of the policy client, which says when its certificate expires", "tenant", t.Name, "path", path, "error", err)
		case err == nil && k.expiries.due(certificates.Certificate{SHA256: r.CertificateSHA256, Expires: r.CertificateExpires}, now):
			k.log.Warn("certificate of policy client expires soon, or has expired: run unnest hostd policy enroll "+t.Name+" --state "+k.stateDir+", and restart the client",
				"tenant", t.Name, "expires", r.CertificateExpires)
		}
	}
	for _, r := range records {
		c, ok := k.certificatesOf(r).Current(now)
		switch {
		case !ok || !k.expiries.due(c, now):
		case now.After(c.Expires):
			k.log.Warn("certificate of guest has expired: run "+k.enrollCommand(r.Name), "guest", r.Name, "expired", c.Expires)
		default:
			k.log.Warn("certificate of guest expires soon: run unnest-cni renew in the guest, or "+k.enrollCommand(r.Name), "guest", r.Name, "expires", c.Expires)
		}
	}
}

// enrollCommand is the command that issues a certificate to a guest of this daemon.
func (k *Store) enrollCommand(guest string) string {
	return "unnest hostd enroll " + guest + " --state " + k.stateDir
}
