package record

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func validRecord() Guest {
	return Guest{
		Name: "node1", Tenant: "default", Index: 1, PID: 42, QMP: "/run/x/hostd.qmp", Ports: []string{"rp1", "rp2"}, CertificateSHA256: strings.Repeat("0a", 32),
	}
}

func TestRecordComesBack(t *testing.T) {
	dir := t.TempDir()
	want := validRecord()
	for range 2 { // the second replaces the first
		want.Index++
		if err := Write(dir, want); err != nil {
			t.Fatal(err)
		}
		got, err := Read(dir, "node1", nil)
		if err != nil || !got.Same(want) {
			t.Errorf("got %+v, error %v, want %+v", got, err, want)
		}
	}
	files, err := os.ReadDir(filepath.Dir(Path(dir, "node1")))
	if err != nil || len(files) != 1 {
		t.Errorf("directory has %v, error %v, want the record alone", files, err)
	}
	names, err := Names(dir)
	if err != nil || !slices.Equal(names, []string{"node1"}) {
		t.Errorf("guests are %v, error %v", names, err)
	}
}

func TestNoRecord(t *testing.T) {
	if _, err := Read(t.TempDir(), "node1", nil); !errors.Is(err, ErrNoRecord) {
		t.Errorf("got %v, want ErrNoRecord", err)
	}
	if _, err := Read(t.TempDir(), "../node1", nil); err == nil || errors.Is(err, ErrNoRecord) {
		t.Errorf("name with a path: got %v", err)
	}
	if names, err := Names(t.TempDir()); len(names) > 0 || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("new lab: got guests %v, error %v, want ErrNotExist", names, err)
	}
}

func TestBadRecord(t *testing.T) {
	for want, spoil := range map[string]func(*Guest){
		"guest name ":        func(r *Guest) { r.Name = "/" },
		"tenant":             func(r *Guest) { r.Tenant = "" },
		"index 0":            func(r *Guest) { r.Index = 0 },
		"index 1296":         func(r *Guest) { r.Index = 1296 },
		"256 ports":          func(r *Guest) { r.Ports = make([]string, 256) },
		"queues 17":          func(r *Guest) { r.Queues = 17 },
		"pool -1":            func(r *Guest) { r.Pool = -1 },
		"qmp ":               func(r *Guest) { r.QMP = "hostd.qmp" },
		"one of qmp and":     func(r *Guest) { r.Libvirt = &Domain{Socket: "/s", Name: "d"} },
		"nics: ":             func(r *Guest) { r.NICs = []BootNIC{{TAP: "tap0", MAC: "x"}} },
		"certificate_sha256": func(r *Guest) { r.CertificateSHA256 = "00" },
	} {
		r := validRecord()
		spoil(&r)
		if err := r.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	dir := t.TempDir()
	if err := Write(dir, validRecord()); err != nil {
		t.Fatal(err)
	}
	path := Path(dir, "node1")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(dir, "node1", nil); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("cut record: got %v, want an error that names %s", err, path)
	}
}

// No two guests share a prefix of TAPs or MACs.
func TestPrefixes(t *testing.T) {
	taps, macs := map[string]bool{}, map[[3]byte]bool{}
	for i := 1; i <= maxIndex; i++ {
		r := Guest{Index: i}
		taps[r.TAPPrefix()], macs[r.MACPrefix()] = true, true
		if len(r.TAPPrefix()) > 4 {
			t.Fatalf("index %d gives %s", i, r.TAPPrefix())
		}
	}
	if len(taps) != maxIndex || len(macs) != maxIndex {
		t.Errorf("%d prefixes of TAPs and %d of MACs for %d guests", len(taps), len(macs), maxIndex)
	}
}
