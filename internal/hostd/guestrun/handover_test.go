package guestrun

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostapi/medium"
	"unnest.io/unnest/internal/hostd/certificates"
	"unnest.io/unnest/internal/hostd/credentials"
	"unnest.io/unnest/internal/hostd/guestlog"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/vmm"
)

// fakeDrive is a VMM with a drive.
type fakeDrive struct {
	vmm.VMM
	label   string
	content medium.Content
	fail    error
}

func (f *fakeDrive) Medium(context.Context) (string, error) { return f.label, nil }

func (f *fakeDrive) InsertMedium(_ context.Context, label string, image *os.File) (err error) {
	if f.fail != nil {
		return f.fail
	}
	if _, err := image.WriteString("x"); err == nil {
		return errors.New("the image can be written")
	}
	info, err := image.Stat()
	if err == nil && info.Mode().Perm() != 0o600 {
		return fmt.Errorf("the image has mode %v", info.Mode())
	}
	f.label = label
	f.content, err = medium.Decode(image)
	return err
}

func (f *fakeDrive) RemoveMedium(context.Context) error {
	f.label, f.content = "", medium.Content{}
	return nil
}

func leaf(t *testing.T, c medium.Content) *x509.Certificate {
	t.Helper()
	pair, err := tls.X509KeyPair(c.Certificate, c.Key)
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

// vouched is a daemon with a guest that gets its credentials through the VMM.
type vouched struct {
	t      *testing.T
	store  *credentials.Store
	guests []quota.Guest // of the configuration
	logs   *guestlog.Logs
	dir    string
	drive  *fakeDrive
	guest  *Guest
}

func newVouched(t *testing.T) *vouched {
	t.Helper()
	v := &vouched{t: t, dir: t.TempDir(), drive: &fakeDrive{}}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	v.logs = guestlog.New(log)
	v.store = credentials.New(v.dir, log, v.logs, func() string { return "10.9.0.1:7443" })
	v.configure(quota.Guest{Name: "node1", Tenant: "default", Index: 1, QMP: "/run/q", Credentials: quota.CredentialsVMM})
	return v
}

// configure gives the daemon guests, and connects to the first.
func (v *vouched) configure(guests ...quota.Guest) {
	v.t.Helper()
	v.guests = guests
	v.store.EnrollGuests(guests)
	if len(guests) > 0 {
		v.reconnect()
	}
}

func (v *vouched) reconnect() {
	v.t.Helper()
	r, err := record.Read(v.dir, "node1", v.guests)
	v.check(err)
	v.guest = New(r, nil, &Host{Offer: v.store.Offer}, time.Second, v.logs.Of("node1"))
	v.guest.vmm = v.drive
}

func (v *vouched) check(err error) {
	v.t.Helper()
	if err != nil {
		v.t.Fatal(err)
	}
}

// look has the daemon look at the medium, and returns the certificate there.
func (v *vouched) look() *x509.Certificate {
	v.t.Helper()
	v.check(v.guest.changeMedium(v.t.Context()))
	if v.drive.label == "" {
		return nil
	}
	c := leaf(v.t, v.drive.content)
	if !strings.HasPrefix(identity.Fingerprint(c), v.drive.label) {
		v.t.Errorf("the label of %s is %s", identity.Fingerprint(c), v.drive.label)
	}
	return c
}

func (v *vouched) accepts(c *x509.Certificate) bool { return v.store.Accept(v.guest.Record, c) == nil }

// A guest that nobody has enrolled gets a certificate through its VMM. The medium stays until
// the guest has renewed the certificate, and is then replaced.
func TestOfferThroughVMM(t *testing.T) {
	v := newVouched(t)
	first := v.look()
	if first == nil || v.drive.content.Server.String() != "10.9.0.1:7443" || !v.accepts(first) {
		t.Fatalf("medium has %+v", v.drive.content)
	}
	v.reconnect() // as a daemon that was killed
	if again := v.look(); !again.Equal(first) {
		t.Error("the medium was replaced")
	}
	a, err := identity.OpenAuthority(v.dir)
	v.check(err)
	c, err := a.Issue("node1")
	v.check(err)
	renewed, err := tls.X509KeyPair(c.CertificatePEM, c.KeyPEM)
	v.check(err)
	next := certificates.Certificate{SHA256: c.Fingerprint, Serial: c.Serial, Expires: c.Expires}
	v.check(record.ChangeCertificates(v.dir, v.guest.Record, func(s certificates.Set) (certificates.Set, error) {
		return s.Renew(identity.Fingerprint(first), next, time.Now())
	}))
	if again := v.look(); !again.Equal(first) {
		t.Error("the medium was replaced before the guest has called with the new certificate")
	}
	used, err := x509.ParseCertificate(renewed.Certificate[0])
	v.check(err)
	if !v.accepts(used) {
		t.Error("the renewed certificate is refused")
	}
	second := v.look()
	if second == nil || second.Equal(first) || !v.accepts(second) {
		t.Error("the superseded certificate stays in the medium")
	}
	key, err := os.ReadFile(record.CertificatesPath(v.dir, "node1"))
	if block, _ := pem.Decode(v.drive.content.Key); err != nil || bytes.Contains(key, v.drive.content.Key) || block == nil {
		t.Error("the key is in a file of the host")
	}
}

// An offer whose medium cannot be inserted is taken back, and made again.
func TestOfferFails(t *testing.T) {
	v := newVouched(t)
	v.drive.fail = errors.New("no room")
	for range 3 {
		if err := v.guest.changeMedium(t.Context()); !errors.Is(err, v.drive.fail) {
			t.Errorf("got %v", err)
		}
	}
	if s, err := record.Certificates(v.dir, v.guest.Record); err != nil || len(s.Certificates) != 0 {
		t.Errorf("certificates are %+v, error %v", s.Certificates, err)
	}
	v.drive.fail = nil
	if v.look() == nil {
		t.Error("there is no medium")
	}
	v.guest.vmm = noSlots{}
	if err := v.guest.changeMedium(t.Context()); err == nil {
		t.Error("a VMM without drives: there was no error")
	}
}

// A guest whose certificates were revoked gets no other until it is enrolled by hand.
func TestOfferAfterRevoke(t *testing.T) {
	v := newVouched(t)
	first := v.look()
	v.check(record.ChangeCertificates(v.dir, v.guest.Record, func(s certificates.Set) (certificates.Set, error) {
		s, _, err := s.Revoke("", time.Now())
		return s, err
	}))
	if v.look() != nil || v.accepts(first) {
		t.Error("a revoked guest has a medium, or is served")
	}
	out := filepath.Join(t.TempDir(), "out")
	v.check(credentials.Enroll(v.dir, quota.Config{Guests: v.guests}, "node1", out))
	v.reconnect()
	byHand, err := tls.LoadX509KeyPair(filepath.Join(out, identity.CertificateFile), filepath.Join(out, identity.KeyFile))
	v.check(err)
	if second := v.look(); second == nil || !v.accepts(second) || !v.accepts(byHand.Leaf) || v.accepts(first) {
		t.Error("the guest that was enrolled by hand has no medium, or one of its certificates is refused")
	}
}

// Certificates of a guest that leaves the configuration are void, also if the guest comes
// back. Those of a guest that was enrolled by hand stay, as before.
func TestOfferEndsWithGuest(t *testing.T) {
	v := newVouched(t)
	first, configured := v.look(), v.guests[0]
	v.configure()
	if _, err := record.ReadEnrolled(v.dir, "node1"); !errors.Is(err, record.ErrNoRecord) {
		t.Errorf("the record stays: %v", err)
	}
	v.configure(configured)
	if v.accepts(first) {
		t.Error("a certificate of the guest that was removed is accepted")
	}
	if second := v.look(); second.Equal(first) {
		t.Error("the medium was not replaced")
	}
	configured.Credentials = ""
	v.configure(configured)
	if v.look() != nil {
		t.Error("the medium stays without the key")
	}
	v.check(credentials.Enroll(v.dir, quota.Config{Guests: v.guests}, "node1", filepath.Join(t.TempDir(), "out")))
	v.configure()
	if _, err := record.ReadEnrolled(v.dir, "node1"); err != nil {
		t.Errorf("the record of a guest that was enrolled by hand: %v", err)
	}
}
