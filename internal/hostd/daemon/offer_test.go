package daemon

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest/internal/hostapi/hostdpb"
	"unnest/internal/hostapi/identity"
	"unnest/internal/hostapi/medium"
	"unnest/internal/hostd/certificates"
	"unnest/internal/hostd/policy"
)

// fakeDrive is a VMM with a drive.
type fakeDrive struct {
	*fakeVMM
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
	daemon *daemon
	dir    string
	drive  *fakeDrive
	guest  *guest
}

func newVouched(t *testing.T) *vouched {
	t.Helper()
	v := &vouched{t: t, dir: t.TempDir(), drive: &fakeDrive{fakeVMM: newFakeVMM(1)}}
	v.daemon, _ = testDaemon(t, v.dir)
	v.daemon.listen = "10.9.0.1:7443"
	v.configure(policy.Guest{Name: "node1", Tenant: "default", Index: 1, QMP: "/run/q", Credentials: policy.CredentialsVMM})
	return v
}

// configure gives the daemon guests, and connects to the first.
func (v *vouched) configure(guests ...policy.Guest) {
	v.t.Helper()
	p := testPolicy()
	p.Guests = guests
	v.daemon.current.Store(&p)
	v.daemon.enrollGuests()
	if len(guests) > 0 {
		v.reconnect()
	}
}

func (v *vouched) reconnect() {
	v.t.Helper()
	r, err := readRecord(v.dir, "node1", v.daemon.policy().Guests)
	v.check(err)
	v.guest = newGuest(r, v.daemon.tenant("default"), v.daemon.host, time.Second, v.daemon.config.Logger)
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

func (v *vouched) accepts(c *x509.Certificate) bool { return v.daemon.accept(v.guest.record, c) == nil }

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
	renewed, c := issue(t, v.dir, "node1")
	next := certificates.Certificate{SHA256: c.Fingerprint, Serial: c.Serial, Expires: c.Expires}
	v.check(changeCertificates(v.dir, v.guest.record, func(s certificates.Set) (certificates.Set, error) {
		return s.Renew(identity.Fingerprint(first), next, time.Now())
	}))
	if again := v.look(); !again.Equal(first) {
		t.Error("the medium was replaced before the guest has called with the new certificate")
	}
	used, err := x509.ParseCertificate(renewed.Certificates[0].Certificate[0])
	v.check(err)
	if !v.accepts(used) {
		t.Error("the renewed certificate is refused")
	}
	second := v.look()
	if second == nil || second.Equal(first) || !v.accepts(second) {
		t.Error("the superseded certificate stays in the medium")
	}
	key, err := os.ReadFile(certificatesPath(v.dir, "node1"))
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
	if s, err := readCertificates(v.dir, v.guest.record); err != nil || len(s.Certificates) != 0 {
		t.Errorf("certificates are %+v, error %v", s.Certificates, err)
	}
	v.drive.fail = nil
	if v.look() == nil {
		t.Error("there is no medium")
	}
	v.guest.vmm = v.drive.fakeVMM
	if err := v.guest.changeMedium(t.Context()); err == nil {
		t.Error("a VMM without drives: there was no error")
	}
}

// A guest whose certificates were revoked gets no other until it is enrolled by hand.
func TestOfferAfterRevoke(t *testing.T) {
	v := newVouched(t)
	first := v.look()
	v.check(changeCertificates(v.dir, v.guest.record, func(s certificates.Set) (certificates.Set, error) {
		s, _, err := s.Revoke("", time.Now())
		return s, err
	}))
	if v.look() != nil || v.accepts(first) {
		t.Error("a revoked guest has a medium, or is served")
	}
	out := filepath.Join(t.TempDir(), "out")
	v.check(Enroll(v.dir, v.daemon.policy(), "node1", out))
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
	first, configured := v.look(), v.daemon.policy().Guests[0]
	v.configure()
	if _, err := readEnrolled(v.dir, "node1"); !errors.Is(err, ErrNoRecord) {
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
	v.check(Enroll(v.dir, v.daemon.policy(), "node1", filepath.Join(t.TempDir(), "out")))
	v.configure()
	if _, err := readEnrolled(v.dir, "node1"); err != nil {
		t.Errorf("the record of a guest that was enrolled by hand: %v", err)
	}
}

// media returns what QEMU has of media.
func (m *machine) media() (found []medium.Content) {
	m.lab.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", m.qemu.Process.Pid)
	open, err := os.ReadDir(dir)
	m.lab.check(err)
	for _, fd := range open {
		path := filepath.Join(dir, fd.Name())
		if target, _ := os.Readlink(path); !strings.HasPrefix(target, "/memfd:unnest-credentials") {
			continue
		}
		content, err := os.ReadFile(path)
		m.lab.check(err)
		c, err := medium.Decode(bytes.NewReader(content))
		m.lab.check(err)
		found = append(found, c)
	}
	return found
}

// A guest of a real QEMU gets its credentials in its drive, a daemon that replaces a killed
// one leaves them there, and they go with the guest.
func TestCredentialsThroughQEMU(t *testing.T) {
	l := newLab(t)
	m := l.boot(1, 1, "-device", "ide-cd,id=unnest-credentials")
	l.check(m.owner.Execute(t.Context(), "cont", nil, nil)) // paused, QEMU keeps descriptors
	configured := m.configure("ports: [rp1], credentials: vmm")
	l.check(os.Remove(RecordPath(l.dir, m.record.Name)))
	l.configuration(configured)
	l.serve(patience)
	l.eventually("QEMU has one medium", func() bool { return len(m.media()) == 1 })
	c := m.media()[0]
	pair, err := tls.X509KeyPair(c.Certificate, c.Key)
	l.check(err)
	if c.Server.String() != l.addr {
		t.Errorf("the daemon is at %s, the medium says %s", l.addr, c.Server)
	}
	m.config = &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}
	m.mustAttach("c1") // the drive takes no slot
	l.end(l.daemon, syscall.SIGKILL)
	l.serve(patience)
	m.mustAttach("c1")
	if now := m.media(); len(now) != 1 || !bytes.Equal(now[0].Key, c.Key) {
		t.Errorf("the next daemon has replaced the medium: QEMU has %d", len(now))
	}
	l.reloaded(func() { l.configuration("  []\n") })
	l.eventually("the drive is empty", func() bool { return len(m.media()) == 0 })
	l.eventually("the guest is refused", func() bool {
		_, err := m.client().Status(t.Context(), &hostdpb.StatusRequest{})
		return grpcstatus.Code(err) == codes.Unauthenticated
	})
	l.eventually("the record is gone", func() bool {
		_, err := os.Stat(RecordPath(l.dir, m.record.Name))
		return errors.Is(err, os.ErrNotExist)
	})
}
