package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostd/credentials"
)

// selfSigned returns a self-signed certificate for a name.
func selfSigned(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	uri, err := url.Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), URIs: []*url.URL{uri},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// rogueKeyless starts a container without a key behind the guest's bridge, and a process of
// another user. Neither reaches the daemon; root does.
func rogueKeyless(t *testing.T, m *node) {
	m.run(`ip netns add keyless; ip link add veth0 type veth peer name eth0 netns keyless
		ip addr add 172.30.0.1/24 dev veth0; ip link set veth0 up
		ip -n keyless addr add 172.30.0.2/24 dev eth0; ip -n keyless link set eth0 up; ip -n keyless route add default via 172.30.0.1
		sysctl -qw net.ipv4.ip_forward=1; modprobe -a iptable_nat xt_MASQUERADE
		iptables -t nat -A POSTROUTING -s 172.30.0.0/24 -j MASQUERADE`)
	defer m.run("iptables -t nat -D POSTROUTING -s 172.30.0.0/24 -j MASQUERADE; ip netns del keyless")
	connect := "busybox nc -w 5 10.200.0.1 7443 </dev/null"
	for _, c := range []struct {
		who, command string
		reaches      bool
	}{
		{"a container", "ip netns exec keyless " + connect, false},
		{"a user", "busybox setuidgid nobody " + connect, false},
		{"root", connect, true},
	} {
		if out, err := m.try(c.command, ""); (err == nil) != c.reaches {
			t.Errorf("%s connects to the daemon: got %v (%s), want success %v", c.who, err, out, c.reaches)
		}
	}
	m.run("iptables -t nat -S >/dev/null") // the rules of others still work
}

// rogueCertificate renews the certificate of a guest, which keeps its connections, and
// revokes it.
func rogueCertificate(t *testing.T, rogue, victim *node) {
	old := rogue.dialDaemon()
	was := rogue.run("cat /etc/unnest/client.crt")
	if out := rogue.run("/usr/lib/cni/brfusion renew"); !strings.Contains(out, "renewed the certificate of rogue: valid until ") {
		t.Errorf("renew: %s", out)
	}
	if rogue.run("cat /etc/unnest/client.crt") == was {
		t.Error("the certificate is the old one")
	}
	if _, err := old.Status(t.Context(), &hostdpb.StatusRequest{}); err != nil {
		t.Errorf("request with the old certificate in its grace: %v", err)
	}
	next := rogue.dialDaemon()
	if _, err := next.Status(t.Context(), &hostdpb.StatusRequest{}); err != nil {
		t.Errorf("request with the new certificate: %v", err)
	}
	if s := rogue.nodes.guestStatus("rogue"); len(s.Certificates) != 2 || s.Certificates[0].State != "superseded" || s.Certificates[1].State != "used" || s.CertificateExpires.IsZero() {
		t.Errorf("status has certificates %+v", s.Certificates)
	}
	if revoked, err := credentials.Revoke(t.Context(), rogue.nodes.fleet.Lab.Dir, "rogue", ""); err != nil || len(revoked) != 2 {
		t.Errorf("revoked %v, error %v", revoked, err)
	}
	for name, client := range map[string]hostdpb.HostDaemonClient{"old": old, "new": next} {
		if _, err := client.Status(t.Context(), &hostdpb.StatusRequest{}); err == nil {
			t.Errorf("the %s certificate is served after it was revoked", name)
		}
	}
	if out, err := rogue.try("/usr/lib/cni/brfusion renew", ""); err == nil || !strings.Contains(out, "revoked") {
		t.Errorf("renewal of the revoked certificate: %v: %s", err, out)
	}
	if _, err := victim.dialDaemon().Status(t.Context(), &hostdpb.StatusRequest{}); err != nil {
		t.Errorf("request of the victim: %v", err)
	}
	rogue.enroll()
	if _, err := rogue.dialDaemon().Status(t.Context(), &hostdpb.StatusRequest{}); err != nil {
		t.Errorf("request after the guest was enrolled again: %v", err)
	}
	rogue.wantReach("r1", netip.MustParseAddr("10.201.0.1"), true)
}

// enroll issues another certificate to a guest of the lab, and copies it to the guest.
func (m *node) enroll() {
	t := m.nodes.t
	t.Helper()
	out := t.TempDir()
	cmd := exec.Command(filepath.Join(m.nodes.binaries, "unnest"), "hostd", "enroll", m.Name,
		"--config", filepath.Join(out, "none"), "--state", m.nodes.fleet.Lab.Dir, "--output", out)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("enroll: %v: %s", err, text)
	}
	for _, name := range []string{"client.key", "client.crt"} {
		content, err := os.ReadFile(filepath.Join(out, name))
		m.nodes.check(err)
		if text, err := m.try("cat >/etc/unnest/"+name, string(content)); err != nil {
			t.Fatalf("copy %s: %v: %s", name, err, text)
		}
	}
}
