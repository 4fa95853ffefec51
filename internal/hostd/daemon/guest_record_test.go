package daemon

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest/internal/hostd/attachment"
)

var fingerprint = strings.Repeat("0a", 32)

func goodRecord() GuestRecord {
	return GuestRecord{
		Name: "node1", Tenant: "default", Index: 1, PID: 42, QMP: "/run/x/hostd.qmp", Ports: []string{"rp1", "rp2"}, CertificateSHA256: fingerprint,
	}
}

func TestRecordComesBack(t *testing.T) {
	dir := t.TempDir()
	want := goodRecord()
	for range 2 { // the second replaces the first
		want.Index++
		if err := WriteRecord(dir, want); err != nil {
			t.Fatal(err)
		}
		got, err := readRecord(dir, "node1", nil)
		if err != nil || !got.same(want) {
			t.Errorf("got %+v, error %v, want %+v", got, err, want)
		}
	}
	files, err := os.ReadDir(filepath.Dir(RecordPath(dir, "node1")))
	if err != nil || len(files) != 1 {
		t.Errorf("directory has %v, error %v, want the record alone", files, err)
	}
	names, err := guestNames(dir)
	if err != nil || !slices.Equal(names, []string{"node1"}) {
		t.Errorf("guests are %v, error %v", names, err)
	}
}

func TestNoRecord(t *testing.T) {
	if _, err := readRecord(t.TempDir(), "node1", nil); !errors.Is(err, ErrNoRecord) {
		t.Errorf("got %v, want ErrNoRecord", err)
	}
	if _, err := readRecord(t.TempDir(), "../node1", nil); err == nil || errors.Is(err, ErrNoRecord) {
		t.Errorf("name with a path: got %v", err)
	}
	if names, err := guestNames(t.TempDir()); len(names) > 0 || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("new lab: got guests %v, error %v, want ErrNotExist", names, err)
	}
}

func TestBadRecord(t *testing.T) {
	for want, spoil := range map[string]func(*GuestRecord){
		"guest name ":        func(r *GuestRecord) { r.Name = "/" },
		"tenant":             func(r *GuestRecord) { r.Tenant = "" },
		"index 0":            func(r *GuestRecord) { r.Index = 0 },
		"index 1296":         func(r *GuestRecord) { r.Index = 1296 },
		"256 ports":          func(r *GuestRecord) { r.Ports = make([]string, 256) },
		"pool -1":            func(r *GuestRecord) { r.Pool = -1 },
		"qmp ":               func(r *GuestRecord) { r.QMP = "hostd.qmp" },
		"one of qmp and":     func(r *GuestRecord) { r.Libvirt = &Domain{Socket: "/s", Name: "d"} },
		"nics: ":             func(r *GuestRecord) { r.NICs = []BootNIC{{TAP: "tap0", MAC: "x"}} },
		"certificate_sha256": func(r *GuestRecord) { r.CertificateSHA256 = "00" },
	} {
		r := goodRecord()
		spoil(&r)
		if err := r.check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	dir := t.TempDir()
	if err := WriteRecord(dir, goodRecord()); err != nil {
		t.Fatal(err)
	}
	path := RecordPath(dir, "node1")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readRecord(dir, "node1", nil); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("cut record: got %v, want an error that names %s", err, path)
	}
}

// No two guests share a prefix of TAPs or MACs.
func TestPrefixes(t *testing.T) {
	taps, macs := map[string]bool{}, map[[3]byte]bool{}
	for i := 1; i <= maxIndex; i++ {
		r := GuestRecord{Index: i}
		taps[r.tapPrefix()], macs[r.macPrefix()] = true, true
		if len(r.tapPrefix()) > 4 {
			t.Fatalf("index %d gives %s", i, r.tapPrefix())
		}
	}
	if len(taps) != maxIndex || len(macs) != maxIndex {
		t.Errorf("%d prefixes of TAPs and %d of MACs for %d guests", len(taps), len(macs), maxIndex)
	}
}

func TestAttachmentKey(t *testing.T) {
	for _, c := range []struct {
		container, iface string
		ok               bool
	}{
		{"c", "eth0", true},
		{strings.Repeat("a", 128), "abcdefghijklmno", true},
		{"a_.-9", "net@1", true},
		{"", "eth0", false},
		{strings.Repeat("a", 129), "eth0", false},
		{"-a", "eth0", false},
		{"a/b", "eth0", false},
		{"a b", "eth0", false},
		{"a\n", "eth0", false},
		{"é", "eth0", false},
		{"c", "", false},
		{"c", "abcdefghijklmnop", false},
		{"c", ".", false},
		{"c", "..", false},
		{"c", "a/b", false},
		{"c", "a:b", false},
		{"c", "a b", false},
		{"c", "a\x00", false},
		{"c", "é", false},
	} {
		_, err := attachmentKey(attachment.NIC, c.container, c.iface)
		if (err == nil) != c.ok || err != nil && (status.Code(err) != codes.InvalidArgument || len(err.Error()) > 400) {
			t.Errorf("%q %q: got %v, want ok %v", c.container, c.iface, err, c.ok)
		}
	}
}
