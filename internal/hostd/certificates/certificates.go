// Package certificates decides which certificates of a guest the daemon accepts: the one
// that the guest was enrolled with, those that the VMM has handed to it, and those that the
// guest has renewed them by, until they are superseded or revoked. Only certificates of the set are accepted, so whatever leaves
// it is refused.
//
// Certificates themselves, where the set is kept, and the clock do not belong here.
package certificates

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	// Grace is how long a superseded certificate is accepted: longer than any command in
	// the guest that has read it.
	Grace = 10 * time.Minute
	// Live is how many certificates of a guest are accepted at the same time: one that is
	// used, one in its grace, and two whose answer the guest may have lost.
	Live = 4
	// ended is how many certificates that are not accepted any more the set remembers, to
	// tell their holders why.
	ended = 8
)

// Reasons to refuse a certificate.
var (
	ErrUnknown    = errors.New("it is not that of the present guest")
	ErrRevoked    = errors.New("it was revoked")
	ErrSuperseded = errors.New("it was superseded by a renewed one")
	ErrNoSerial   = errors.New("no certificate has the serial number")
)

// Certificate is one certificate of a guest.
type Certificate struct {
	SHA256  string    `json:"sha256"`           // fingerprint
	Serial  string    `json:"serial,omitempty"` // hex; empty: not known
	Expires time.Time `json:"expires,omitzero"` // zero: not known
	Unused  bool      `json:"unused,omitempty"` // renewed or offered, and the guest has not called with it
	Until   time.Time `json:"until,omitzero"`   // superseded: end of its grace
	Revoked time.Time `json:"revoked,omitzero"`
}

// State is what a certificate is, in one word for the operator.
func (c Certificate) State(now time.Time) string {
	switch {
	case !c.Revoked.IsZero():
		return "revoked"
	case !c.Until.IsZero():
		return "superseded"
	case !c.Expires.IsZero() && !now.Before(c.Expires):
		return "expired"
	case c.Unused:
		return "unused"
	}
	return "used"
}

func (c Certificate) live(now time.Time) bool {
	s := c.State(now)
	return s == "used" || s == "unused" || s == "superseded" && now.Before(c.Until)
}

// Set are the certificates of a guest, the oldest first. The methods return new sets.
type Set struct {
	// Enrolled is the fingerprint of the certificate that began the set. A set that began
	// empty has 64 random hex digits.
	Enrolled     string        `json:"enrolled"`
	Certificates []Certificate `json:"certificates"`
}

// New returns the set of a guest that was enrolled with a certificate.
func New(c Certificate) Set { return Set{Enrolled: c.SHA256, Certificates: []Certificate{c}} }

func (s Set) clone() Set {
	s.Certificates = slices.Clone(s.Certificates)
	return s
}

func (s Set) index(sha256 string) int {
	return slices.IndexFunc(s.Certificates, func(c Certificate) bool { return c.SHA256 == sha256 })
}

// Check returns an error unless a certificate is accepted. The caller checks that it has
// not expired.
func (s Set) Check(sha256 string, now time.Time) error {
	i := s.index(sha256)
	switch {
	case i < 0:
		return ErrUnknown
	case !s.Certificates[i].Revoked.IsZero():
		return fmt.Errorf("%w on %s", ErrRevoked, s.Certificates[i].Revoked.UTC().Format(time.DateOnly))
	case !s.Certificates[i].Until.IsZero() && !now.Before(s.Certificates[i].Until):
		return ErrSuperseded
	}
	return nil
}

// Unused reports whether the guest has not called with a certificate of the set.
func (s Set) Unused(sha256 string) bool {
	i := s.index(sha256)
	return i >= 0 && s.Certificates[i].Unused
}

// Use records the first request with a certificate: the older ones are superseded.
func (s Set) Use(sha256 string, now time.Time) Set {
	if !s.Unused(sha256) {
		return s
	}
	s = s.clone()
	i := s.index(sha256)
	s.Certificates[i].Unused = false
	for j := range s.Certificates[:i] {
		if c := &s.Certificates[j]; c.Until.IsZero() && c.Revoked.IsZero() {
			c.Until = now.Add(Grace)
		}
	}
	return s
}

// Renew adds a certificate that the holder of the present one has asked for. The error is
// that of Check, or wraps ErrSuperseded while the present one is in its grace. If there
// are too many, the oldest that the guest has not used goes, or the oldest in its grace.
func (s Set) Renew(present string, c Certificate, now time.Time) (Set, error) {
	if err := s.Check(present, now); err != nil {
		return s, err
	}
	if !s.Certificates[s.index(present)].Until.IsZero() {
		return s, ErrSuperseded
	}
	s = s.clone()
	c.Unused = true
	s.Certificates = append(s.Certificates, c)
	return s.trim(present, c.SHA256, now), nil
}

// trim removes certificates other than two until there are not too many.
func (s Set) trim(present, next string, now time.Time) Set {
	for s.countLive(now) > Live {
		i := s.dispensable(present, next, now)
		if i < 0 { // in a damaged file the present one is there several times
			break
		}
		s.Certificates = slices.Delete(s.Certificates, i, i+1)
	}
	return s.forget(now)
}

// dispensable returns the index of an accepted certificate other than two, -1 if there is
// none: all others of a set that this package has made are unused or in their grace.
func (s Set) dispensable(present, next string, now time.Time) int {
	other := func(unused bool) func(Certificate) bool {
		return func(c Certificate) bool {
			return c.live(now) && c.Unused == unused && c.SHA256 != present && c.SHA256 != next
		}
	}
	if i := slices.IndexFunc(s.Certificates, other(true)); i >= 0 {
		return i
	}
	return slices.IndexFunc(s.Certificates, other(false))
}

func (s Set) countLive(now time.Time) (n int) {
	for _, c := range s.Certificates {
		if c.live(now) {
			n++
		}
	}
	return n
}

// forget drops the oldest certificates that are not accepted any more.
func (s Set) forget(now time.Time) Set {
	excess := len(s.Certificates) - s.countLive(now) - ended
	s.Certificates = slices.DeleteFunc(s.Certificates, func(c Certificate) bool {
		if excess <= 0 || c.live(now) {
			return false
		}
		excess--
		return true
	})
	return s
}

// Revoke revokes the certificate with a serial number, or all if it is empty. It returns
// those that were accepted until now. An error wraps ErrNoSerial.
func (s Set) Revoke(serial string, now time.Time) (_ Set, revoked []Certificate, err error) {
	s = s.clone()
	found := false
	for i := range s.Certificates {
		c := &s.Certificates[i]
		if serial != "" && !sameSerial(serial, c.Serial) {
			continue
		}
		found = true
		if !c.Revoked.IsZero() {
			continue
		}
		if c.live(now) {
			revoked = append(revoked, *c)
		}
		c.Revoked = now
	}
	if !found && serial != "" {
		return s, nil, fmt.Errorf("%w %.80s", ErrNoSerial, serial)
	}
	return s, revoked, nil
}

// sameSerial compares serial numbers as people write them: 0A:1B is 0a1b.
func sameSerial(a, b string) bool {
	plain := func(s string) string { return strings.TrimLeft(strings.ToLower(strings.ReplaceAll(s, ":", "")), "0") }
	return b != "" && plain(a) == plain(b)
}

// Current returns the certificate that the guest uses: the newest that it has called with.
func (s Set) Current(now time.Time) (c Certificate, ok bool) {
	for _, c := range slices.Backward(s.Certificates) {
		if state := c.State(now); state == "used" || state == "expired" {
			return c, true
		}
	}
	return Certificate{}, false
}
