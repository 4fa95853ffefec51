package share

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func privileged(t *testing.T) {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root: set UNNEST_PRIVILEGED=1")
	}
}

// tenantDirectory returns a directory that OpenVolume accepts.
func tenantDirectory(t *testing.T) string {
	t.Helper()
	privileged(t)
	dir := filepath.Join(t.TempDir(), "tenant")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestOpenVolume(t *testing.T) {
	dir := tenantDirectory(t)
	data := ID{Volume, "web", "data"}
	for range 2 {
		path, err := OpenVolume(dir, data, Digest{1})
		if err != nil || path != dir+"/web/data" {
			t.Fatalf("got %s, %v", path, err)
		}
		if err := os.WriteFile(path+"/file", []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := OpenVolume(dir, ID{Volume, "web", "logs"}, Digest{1}); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"data", "other"} {
		if path, err := OpenVolume(dir, ID{Volume, "web", name}, Digest{2}); !errors.Is(err, ErrKey) {
			t.Errorf("another key opens %s: got %s, %v", name, path, err)
		}
	}
	if _, err := os.Stat(dir + "/web/other"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("another key has made a volume: %v", err)
	}
	if path, err := OpenVolume(dir, ID{Volume, "db", "data"}, Digest{2}); err != nil || path != dir+"/db/data" {
		t.Errorf("another pod: got %s, %v", path, err)
	}
	kept, err := filepath.Glob(dir + "/web/.key*")
	if err != nil || len(kept) != 1 {
		t.Errorf("other files than volumes: %q, %v, want the key only", kept, err)
	}
}

func TestOpenVolumeRefuses(t *testing.T) {
	outside := t.TempDir()
	for name, prepare := range map[string]func(dir string) error{
		"no directory":  os.Remove,
		"others get in": func(dir string) error { return os.Chmod(dir, 0o710) },
		"another's":     func(dir string) error { return os.Chown(dir, 1000, 0) },
		"pod is a link": func(dir string) error { return os.Symlink(outside, dir+"/web") },
		"pod is a file": func(dir string) error { return os.WriteFile(dir+"/web", nil, 0o600) },
		"volume is a link": func(dir string) error {
			return errors.Join(os.Mkdir(dir+"/web", 0o700), os.Symlink(outside, dir+"/web/data"))
		},
		"directory's a link": func(dir string) error { return errors.Join(os.Remove(dir), os.Symlink(outside, dir)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := tenantDirectory(t)
			if err := prepare(dir); err != nil {
				t.Fatal(err)
			}
			if path, err := OpenVolume(dir, ID{Volume, "web", "data"}, Digest{1}); !errors.Is(err, ErrDirectory) {
				t.Errorf("got %s, %v", path, err)
			}
		})
	}
	if _, err := OpenVolume(tenantDirectory(t), ID{Volume, "..", "data"}, Digest{}); !errors.Is(err, ErrName) {
		t.Errorf("..: got %v", err)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside there is %v, %v", left, err)
	}
}

// A server ends when its VMM hangs up, and reports a directory that does not exist.
func TestServe(t *testing.T) {
	privileged(t)
	s, conn, err := Serve(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(200 * time.Millisecond)
	if err := s.Err(); err != nil {
		t.Errorf("before its VMM has hung up: %v", err)
	}
	conn.Close()
	begin := time.Now()
	s.Stop()
	if took := time.Since(begin); took >= stopTimeout {
		t.Errorf("it had to be killed, after %v", took)
	}
	s, conn, err = Serve(filepath.Join(t.TempDir(), "none"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	<-s.ended
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("no directory: got %v", err)
	}
	s.Stop()
	if _, _, err := Serve("/a,sandbox=none"); err == nil {
		t.Error("a comma became an option")
	}
}

func TestRegion(t *testing.T) {
	r := &Region{Tenant: "default", ID: ID{Memory, "web.1", "ring"}, Key: Digest{1, 2, 3}, Size: 8192}
	if err := r.Create(); err != nil {
		t.Fatal(err)
	}
	defer r.File.Close()
	if got, ok := parseTitle(r.title()); !ok || got.Tenant != r.Tenant || got.ID != r.ID || got.Key != r.Key {
		t.Errorf("%s is read as %+v, %t", r.title(), got, ok)
	}
	longest := Region{Tenant: strings.Repeat("t", 63), ID: ID{Memory, strings.Repeat("p", MaxPod), strings.Repeat("n", MaxName)}}
	if n := len(longest.title()); n > 249 {
		t.Errorf("the kernel refuses a name of %d bytes", n)
	}
	if found, err := FindRegions(os.Getpid()); err != nil || len(found) != 0 {
		t.Errorf("found what is not mapped: %v, %v", found, err)
	}
	for range 2 { // a VMM may have it for several devices
		mapping, err := unix.Mmap(int(r.File.Fd()), 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := unix.Munmap(mapping); err != nil {
				t.Error(err)
			}
		}()
	}
	found, err := FindRegions(os.Getpid())
	if err != nil || len(found) != 1 || found[0].ID != r.ID || found[0].Size != 8192 || found[0].Key != r.Key {
		t.Fatalf("found %v, %v", found, err)
	}
	defer found[0].File.Close()
	if _, err := found[0].File.WriteAt([]byte("x"), 100); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := r.File.ReadAt(b, 100); err != nil || b[0] != 'x' {
		t.Errorf("the memory has %q, %v", b, err)
	}
	for _, size := range []int64{0, 1, 4095, 6000, MaxMemory * 2, -4096} {
		if err := (&Region{ID: r.ID, Size: size}).Create(); !errors.Is(err, ErrSize) {
			t.Errorf("%d bytes: got %v", size, err)
		}
	}
	for _, title := range []string{"", "memory-backend-memfd", "unnest;t;memory.a.b;x", "unnest;t;nic.a.b;" + strings.Repeat("A", 43)} {
		if _, ok := parseTitle(title); ok {
			t.Errorf("parseTitle accepts %q", title)
		}
	}
}

func TestExport(t *testing.T) {
	privileged(t)
	volume, e := t.TempDir(), Export{filepath.Join(t.TempDir(), "ex port")} // a blank is escaped in mountinfo
	if err := os.Mkdir(e.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	id := ID{Volume, "web", "data"}
	t.Cleanup(func() { _ = unix.Unmount(e.path(id), unix.MNT_DETACH) }) // before its contents are removed
	if err := os.WriteFile(volume+"/file", []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it exists
		name, err := e.Bind(id, volume)
		if err != nil || name != "volume.data.web" {
			t.Fatalf("got %s, %v", name, err)
		}
	}
	got, err := os.ReadFile(e.Dir + "/volume.data.web/file")
	if err != nil || string(got) != "hello" {
		t.Errorf("in the export is %q, %v", got, err)
	}
	if all, err := e.Bound(); err != nil || len(all) != 1 || !all[id] {
		t.Errorf("bound are %v, %v", all, err)
	}
	for range 2 {
		if err := e.Unbind(id); err != nil {
			t.Error(err)
		}
	}
	if all, err := e.Bound(); err != nil || len(all) != 0 {
		t.Errorf("bound are %v, %v", all, err)
	}
	if left, err := os.ReadDir(e.Dir); err != nil || len(left) > 0 {
		t.Errorf("the export has %v, %v", left, err)
	}
	if _, err := os.Stat(volume + "/file"); err != nil {
		t.Errorf("the volume's file: %v", err)
	}
	if err := CheckMounts(os.Getpid()); err != nil {
		t.Error(err)
	}
}

// Lines of a real mountinfo.
func TestBound(t *testing.T) {
	const text = `26 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
39 26 0:29 / /proc rw,nosuid,nodev,noexec,relatime shared:9 - proc proc rw
412 26 254:0 /srv/pods/web/data /run/export/volume.data.web rw,nosuid,nodev,relatime shared:1 - ext4 /dev/vda rw
413 26 254:0 /srv/pods/web/data /run/exports/volume.data.web rw,relatime shared:1 - ext4 /dev/vda rw
414 412 254:0 /x /run/export/volume.data.web/volume.x.y rw,relatime shared:1 - ext4 /dev/vda rw
415 26 254:0 /y /run/export/memory.x.y rw,relatime shared:1 - ext4 /dev/vda rw
`
	got := Export{"/run/export/"}.bound(text)
	if len(got) != 1 || !got[ID{Volume, "web", "data"}] {
		t.Errorf("got %v", got)
	}
}
