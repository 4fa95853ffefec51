// Package credentials gives the guest the credentials that its VMM hands to it, on a medium in
// a CD-ROM drive.
//
// What the daemon accepts belongs to the daemon, the format of the medium to package medium,
// and the files to package identity.
package credentials

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"unnest.io/unnest/internal/cni/hostclient"
	"unnest.io/unnest/internal/cni/renewal"
	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostapi/medium"
)

// node is where the guest has its credentials.
type node struct {
	dir    string
	server netip.AddrPort // of the daemon; zero: the medium says it
	find   func() (medium.Content, error)
	out    io.Writer // what has changed

	known netip.AddrPort // server, or what the latest medium said
}

// update replaces the guest's credentials by those of the medium unless the daemon accepts
// the present ones, or does not answer and they can be used. It looks for a medium only if
// it needs one, or cannot ask the daemon without.
func (n *node) update(ctx context.Context) error {
	if !n.known.IsValid() {
		n.known = n.server
	}
	if n.known.IsValid() && n.accepted(ctx) == nil {
		return nil
	}
	c, err := n.find()
	if err != nil {
		return err
	}
	if !n.server.IsValid() {
		n.known = c.Server
	}
	installed, err := n.install(ctx, identity.Files{CA: c.CA, Certificate: c.Certificate, Key: c.Key})
	if err != nil || !installed {
		return err
	}
	return n.renew(ctx)
}

// accepted calls the daemon with the present credentials.
func (n *node) accepted(ctx context.Context) error {
	d, err := hostclient.Dial(n.known, n.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if _, err = d.Status(ctx, &hostdpb.StatusRequest{}); hostclient.Authenticated(err) {
		return nil
	}
	return err
}

// refused reports whether the daemon has refused credentials. Without an answer it has not.
func refused(err error) bool {
	r := (*hostclient.Refusal)(nil)
	return errors.As(err, &r) && (r.Reached || r.Expired)
}

// install installs credentials, and reports whether they are needed. Another process may have
// installed them meanwhile.
func (n *node) install(ctx context.Context, files identity.Files) (needed bool, err error) {
	if err := os.MkdirAll(n.dir, 0o700); err != nil {
		return false, fmt.Errorf("install credentials: %w", err)
	}
	unlock, err := renewal.Lock(n.dir)
	if err != nil {
		return false, fmt.Errorf("install credentials: %w", err)
	}
	defer unlock()
	if same, _ := files.SameGuest(n.dir); same && !refused(n.accepted(ctx)) {
		return false, nil
	}
	return true, files.Install(n.dir)
}

// renew replaces the key of the medium by one that never leaves the guest. If that fails, the
// guest keeps the medium's, which the plugin renews when it is due.
func (n *node) renew(ctx context.Context) error {
	d, err := hostclient.Dial(n.known, n.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	c, err := renewal.Renew(ctx, d, n.dir)
	if err == nil {
		err = renewal.Use(ctx, n.known, n.dir)
	}
	if err != nil {
		_, err = fmt.Fprintf(n.out, "installed the credentials of %s; their key is not replaced: %v\n", d.Certificate.Subject.CommonName, err)
		return err
	}
	_, err = fmt.Fprintf(n.out, "installed the credentials of %s: valid until %s\n", c.Subject.CommonName, c.NotAfter.Format(time.DateOnly))
	return err
}
