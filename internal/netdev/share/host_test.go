package share

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// anyone is a guest without a limit.
var anyone = Maker{Guest: "g1", Admit: func(int) error { return nil }}

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
		v, err := OpenVolume(dir, data, Digest{1}, anyone)
		if err != nil || v.Name() != dir+"/web/data" {
			t.Fatalf("got %v, %v", v, err)
		}
		path := v.Name()
		v.Close()
		if err := os.WriteFile(path+"/file", []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"data", "logs"} {
		if err := CheckVolume(dir, ID{Volume, "web", name}, Digest{1}, anyone); err != nil {
			t.Errorf("the key: %v", err)
		}
	}
	for _, name := range []string{"data", "other"} {
		id := ID{Volume, "web", name}
		if _, err := OpenVolume(dir, id, Digest{2}, anyone); !errors.Is(err, ErrKey) {
			t.Errorf("another key opens %s: %v", name, err)
		}
		if err := CheckVolume(dir, id, Digest{2}, anyone); !errors.Is(err, ErrKey) {
			t.Errorf("another key passes for %s: %v", name, err)
		}
	}
	if _, err := os.Stat(dir + "/web/other"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("another key has made a volume: %v", err)
	}
	if err := CheckVolume(dir, ID{Volume, "db", "data"}, Digest{2}, anyone); err != nil {
		t.Errorf("another pod: %v", err)
	}
	if _, err := os.Stat(dir + "/db"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a check has made a directory: %v", err)
	}
	v, err := OpenVolume(dir, ID{Volume, "db", "data"}, Digest{2}, anyone)
	if err != nil || v.Name() != dir+"/db/data" {
		t.Fatalf("another pod: got %v, %v", v, err)
	}
	v.Close()
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
		"above is another's": func(dir string) error { return os.Chown(filepath.Dir(dir), 1000, 0) },
		"above is writable":  func(dir string) error { return os.Chmod(filepath.Dir(dir), 0o777) },
		"the way is another's link": func(dir string) error {
			above := filepath.Dir(dir)
			return errors.Join(os.Rename(above, above+"x"), os.Symlink(above+"x", above), os.Lchown(above, 1000, 1000))
		},
		"directory's a link": func(dir string) error { return errors.Join(os.Remove(dir), os.Symlink(outside, dir)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := tenantDirectory(t)
			if err := prepare(dir); err != nil {
				t.Fatal(err)
			}
			if v, err := OpenVolume(dir, ID{Volume, "web", "data"}, Digest{1}, anyone); !errors.Is(err, ErrDirectory) {
				t.Errorf("got %v, %v", v, err)
			}
		})
	}
	if _, err := OpenVolume(tenantDirectory(t), ID{Volume, "..", "data"}, Digest{}, anyone); !errors.Is(err, ErrName) {
		t.Errorf("..: got %v", err)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside there is %v, %v", left, err)
	}
}

// Only what OpenVolume has made, and no one uses, is discarded.
func TestDiscard(t *testing.T) {
	dir := tenantDirectory(t)
	open := func(name string) *Directory {
		v, err := OpenVolume(dir, ID{Volume, "web", name}, Digest{1}, anyone)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { v.Close() })
		return v
	}
	want := func(want ...string) {
		t.Helper()
		var got []string
		err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if path != dir {
				got = append(got, strings.TrimPrefix(path, dir+"/"))
			}
			return err
		})
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("there is %q, %v, want %q", got, err, want)
		}
	}
	if err := open("data").Discard(); err != nil {
		t.Error(err)
	}
	want()
	first, second, again := open("data"), open("logs"), open("logs")
	if err := errors.Join(first.Discard(), again.Discard()); err != nil { // again has made nothing
		t.Error(err)
	}
	const maker = ".makers/g1"
	want(".makers", maker, maker+"/volume.logs.web", "web", "web/.key", "web/logs")
	if err := os.WriteFile(second.Name()+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := second.Discard(); err != nil {
		t.Error(err)
	}
	want(".makers", maker, maker+"/volume.logs.web", "web", "web/.key", "web/logs", "web/logs/file")
}

// A daemon that is killed leaves at most an incomplete key, which is none.
func TestIncompleteKey(t *testing.T) {
	dir := tenantDirectory(t)
	if err := errors.Join(os.Mkdir(dir+"/web", 0o700), os.WriteFile(dir+"/web/"+newKeyFile, []byte("half"), 0o600)); err != nil {
		t.Fatal(err)
	}
	v, err := OpenVolume(dir, ID{Volume, "web", "data"}, Digest{1}, anyone)
	if err != nil {
		t.Fatal(err)
	}
	v.Close()
	if err := CheckVolume(dir, ID{Volume, "web", "data"}, Digest{2}, anyone); !errors.Is(err, ErrKey) {
		t.Errorf("another key: %v", err)
	}
}

// wantFiles waits until the server has limited its files.
func wantFiles(t *testing.T, s *Server) {
	t.Helper()
	files := fmt.Sprint(fileLimit())
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", s.cmd.Process.Pid))
		if err == nil && slices.ContainsFunc(strings.Split(string(limits), "\n"), func(line string) bool {
			f := strings.Fields(line)
			return len(f) == 6 && f[1] == "open" && f[3] == files && f[4] == files
		}) {
			return
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("it may open other than %s files: %s, %v", files, limits, err)
		}
	}
}

// A server ends when its VMM hangs up, and reports a directory that does not exist.
func TestServe(t *testing.T) {
	privileged(t)
	s, conn, err := Serve(t.TempDir(), (*exec.Cmd).Start)
	if err != nil {
		t.Fatal(err)
	}
	wantFiles(t, s)
	if err := s.Err(); err != nil {
		t.Errorf("before its VMM has hung up: %v", err)
	}
	conn.Close()
	select {
	case <-s.ended:
	case <-time.After(time.Minute):
		t.Error("it does not end when its VMM has hung up")
	}
	s.Stop()
	s, conn, err = Serve(filepath.Join(t.TempDir(), "none"), (*exec.Cmd).Start)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	<-s.ended
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("no directory: got %v", err)
	}
	s.Stop()
	if _, _, err := Serve("/a,sandbox=none", (*exec.Cmd).Start); err == nil {
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

func TestOpenGroupsRefuses(t *testing.T) {
	for name, c := range map[string][2]string{
		"no controllers": {"", "controller cpu is missing"},
		"no pids":        {"cpu memory\n", "controller pids is missing"},
		"not writable":   {"cpu memory pids\n", "cgroup.subtree_control"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(dir+"/cgroup.controllers", []byte(c[0]), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := openGroups(dir); err == nil || !strings.Contains(err.Error(), c[1]) {
				t.Errorf("got %v, want %q", err, c[1])
			}
		})
	}
}
