package daemon

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostapi/identity/identitytest"
	"unnest.io/unnest/internal/hostd/guestrun"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/hostd/statefile"
)

// The log names the guest whose certificate has expired.
func TestExpiredCertificate(t *testing.T) {
	dir := t.TempDir()
	d, log := testDaemon(t, dir)
	c := identitytest.Issue(t, dir, "node1", time.Now().Add(-time.Minute))
	withRecord(t, dir, c)
	pair, err := tls.X509KeyPair(c.CertificatePEM, c.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}
	_, err = dial(t, serveTest(t, d, dir), config).Status(t.Context(), &hostdpb.StatusRequest{})
	if grpcstatus.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "VMM") {
		t.Errorf("got %v, want a failed handshake", err)
	}
	said := func() bool {
		return len(log.with("certificate of guest node1 expired on ", "run unnest hostd enroll node1", "peer=")) > 0
	}
	for begin := time.Now(); !said(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatalf("log does not say that the certificate has expired: %q", log.with(""))
		}
	}
}

// A connection ends when its certificate expires.
func TestCertificateExpiresOnConnection(t *testing.T) {
	client, expires := servedFor(t, 2*time.Second)
	if client == nil { // on a busy machine
		client, expires = servedFor(t, 30*time.Second)
	}
	if client == nil {
		t.Fatal("a valid certificate is not served")
	}
	time.Sleep(time.Until(expires.Add(500 * time.Millisecond)))
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		_, err := client.Status(t.Context(), &hostdpb.StatusRequest{})
		if !strings.Contains(err.Error(), "VMM") {
			return
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("served %v after its certificate has expired", time.Since(expires))
		}
	}
}

// servedFor returns a client with a certificate that is valid for some time, or nil if no
// daemon has served it.
func servedFor(t *testing.T, valid time.Duration) (hostdpb.HostDaemonClient, time.Time) {
	t.Helper()
	dir := t.TempDir()
	d, _ := testDaemon(t, dir)
	c := identitytest.Issue(t, dir, "node1", time.Now().Add(valid))
	withRecord(t, dir, c)
	pair, err := tls.X509KeyPair(c.CertificatePEM, c.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	client := dial(t, serveTest(t, d, dir), &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true})
	if _, err := client.Status(t.Context(), &hostdpb.StatusRequest{}); !strings.Contains(err.Error(), "VMM") {
		t.Logf("valid for %v: %v", valid, err)
		return nil, c.Expires
	}
	return client, c.Expires
}

// Seven days before a certificate expires the log says so, once a day, and the status and
// the metrics have the date.
func TestExpiryWarning(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	d, log := testDaemon(t, dir)
	c := identitytest.Issue(t, dir, "node1", now.Add(8*24*time.Hour))
	r := goodRecord()
	r.QMP, r.CertificateSHA256, r.CertificateExpires = dir+"/no.qmp", c.Fingerprint, c.Expires
	if err := record.Write(dir, r); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ hours, want int }{{0, 0}, {23, 0}, {25, 1}, {26, 1}, {50, 2}, {8*24 + 1, 3}} {
		d.warnOfExpiry(now.Add(time.Duration(c.hours) * time.Hour))
		if got := len(log.with("level=WARN", "unnest hostd enroll node1", "guest=node1")); got != c.want {
			t.Errorf("after %d hours: %d warnings, want %d: %q", c.hours, got, c.want, log.lines)
		}
	}
	if len(log.with("has expired")) != 1 {
		t.Errorf("want one line of the expired certificate: %q", log.lines)
	}
	d.guests["node1"] = guestrun.New(r, d.tenants["default"], d.host, 0, d.config.Logger)
	d.guests["node1"].Run(t.Context()) // cannot connect
	if s := d.status(t.Context()); !s.Guests[0].CertificateExpires.Equal(c.Expires) {
		t.Errorf("status has %v, want %v", s.Guests[0].CertificateExpires, c.Expires)
	}
	if text := scrape(d); !strings.Contains(text, `unnest_guest_certificate_expiry_seconds{guest="node1"} 69`) { // 691,199 s
		t.Error("metrics do not have the expiry")
	}
}

// So do they of a tenant's policy client, which does not renew its certificate.
func TestPolicyClientExpiryWarning(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	d, log := testDaemon(t, dir)
	d.quotas().Tenants[0].NetworkPolicy = quota.PolicyOptional
	expires := now.Add(8*24*time.Hour + time.Minute)
	if err := statefile.Write(filepath.Join(dir, "policy-clients", "default.json"), map[string]any{"certificate_sha256": "f00", "certificate_expires": expires}); err != nil {
		t.Fatal(err)
	}
	if err := statefile.Write(filepath.Join(dir, "policy-clients", "other.json"), map[string]any{"certificate_sha256": "f01", "certificate_expires": now}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ hours, want int }{{0, 0}, {25, 1}, {26, 1}, {8*24 + 1, 2}} {
		d.warnOfExpiry(now.Add(time.Duration(c.hours) * time.Hour))
		if got := len(log.with("level=WARN", "unnest hostd policy enroll default", "tenant=default")); got != c.want {
			t.Errorf("after %d hours: %d warnings, want %d: %q", c.hours, got, c.want, log.lines)
		}
	}
	if text := scrape(d); !strings.Contains(text, `unnest_policy_client_certificate_expiry_seconds{tenant="default"} 691`) {
		t.Error("metrics do not have the expiry")
	}
	if got := log.with("tenant=other"); len(got) != 0 {
		t.Errorf("a tenant without network policy is warned: %q", got)
	}
	if err := os.WriteFile(filepath.Join(dir, "policy-clients", "default.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		d.warnOfExpiry(now)
	}
	if got := log.with("cannot read the record of the policy client", "tenant=default"); len(got) != 1 {
		t.Errorf("want one warning of a damaged record: %q", got)
	}
}
