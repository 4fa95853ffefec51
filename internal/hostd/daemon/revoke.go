package daemon

import (
	"context"
	"errors"
	"maps"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"

	"unnest/internal/hostapi/identity"
	"unnest/internal/hostd/certificates"
	"unnest/internal/hostd/status"
)

// How often the certificates of a guest may be refused, as connections and as requests: at
// once, and then per second.
const (
	refusalBurst = 10
	refusalRate  = 1
)

var errRefusals = errors.New("certificates of the guest are refused too often")

// Revoke revokes the certificate of a guest that has a serial number, or all certificates
// if serial is empty, and returns those that were accepted until now. A daemon that runs
// ends their connections before Revoke returns; another reads it at its start. It takes a
// guest that has no certificate left out of the daemon's service until it is enrolled.
func Revoke(ctx context.Context, stateDir, guest, serial string) (revoked []certificates.Certificate, err error) {
	r, err := readEnrolled(stateDir, guest)
	if err != nil {
		return nil, err
	}
	if err := changeCertificates(stateDir, r, func(s certificates.Set) (certificates.Set, error) {
		s, revoked, err = s.Revoke(serial, time.Now())
		return s, err
	}); err != nil {
		return nil, err
	}
	return revoked, status.CheckConnections(ctx, stateDir)
}

// closeRefused ends the connections of guests whose certificate was revoked or superseded,
// or that were removed. It leaves those that were refused when they were made: their clients
// are about to learn why.
func (d *daemon) closeRefused() {
	d.closeIf(func(p peerIdentity) bool { return !p.refused && d.refuses(p) })
}

func (d *daemon) closeIf(refused func(peerIdentity) bool) {
	if l := d.listener(); l != nil {
		l.closeIf(refused)
	}
}

// refuses reports whether the daemon refuses requests with a certificate. It does not if it
// cannot read what it needs.
func (d *daemon) refuses(p peerIdentity) bool {
	if tenant, err := identity.PolicyTenant(p.certificate); err == nil {
		return grpcstatus.Code(d.checkPolicyClient(tenant, p.certificate)) == codes.Unauthenticated
	}
	c, err := d.client(p.guest)
	if err == nil {
		_, err = d.checkCertificate(c.record, p.certificate)
	}
	return errors.Is(err, ErrNoRecord) || grpcstatus.Code(err) == codes.Unauthenticated
}

// countRefusal counts a refused certificate of a guest. It reports whether there may be
// that many.
func (d *daemon) countRefusal(guest string) bool {
	d.metrics.RefusedCertificate(guest)
	return d.refusals.allow(guest, refusalRate, refusalBurst)
}

// limitRefusals counts a request that was refused. Its connection ends if there were too
// many, so that the next one costs a handshake.
func (d *daemon) limitRefusals(ctx context.Context, guest string) {
	p, _ := peer.FromContext(ctx)
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if d.countRefusal(guest) || !ok {
		return
	}
	certificate := identity.Fingerprint(info.State.PeerCertificates[0])
	d.closeIf(func(p peerIdentity) bool { return identity.Fingerprint(p.certificate) == certificate })
}

// closeIf closes the connections of which refused is true.
func (l *limitedListener) closeIf(refused func(peerIdentity) bool) {
	for c, p := range l.admitted() {
		if refused(p) {
			_ = c.Close()
		}
	}
}

// admitted returns the connections with a certificate.
func (l *limitedListener) admitted() map[*limitedConn]peerIdentity {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.open)
}
