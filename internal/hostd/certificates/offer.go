package certificates

import (
	"slices"
	"strings"
	"time"
)

// OfferLeft is the life that a certificate which the daemon offers to a guest has left at
// least: a third of all, when guests begin to renew theirs.
const OfferLeft = 10 * 24 * time.Hour

// offerLife is the longest life of a guest's certificate: package identity issues it for 30 days, and lets it begin a day earlier. One with more
// left has not begun: the clock was ahead when it was issued.
const offerLife = 31 * 24 * time.Hour

// Revoked reports whether all certificates were revoked. Then the guest gets no other before
// it is enrolled again.
func (s Set) Revoked() bool {
	return len(s.Certificates) > 0 && !slices.ContainsFunc(s.Certificates, func(c Certificate) bool { return c.Revoked.IsZero() })
}

// Offered reports whether the certificate whose fingerprint begins with prefix can still be
// offered: it is accepted, and not about to end.
func (s Set) Offered(prefix string, now time.Time) bool {
	i := slices.IndexFunc(s.Certificates, func(c Certificate) bool { return strings.HasPrefix(c.SHA256, prefix) })
	if i < 0 || prefix == "" {
		return false
	}
	c := s.Certificates[i]
	left := c.Expires.Sub(now)
	return c.live(now) && c.Until.IsZero() && left >= OfferLeft && left <= offerLife
}

// Offer adds a certificate that no other vouches for: the VMM hands it to its guest. As with
// Renew, those before it stay until the guest calls with it, and the oldest that the guest
// has not used goes if there are too many.
func (s Set) Offer(c Certificate, now time.Time) Set {
	s = s.clone()
	c.Unused = true
	s.Certificates = append(s.Certificates, c)
	return s.trim("", c.SHA256, now)
}

// Withdraw takes back an offer that has not reached the guest.
func (s Set) Withdraw(sha256 string) Set {
	s = s.clone()
	s.Certificates = slices.DeleteFunc(s.Certificates, func(c Certificate) bool { return c.SHA256 == sha256 && c.Unused })
	return s
}
