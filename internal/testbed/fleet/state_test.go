package fleet

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/testbed/guest"
)

// newNode returns the description of a guest. Its PID belongs to a process that is not
// QEMU.
func newNode(t *testing.T, f *Fleet) *Node {
	t.Helper()
	_, hostKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	dir := f.Lab.GuestDir("node1")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return &Node{
		Guest: &guest.Guest{
			Config: guest.Config{
				Name: "node1", Dir: dir, Accel: guest.TCG, VCPUs: 2, Memory: 1 << 30, Slots: 8, Address: "10.200.0.4:22",
				Seed: guest.Seed{HostKey: hostKey},
			},
			PID: os.Getpid(),
		},
		Index: 3, TenantIP: "10.201.0.4",
	}
}

var issued = identity.Credentials{
	Fingerprint: strings.Repeat("ab", 32), Serial: "1f", Expires: time.Date(2026, 12, 22, 0, 0, 0, 0, time.UTC),
}

func TestStateRoundTrip(t *testing.T) {
	f := openFleet(t)
	n := newNode(t, f)
	if err := n.save(f.Lab.Dir, Options{Pool: 2}, issued); err != nil {
		t.Fatal(err)
	}
	got, err := readState(n.Dir)
	if err != nil {
		t.Fatal(err)
	}
	hostKey, _, _, _, err := ssh.ParseAuthorizedKey([]byte(got.HostKey))
	if err != nil {
		t.Fatal(err)
	}
	want, err := ssh.NewPublicKey(n.Seed.HostKey.Public())
	if err != nil || string(hostKey.Marshal()) != string(want.Marshal()) {
		t.Errorf("host key: got %s (%v)", got.HostKey, err)
	}
	if since := time.Since(got.Started); since < 0 || since > time.Minute {
		t.Errorf("started %v ago", since)
	}
	got.HostKey, got.Started = "", time.Time{}
	if want := (nodeState{Index: 3, PID: os.Getpid(), Accel: guest.TCG, VCPUs: 2, Memory: 1 << 30, Slots: 8, Address: "10.200.0.4:22"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	entries, err := os.ReadDir(n.Dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("%v are in the guest's directory (%v), want state and record", entries, err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: %v, mode %v; want 0600", e.Name(), err, info.Mode())
		}
	}
}

// The host daemon gets the guest's NICs and the fingerprint of its certificate.
func TestStateForDaemon(t *testing.T) {
	f := openFleet(t)
	n := newNode(t, f)
	if err := n.save(f.Lab.Dir, Options{Pool: 2}, issued); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(record.Path(f.Lab.Dir, "node1"))
	if err != nil {
		t.Fatal(err)
	}
	var got record.Guest
	if err := json.Unmarshal(content, &got); err != nil {
		t.Fatal(err)
	}
	want := record.Guest{
		Name: "node1", Tenant: Tenant, Index: 3, PID: os.Getpid(), QMP: n.DaemonQMP(), Pool: 2, CertificateSHA256: issued.Fingerprint, CertificateSerial: issued.Serial, CertificateExpires: issued.Expires,
		Ports: []string{"rp1", "rp2", "rp3", "rp4", "rp5", "rp6", "rp7", "rp8"},
		NICs: []record.BootNIC{
			{TAP: "g3mgmt", MAC: "52:54:00:c8:00:03", Addresses: []netip.Addr{netip.MustParseAddr("10.200.0.4")}},
			{TAP: "g3tenant", MAC: "52:54:00:c9:00:03", Addresses: []netip.Addr{netip.MustParseAddr("10.201.0.4")}},
		},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("record differs (-want +got):\n%s", diff)
	}
}

func TestFind(t *testing.T) {
	f := openFleet(t)
	if n, err := f.Find("node1"); n != nil || !errors.Is(err, ErrNoGuest) || !strings.Contains(err.Error(), "node1") {
		t.Errorf("no guest: got %v, %v; want ErrNoGuest", n, err)
	}
	for _, name := range []string{"", ".", "..", "../guests", "../../victim"} {
		if n, err := f.Find(name); n != nil || !errors.Is(err, ErrNoGuest) || !strings.Contains(err.Error(), "guest name") {
			t.Errorf("%q: got %v, %v; want ErrNoGuest, because no guest can have the name", name, n, err)
		}
	}
	node := newNode(t, f)
	if n, err := f.Find("node1"); n != nil || !errors.Is(err, guest.ErrDied) || errors.Is(err, ErrNoGuest) {
		t.Errorf("guest whose start was interrupted: got %v, %v; want ErrDied", n, err)
	}
	lock, err := os.OpenFile(filepath.Join(f.Lab.Dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600) // as another process
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.Find("node1"); n != nil || !errors.Is(err, ErrStarting) || errors.Is(err, guest.ErrDied) {
		t.Errorf("guest that another process starts: got %v, %v; want ErrStarting", n, err)
	}
	if err := lock.Close(); err != nil {
		t.Error(err)
	}
	if err := node.save(f.Lab.Dir, Options{}, issued); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Find("node1"); n != nil || !errors.Is(err, guest.ErrDied) || errors.Is(err, ErrNoGuest) {
		t.Errorf("a process that is not QEMU: got %v, %v; want ErrDied", n, err)
	}
	if err := os.WriteFile(filepath.Join(node.Dir, stateFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := f.Find("node1"); n != nil || err == nil || errors.Is(err, ErrNoGuest) || !strings.Contains(err.Error(), stateFile) {
		t.Errorf("damaged state: got %v, %v; want an error that names it", n, err)
	}
}

// A damaged host key prevents the login.
func TestReachDamagedHostKey(t *testing.T) {
	f := openFleet(t)
	n := newNode(t, f)
	if _, err := f.Reach(t.Context(), n); err == nil || !strings.Contains(err.Error(), stateFile) {
		t.Errorf("no state: got %v", err)
	}
	if err := writeJSON(filepath.Join(n.Dir, stateFile), nodeState{HostKey: "ssh-ed25519 garbage"}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Reach(t.Context(), n); err == nil || !strings.Contains(err.Error(), "host key of guest node1") {
		t.Errorf("damaged key: got %v", err)
	}
}

// The daemon lets the guest's NIC on the tenant's network, and no other, send from further
// addresses.
func TestStateOfRouter(t *testing.T) {
	f := openFleet(t)
	n := newNode(t, f)
	pod := netip.MustParseAddr("10.244.4.1")
	if err := n.save(f.Lab.Dir, Options{}, issued, pod); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(record.Path(f.Lab.Dir, n.Name))
	if err != nil {
		t.Fatal(err)
	}
	var written record.Guest
	if err := json.Unmarshal(content, &written); err != nil {
		t.Fatal(err)
	}
	p := addressesOf(3)
	tenant := bootNIC(p.tenantTAP, p.tenantMAC, p.tenantIP)
	tenant.Addresses = append(tenant.Addresses, pod)
	if diff := cmp.Diff([]record.BootNIC{bootNIC(p.managementTAP, p.managementMAC, p.managementIP), tenant}, written.NICs, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("the guest's NICs differ (-want +got):\n%s", diff)
	}
}
