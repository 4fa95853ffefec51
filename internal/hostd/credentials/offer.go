package credentials

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"time"

	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostapi/medium"
	"unnest.io/unnest/internal/hostd/certificates"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/hostd/statefile"
)

// This file hands guests their credentials through the VMM, on a medium in a CD-ROM drive:
// whoever reads it is in that guest. The medium's label is the beginning of a certificate's
// fingerprint, so a daemon that starts knows what its predecessor has inserted. The key is in
// the medium only.

// labelLength is how many digits of a fingerprint are a label.
const labelLength = 16

// Offer says what has to be in the drive of a guest.
type Offer struct {
	Keep        bool // what is there
	Certificate certificates.Certificate
	Image       []byte       // of the medium to insert; nil: the drive has to be empty
	Withdraw    func() error // takes back an offer that is not in the drive
}

// Label returns the label of the medium.
func (o Offer) Label() string { return o.Certificate.SHA256[:labelLength] }

// Offer decides about a guest in whose drive there is the medium with a label, or none. It
// issues a certificate if the guest has to be offered another one.
func (k *Store) Offer(r record.Guest, present string) (o Offer, err error) {
	if r.Credentials != quota.CredentialsVMM {
		return Offer{}, nil
	}
	set, err := record.Certificates(k.stateDir, r)
	if err != nil {
		return o, err
	}
	now := time.Now()
	switch {
	case set.Revoked():
		return Offer{}, nil
	case set.Offered(present, now):
		return Offer{Keep: true}, nil
	}
	return k.issueOffer(r, now)
}

func (k *Store) issueOffer(r record.Guest, now time.Time) (o Offer, err error) {
	server, err := netip.ParseAddrPort(k.address())
	if err != nil {
		return o, fmt.Errorf("offer credentials: %w", err)
	}
	authority, err := identity.OpenAuthority(k.stateDir)
	if err != nil {
		return o, err
	}
	c, err := authority.Issue(r.Name)
	if err != nil {
		return o, err
	}
	o.Certificate = certificates.Certificate{SHA256: c.Fingerprint, Serial: c.Serial, Expires: c.Expires}
	o.Image, err = medium.Encode(medium.Content{CA: authority.CertificatePEM(), Certificate: c.CertificatePEM, Key: c.KeyPEM, Server: server})
	if err != nil {
		return o, err
	}
	o.Withdraw = func() error {
		return record.ChangeCertificates(k.stateDir, r, func(s certificates.Set) (certificates.Set, error) {
			return s.Withdraw(o.Certificate.SHA256), nil
		})
	}
	return o, record.ChangeCertificates(k.stateDir, r, func(s certificates.Set) (certificates.Set, error) {
		if s.Revoked() { // since it was read
			return s, certificates.ErrRevoked
		}
		return s.Offer(o.Certificate, now), nil
	})
}

// EnrollGuests begins an empty set of certificates for each guest of the configuration that
// gets its credentials from the VMM and has none, and removes the sets of such guests that
// are gone.
func (k *Store) EnrollGuests(guests []quota.Guest) {
	for _, g := range guests {
		if g.Credentials != quota.CredentialsVMM {
			continue
		}
		if _, err := record.ReadEnrolled(k.stateDir, g.Name); errors.Is(err, record.ErrNoRecord) {
			k.logEnrollment("enroll guest for the VMM", g.Name, k.begin(g.Name))
		}
	}
	names, err := record.Names(k.stateDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return // scan says why
	}
	for _, name := range names {
		r, err := record.ReadEnrolled(k.stateDir, name)
		configured := slices.ContainsFunc(guests, func(g quota.Guest) bool { return g.Name == name })
		if err == nil && !configured && r.Tenant == "" && r.Credentials == quota.CredentialsVMM {
			k.Remove(name)
		}
	}
}

// Remove removes the record of a guest that the configuration has no more, with its
// certificates.
func (k *Store) Remove(guest string) {
	k.logEnrollment("revoke the certificates of a guest that was removed", guest, record.Remove(k.stateDir, guest))
}

func (k *Store) logEnrollment(what, guest string, err error) {
	if err != nil {
		k.log.Error(what, "guest", guest, "error", err)
		return
	}
	k.log.Info(what, "guest", guest)
}

// begin writes the record of a guest that has no certificate yet.
func (k *Store) begin(name string) error {
	r := record.Guest{Name: name, Credentials: quota.CredentialsVMM}
	if err := r.BeginSet(k.stateDir); err != nil {
		return err
	}
	return statefile.Write(record.Path(k.stateDir, name), r)
}
