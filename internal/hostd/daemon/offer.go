package daemon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"unnest/internal/hostapi/identity"
	"unnest/internal/hostapi/medium"
	"unnest/internal/hostd/certificates"
	"unnest/internal/hostd/policy"
	"unnest/internal/vmm"
)

// This file hands guests their credentials through the VMM, on a medium in a CD-ROM drive:
// whoever reads it is in that guest. The medium's label is the beginning of a certificate's
// fingerprint, so a daemon that starts knows what its predecessor has inserted. The key is in
// the medium only.

// offerInterval is the time between two looks at the medium of a guest.
const offerInterval = 10 * time.Second

// labelLength is how many digits of a fingerprint are a label.
const labelLength = 16

// offer says what has to be in the drive of a guest.
type offer struct {
	keep        bool // what is there
	certificate certificates.Certificate
	image       []byte       // of the medium to insert; nil: the drive has to be empty
	withdraw    func() error // takes back an offer that is not in the drive
}

func label(c certificates.Certificate) string { return c.SHA256[:labelLength] }

// offer decides about a guest in whose drive there is the medium with a label, or none. It
// issues a certificate if the guest has to be offered another one.
func (d *daemon) offer(r GuestRecord, present string) (o offer, err error) {
	if r.Credentials != policy.CredentialsVMM {
		return offer{}, nil
	}
	set, err := readCertificates(d.config.StateDir, r)
	if err != nil {
		return o, err
	}
	now := time.Now()
	switch {
	case set.Revoked():
		return offer{}, nil
	case set.Offered(present, now):
		return offer{keep: true}, nil
	}
	return d.issueOffer(r, now)
}

func (d *daemon) issueOffer(r GuestRecord, now time.Time) (o offer, err error) {
	server, err := netip.ParseAddrPort(d.address())
	if err != nil {
		return o, fmt.Errorf("offer credentials: %w", err)
	}
	authority, err := identity.OpenAuthority(d.config.StateDir)
	if err != nil {
		return o, err
	}
	c, err := authority.Issue(r.Name)
	if err != nil {
		return o, err
	}
	o.certificate = certificates.Certificate{SHA256: c.Fingerprint, Serial: c.Serial, Expires: c.Expires}
	o.image, err = medium.Encode(medium.Content{CA: authority.CertificatePEM(), Certificate: c.CertificatePEM, Key: c.KeyPEM, Server: server})
	if err != nil {
		return o, err
	}
	o.withdraw = func() error {
		return changeCertificates(d.config.StateDir, r, func(s certificates.Set) (certificates.Set, error) {
			return s.Withdraw(o.certificate.SHA256), nil
		})
	}
	return o, changeCertificates(d.config.StateDir, r, func(s certificates.Set) (certificates.Set, error) {
		if s.Revoked() { // since it was read
			return s, certificates.ErrRevoked
		}
		return s.Offer(o.certificate, now), nil
	})
}

// handOver brings the medium of the guest in line, now and from time to time. Of a guest that
// gets no credentials it only removes what it had before.
func (g *guest) handOver(ctx context.Context) {
	if g.record.Credentials != "" {
		defer g.after(ctx, offerInterval, g.handOver)
	}
	bound, cancel := context.WithTimeout(ctx, vmmTime)
	defer cancel()
	err := g.changeMedium(bound)
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != g.offerFailed {
		g.log.Error("hand over credentials: enroll the guest by hand, or repair the cause", "error", err)
	}
	g.offerFailed = text
}

func (g *guest) changeMedium(ctx context.Context) error {
	drive, ok := g.vmm.(vmm.Drive)
	present, err := "", error(nil)
	if ok {
		present, err = drive.Medium(ctx)
	} else {
		err = vmm.ErrNoDrive
	}
	if err != nil && g.record.Credentials == "" {
		return nil
	}
	if err != nil {
		return err
	}
	o, err := g.host.offer(g.record, present)
	switch {
	case err != nil || o.keep:
		return err
	case o.image == nil && present == "":
		return nil
	case o.image == nil:
		g.log.Info("remove the medium with credentials")
		return drive.RemoveMedium(ctx)
	}
	return g.insert(ctx, drive, o)
}

// insert inserts the medium of an offer, or withdraws the offer.
func (g *guest) insert(ctx context.Context, drive vmm.Drive, o offer) error {
	image, err := memoryFile(o.image)
	if err == nil {
		err = drive.InsertMedium(ctx, label(o.certificate), image)
		err = errors.Join(err, image.Close())
	}
	if err != nil {
		return errors.Join(err, o.withdraw())
	}
	g.log.Info("hand over credentials", "serial", o.certificate.Serial, "expires", o.certificate.Expires)
	return nil
}

// endOffer removes the medium of a guest that was removed. Its certificate is refused whether
// that succeeds or not.
func (g *guest) endOffer(ctx context.Context) {
	drive, ok := g.vmm.(vmm.Drive)
	if !ok || g.record.Credentials == "" || !errors.Is(context.Cause(ctx), errRemoved) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), vmmTime)
	defer cancel()
	if err := drive.RemoveMedium(ctx); err != nil && !errors.Is(err, vmm.ErrNoDrive) {
		g.log.Warn("remove the medium with credentials", "error", err)
	}
}

// memoryFile returns a file in memory that can be read only, also by those who get it.
func memoryFile(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("unnest-credentials", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make medium: %w", err)
	}
	f := os.NewFile(uintptr(fd), "medium")
	defer f.Close()
	if _, err = f.Write(content); err == nil {
		err = f.Chmod(0o600)
	}
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK)
	}
	if err != nil {
		return nil, fmt.Errorf("make medium: %w", err)
	}
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}

// enrollGuests begins an empty set of certificates for each guest of the configuration that
// gets its credentials from the VMM and has none, and removes the sets of such guests that
// are gone.
func (d *daemon) enrollGuests() {
	guests := d.policy().Guests
	for _, g := range guests {
		if g.Credentials != policy.CredentialsVMM {
			continue
		}
		if _, err := readEnrolled(d.config.StateDir, g.Name); errors.Is(err, ErrNoRecord) {
			d.logEnrollment("enroll guest for the VMM", g.Name, d.begin(g.Name))
		}
	}
	names, err := guestNames(d.config.StateDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return // scan says why
	}
	for _, name := range names {
		r, err := readEnrolled(d.config.StateDir, name)
		configured := slices.ContainsFunc(guests, func(g policy.Guest) bool { return g.Name == name })
		if err == nil && !configured && r.Tenant == "" && r.Credentials == policy.CredentialsVMM {
			d.logEnrollment("revoke the certificates of a guest that was removed", name, removeRecord(d.config.StateDir, name))
		}
	}
}

func (d *daemon) logEnrollment(what, guest string, err error) {
	if err != nil {
		d.config.Logger.Error(what, "guest", guest, "error", err)
		return
	}
	d.config.Logger.Info(what, "guest", guest)
}

// begin writes the record of a guest that has no certificate yet.
func (d *daemon) begin(name string) error {
	r := GuestRecord{Name: name, Credentials: policy.CredentialsVMM}
	if err := r.beginSet(d.config.StateDir); err != nil {
		return err
	}
	return writeJSON(RecordPath(d.config.StateDir, name), r)
}

// beginSet begins an empty set of certificates for the guest, before its record is written.
func (r *GuestRecord) beginSet(stateDir string) error {
	if err := identity.CheckGuestName(r.Name); err != nil {
		return err
	}
	id := make([]byte, 32)
	if _, err := rand.Read(id); err != nil {
		return err
	}
	r.CertificateSHA256 = hex.EncodeToString(id)
	return writeJSON(certificatesPath(stateDir, r.Name), certificates.Set{Enrolled: r.CertificateSHA256})
}
