// Package renewal renews the guest's certificate at the host daemon: the guest makes a new
// key, which never leaves it, and replaces the files of its credentials.
//
// What the daemon accepts, and for how long, belongs to the daemon. The files belong to
// package identity.
package renewal

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
)

const (
	// attemptTime bounds a renewal that a plugin does after its own work.
	attemptTime = 5 * time.Second
	// attemptInterval is the time between two of them, if the first has failed.
	attemptInterval = time.Hour
)

// errBusy means that another process renews the certificate.
var errBusy = errors.New("another process renews the certificate now: try again")

// Due reports whether it is time to renew a certificate: less than a third of its life is
// left.
func Due(c *x509.Certificate, now time.Time) bool {
	return c.NotAfter.Sub(now) < c.NotAfter.Sub(c.NotBefore)/3
}

// Attempt renews the certificate of d, in the directory credentials, if that is due. If it
// fails, Attempt does not try again for an hour: state is a directory for the time.
func Attempt(ctx context.Context, d hostclient.Client, credentials, state string) error {
	if d.Certificate == nil || !Due(d.Certificate, time.Now()) || tried(state) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	err := renew(ctx, d, credentials, true)
	if err == nil || errors.Is(err, errBusy) || hostclient.Unknown(err) {
		return nil
	}
	return fmt.Errorf("renew certificate, which expires on %s: %w", d.Certificate.NotAfter.Format(time.DateOnly), err)
}

// tried reports whether there was an attempt a short time ago, and records this one. If it
// cannot, attempts are not limited; the daemon limits them too.
func tried(state string) bool {
	path := filepath.Join(state, "renewal")
	if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()).Abs() < attemptInterval {
		return true
	}
	if err := os.MkdirAll(state, 0o700); err == nil {
		_ = os.WriteFile(path, nil, 0o600)
	}
	return false
}

// Renew renews the certificate in the directory credentials now and returns the new one.
func Renew(ctx context.Context, d hostclient.Client, credentials string) (*x509.Certificate, error) {
	if err := renew(ctx, d, credentials, false); err != nil {
		return nil, err
	}
	config, err := identity.ClientConfig(credentials)
	if err != nil {
		return nil, err
	}
	return config.Certificates[0].Leaf, nil
}

func renew(ctx context.Context, d hostclient.Client, credentials string, ifDue bool) error {
	unlock, err := Lock(credentials)
	if err != nil {
		return err
	}
	defer unlock()
	present, err := identity.ClientConfig(credentials)
	if err != nil {
		return err
	}
	if ifDue && !Due(present.Certificates[0].Leaf, time.Now()) { // another process was faster
		return nil
	}
	request, key, err := identity.NewRequest()
	if err == nil {
		err = identity.PrepareReplace(credentials, key)
	}
	if err != nil {
		return err
	}
	answer, err := d.Renew(ctx, &hostdpb.RenewRequest{CertificateRequest: request})
	if err == nil {
		err = identity.Replace(credentials, answer.GetCertificate())
	}
	if err != nil {
		identity.DropReplace(credentials)
	}
	return err
}

// Lock keeps others from replacing the credentials until unlock is called or the process
// ends. It does not wait for others.
func Lock(credentials string) (unlock func(), err error) {
	dir, err := os.Open(credentials)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errBusy
	}
	if err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return func() { _ = dir.Close() }, nil
}

// Verb is the argument by which the binary of the plugins runs Main.
const Verb = "renew"

const usage = `Renews this guest's certificate at the host daemon.

  unnest-cni renew [flags]

The plugins renew it themselves when less than a third of its life is left. Run
the command daily with -if-due on a guest that may start no pod for weeks.

`

// Main is the command "unnest-cni renew". It returns the exit code: 0 done, 1 failed,
// 2 wrong usage.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var server netip.AddrPort
	var dir string
	flags := hostclient.Flags("unnest-cni renew", &server, &dir)
	ifDue := flags.Bool("if-due", false, "do nothing unless less than a third of the certificate's life is left")
	if code, ends := hostclient.Parse(flags, args, 0, usage, stdout, stderr); ends {
		return code
	}
	if err := run(ctx, server, dir, *ifDue, stdout); err != nil {
		fmt.Fprintln(stderr, "unnest-cni renew:", err)
		return 1
	}
	return 0
}

func run(ctx context.Context, server netip.AddrPort, dir string, ifDue bool, stdout io.Writer) error {
	d, err := hostclient.Dial(server, dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if ifDue && !Due(d.Certificate, time.Now()) {
		return nil
	}
	c, err := Renew(ctx, d, dir)
	switch {
	case hostclient.Unknown(err):
		return errors.New("renew certificate: the host daemon is older than this binary: update it, or enroll the guest again")
	case err != nil:
		return fmt.Errorf("renew certificate: %w", err)
	}
	if err := Use(ctx, server, dir); err != nil {
		return fmt.Errorf("use the renewed certificate: %w", err)
	}
	_, err = fmt.Fprintf(stdout, "renewed the certificate of %s: valid until %s\n", c.Subject.CommonName, c.NotAfter.Format(time.DateOnly))
	return err
}

// Use calls the daemon with the credentials in dir, which begins the grace of the earlier
// ones. Any answer of the daemon will do, such as that it cannot reach the VMM.
func Use(ctx context.Context, server netip.AddrPort, dir string) error {
	d, err := hostclient.Dial(server, dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if _, err = d.Status(ctx, &hostdpb.StatusRequest{}); hostclient.Authenticated(err) {
		return nil
	}
	return err
}
