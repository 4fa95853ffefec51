package api

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"unnest.io/unnest/internal/hostapi/identity"

	"google.golang.org/grpc/credentials"
)

// guestCredentials admits the connection of a guest at the end of its handshake.
type guestCredentials struct {
	credentials.TransportCredentials
	handler *Handler
	roots   *x509.CertPool
}

// ServerHandshake implements credentials.TransportCredentials.
func (g guestCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := g.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		if expired := identity.CheckExpired(err, g.roots); expired != nil {
			g.handler.Logs.Of("").Warn("refuse", "peer", raw.RemoteAddr(), "error", expired)
		}
		return nil, nil, err
	}
	if t, ok := info.(credentials.TLSInfo); ok {
		if err := g.handler.Host.Panics.Contain("handshake", func() error { return g.handler.admitConnection(raw, t.State) }); err != nil {
			return nil, nil, errors.Join(err, conn.Close())
		}
	}
	return conn, info, nil
}

// Clone implements credentials.TransportCredentials.
func (g guestCredentials) Clone() credentials.TransportCredentials {
	return guestCredentials{g.TransportCredentials.Clone(), g.handler, g.roots}
}

func (h *Handler) admitConnection(raw net.Conn, s tls.ConnectionState) error {
	limit, guest := guestConnections, ""
	if name, err := identity.GuestName(s); err == nil {
		guest = name
		if c, err := h.Clients.Client(name); err == nil && c.Tenant != nil {
			if from, err := netip.ParseAddrPort(raw.RemoteAddr().String()); err == nil && c.Tenant.HasPod(from.Addr()) {
				h.Logs.Of(guest).Warn("refuse", "peer", from, "guest", guest, "error", errFromPod)
				return errFromPod
			}
			limit = cmp.Or(c.Tenant.Now().Limits.Connections, limit)
		}
	}
	c, ok := raw.(*limitedConn)
	if !ok {
		return nil
	}
	p := peerIdentity{guest: guest, certificate: s.PeerCertificates[0]}
	if p.refused = h.refuses(p); p.refused && !h.countRefusal(guest) {
		return errRefusals
	}
	err := c.admit(p, limit)
	if errors.Is(err, errConnections) {
		h.Host.Metrics.RefusedConnection()
		h.Logs.Of(guest).Warn("close connection", "guest", guest, "peer", c.RemoteAddr(), "error", err)
	}
	return err
}

// refuseConnection counts a connection that was closed in its handshake.
func (h *Handler) refuseConnection(from net.Addr) {
	h.Host.Metrics.RefusedConnection()
	h.Logs.Of("").Warn("close connection: too many of its address have no certificate yet", "peer", from)
}
