package credentials

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/record"
)

// Enroll replaces no file, follows no link, and removes what it has written when it fails.
func TestEnrollOverFile(t *testing.T) {
	configured := quota.Config{Guests: []quota.Guest{{Name: "node3", Tenant: "default", Index: 3, QMP: "/q"}}}
	for range 5 { // files are written in any order
		state, out, outside := t.TempDir(), t.TempDir(), t.TempDir()
		if err := os.Symlink(outside+"/key", out+"/client.key"); err != nil {
			t.Fatal(err)
		}
		if err := Enroll(state, configured, "node3", out); !errors.Is(err, os.ErrExist) {
			t.Errorf("got %v", err)
		}
		left, err := os.ReadDir(out)
		followed, outErr := os.ReadDir(outside)
		if err != nil || outErr != nil || len(left) != 1 || len(followed) > 0 {
			t.Errorf("there are %v, and %v outside: %v, %v", left, followed, err, outErr)
		}
	}
}

// Guests of `unnest vm` are enrolled by their record.
func TestEnroll(t *testing.T) {
	dir := t.TempDir()
	if err := record.Write(dir, record.Guest{
		Name: "node1", Tenant: "default", Index: 1, QMP: dir + "/no.qmp", CertificateSHA256: strings.Repeat("0a", 32),
	}); err != nil {
		t.Fatal(err)
	}
	before := mustRecord(t, dir)
	if err := Enroll(dir, quota.Config{}, "node1", t.TempDir()); err != nil {
		t.Fatal(err)
	}
	after := mustRecord(t, dir)
	if after.CertificateSHA256 == before.CertificateSHA256 || time.Until(after.CertificateExpires) < 29*24*time.Hour || after.CertificateSerial == "" {
		t.Errorf("record is %+v", after)
	}
	after.CertificateSHA256, after.CertificateSerial, after.CertificateExpires = before.CertificateSHA256, before.CertificateSerial, before.CertificateExpires
	if !after.Same(before) {
		t.Errorf("more than the certificate has changed: %+v, was %+v", after, before)
	}
	configured := quota.Config{Guests: []quota.Guest{{Name: "node3", Tenant: "default", Index: 3, QMP: "/q", Addresses: []netip.Addr{}}}}
	if err := Enroll(dir, configured, "node3", t.TempDir()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"node2", "node3"} { // node3 has left the configuration
		if err := Enroll(dir, quota.Config{}, name, t.TempDir()); err == nil || !strings.Contains(err.Error(), "no such guest") || !strings.Contains(err.Error(), "--state") {
			t.Errorf("%s: got %v", name, err)
		}
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
