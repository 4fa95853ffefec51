package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostapi/identity/identitytest"
	"unnest.io/unnest/internal/hostd/certificates"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/hostd/statefile"
)

// renewing is a guest with a certificate, and a daemon in this process.
type renewing struct {
	t       *testing.T
	dir     string
	daemon  *daemon
	log     *logLines
	address string
	first   *tls.Config
}

func newRenewing(t *testing.T) *renewing {
	t.Helper()
	dir := t.TempDir()
	config, c := issue(t, dir, "node1")
	withRecord(t, dir, c)
	r := &renewing{t: t, dir: dir, first: config}
	r.daemon, r.log = testDaemon(t, dir)
	r.address = serveTest(t, r.daemon, dir)
	return r
}

// renew renews the certificate of a client.
func (r *renewing) renew(client hostdpb.HostDaemonClient) (*tls.Config, error) {
	r.t.Helper()
	request, key, err := identity.NewRequest()
	if err != nil {
		r.t.Fatal(err)
	}
	answer, err := client.Renew(r.t.Context(), &hostdpb.RenewRequest{CertificateRequest: request})
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificatePEM(answer.GetCertificate()), key)
	if err != nil {
		r.t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}, nil
}

func (r *renewing) mustRenew(client hostdpb.HostDaemonClient) *tls.Config {
	r.t.Helper()
	c, err := r.renew(client)
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

func (r *renewing) dial(c *tls.Config) hostdpb.HostDaemonClient { return dial(r.t, r.address, c) }

// want fails unless a request gets an answer with the words; "VMM" of one that is served.
func (r *renewing) want(when string, client hostdpb.HostDaemonClient, words string) {
	r.t.Helper()
	_, err := client.Status(r.t.Context(), &hostdpb.StatusRequest{})
	if err == nil || !strings.Contains(err.Error(), words) {
		r.t.Errorf("%s: got %v, want %q", when, err, words)
	}
}

// later makes the graces of the guest's certificates end.
func (r *renewing) later() {
	r.t.Helper()
	path := record.CertificatesPath(r.dir, "node1")
	content, err := os.ReadFile(path)
	if err != nil {
		r.t.Fatal(err)
	}
	var s certificates.Set
	if err := json.Unmarshal(content, &s); err != nil {
		r.t.Fatal(err)
	}
	for i, c := range s.Certificates {
		if !c.Until.IsZero() {
			s.Certificates[i].Until = time.Now()
		}
	}
	if err := statefile.Write(path, s); err != nil {
		r.t.Fatal(err)
	}
}

// A guest renews its certificate. The old one is valid until the grace after the first use
// of the new one, and after that on none of its connections.
func TestRenew(t *testing.T) {
	r := newRenewing(t)
	old := r.dial(r.first)
	next := r.dial(r.mustRenew(old))
	r.want("old, before the new one is used", old, "VMM")
	r.want("new", next, "VMM")
	r.want("old, in its grace", old, "VMM")
	if _, err := r.renew(old); grpcstatus.Code(err) != codes.FailedPrecondition {
		t.Errorf("renewal of the superseded certificate: got %v", err)
	}
	if got := mustCertificates(t, r.dir); len(got.Certificates) != 2 || got.Certificates[0].Until.IsZero() || got.Certificates[1].Unused {
		t.Errorf("after a restart: %+v", got)
	}
	r.later()
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) { // the connection ends, and the next one is refused
		_, err := old.Status(t.Context(), &hostdpb.StatusRequest{})
		if grpcstatus.Code(err) == codes.Unauthenticated && strings.Contains(err.Error(), "superseded") {
			break
		}
		if time.Since(begin) > time.Minute || err != nil && strings.Contains(err.Error(), "VMM") {
			t.Fatalf("old, after its grace: got %v", err)
		}
	}
	r.want("new, after the grace", next, "VMM")
	if len(r.log.with("renew certificate", "guest=node1")) == 0 || len(r.log.with("use renewed certificate", "guest=node1")) != 1 {
		t.Errorf("log: %q", r.log.lines)
	}
}

func mustRecord(t *testing.T, dir string) record.Guest {
	t.Helper()
	r, err := record.Read(dir, "node1", nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// mustCertificates returns the certificates of node1, as the next daemon reads them.
func mustCertificates(t *testing.T, dir string) certificates.Set {
	t.Helper()
	s, err := record.Certificates(dir, mustRecord(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A guest asks for a certificate of more than it has. The requests are in package identity;
// here one of them reaches the daemon.
func TestHostileRenewal(t *testing.T) {
	r := newRenewing(t)
	client := r.dial(r.first)
	for _, request := range [][]byte{nil, []byte("garbage"), make([]byte, 32<<10)} {
		if _, err := client.Renew(t.Context(), &hostdpb.RenewRequest{CertificateRequest: request}); grpcstatus.Code(err) != codes.InvalidArgument {
			t.Errorf("%d bytes: got %v, want InvalidArgument", len(request), err)
		}
	}
	if _, err := os.Stat(record.CertificatesPath(r.dir, "node1")); err == nil {
		t.Error("a request that was refused has issued a certificate")
	}
	next := r.mustRenew(client)
	if name := next.Certificates[0].Leaf.URIs[0].String(); name != "unnest://guest/node1" {
		t.Errorf("renewed certificate is of %s", name)
	}
	if life := time.Until(next.Certificates[0].Leaf.NotAfter); life > identity.GuestValidity {
		t.Errorf("renewed certificate is valid for %v", life)
	}
	// The renewed certificate is not an authority: what it signs is refused.
	forged := identitytest.Sign(t, next.Certificates[0], "node2")
	if _, err := r.dial(&tls.Config{Certificates: []tls.Certificate{forged}, InsecureSkipVerify: true}).Status(t.Context(), &hostdpb.StatusRequest{}); grpcstatus.Code(err) != codes.Unavailable {
		t.Errorf("certificate signed by a guest: got %v", err)
	}
}

// Renewals are limited per guest, refused ones too.
func TestRenewalsAreLimited(t *testing.T) {
	r := newRenewing(t)
	client := r.dial(r.first)
	for range 4 {
		if _, err := r.renew(client); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.renew(client); grpcstatus.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "too often") {
		t.Errorf("got %v, want ResourceExhausted", err)
	}
	s := mustCertificates(t, r.dir)
	if n := len(s.Certificates); n != certificates.Live {
		t.Errorf("the guest has %d certificates, want %d", n, certificates.Live)
	}
	if text := scrape(r.daemon); !strings.Contains(text, `unnest_hostd_requests_total{code="ResourceExhausted",verb="Renew"} 1`) {
		t.Error("metrics do not have the refused renewal")
	}
	r.want("after that", client, "VMM")
}

// Who has a superseded certificate cannot keep the daemon busy with it, and the present
// guest is served meanwhile.
func TestSupersededCertificatesAreLimited(t *testing.T) {
	r := newRenewing(t)
	old := r.dial(r.first)
	next := r.dial(r.mustRenew(old))
	r.want("new", next, "VMM")
	r.later()
	const refusalBurst, refusalRate = 10, 1 // of package api
	refused, begin := 0, time.Now()
	for range 500 {
		if _, err := old.Status(t.Context(), &hostdpb.StatusRequest{}); grpcstatus.Code(err) == codes.Unauthenticated {
			refused++
		}
		if refused > 0 && refused%refusalBurst == 0 {
			r.want("the present guest", next, "VMM")
		}
	}
	most := 3*refusalBurst + refusalRate*int(time.Since(begin).Seconds())
	if refused == 0 || refused > most {
		t.Errorf("%d requests with a superseded certificate got an answer, want 1 to %d", refused, most)
	}
	if len(r.log.with("refuse", "superseded")) == 0 || !strings.Contains(scrape(r.daemon), `unnest_hostd_refused_certificates_total{guest="node1"}`) {
		t.Error("neither log nor metrics have the superseded certificate")
	}
}

// A guest with several certificates has no more connections than with one. Who has a
// superseded one takes none of them.
func TestConnectionsOfRenewedGuest(t *testing.T) {
	r := newRenewing(t)
	const limit = 3
	for _, tenant := range r.daemon.tenants {
		p := tenant.Now()
		p.Limits.Connections = limit
		tenant.Change(p)
	}
	old := r.dial(r.first)
	config := r.mustRenew(old)
	r.want("first with the new one", r.dial(config), "VMM")
	r.want("second with the new one", r.dial(config), "VMM")
	beyond := r.dial(config)
	if _, err := beyond.Status(t.Context(), &hostdpb.StatusRequest{}); strings.Contains(err.Error(), "VMM") {
		t.Errorf("%d connections are served, want %d", limit+1, limit)
	}
	r.later()
	for range 2 {
		_, err := r.dial(r.first).Status(t.Context(), &hostdpb.StatusRequest{})
		if strings.Contains(err.Error(), "VMM") {
			t.Errorf("the superseded certificate is served: %v", err)
		}
	}
	r.eventually(func() (bool, error) { // once the old connection has ended
		_, err := beyond.Status(t.Context(), &hostdpb.StatusRequest{})
		return strings.Contains(err.Error(), "VMM"), err
	})
}

// A damaged file of certificates admits nobody.
func TestDamagedCertificates(t *testing.T) {
	r := newRenewing(t)
	r.mustRenew(r.dial(r.first))
	if err := os.WriteFile(record.CertificatesPath(r.dir, "node1"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := r.dial(r.first).Status(t.Context(), &hostdpb.StatusRequest{})
	if grpcstatus.Code(err) != codes.Internal || strings.Contains(err.Error(), r.dir) {
		t.Errorf("got %v, want Internal without a path of the host", err)
	}
	if len(r.log.with("level=ERROR", "certificates.json")) == 0 {
		t.Errorf("log: %q", r.log.lines)
	}
}

func certificatePEM(der []byte) []byte { return identitytest.PEM(&x509.Certificate{Raw: der}) }
