package share

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

var data = ID{Volume, "web", "data"}

// newExport returns an export that is not prepared, and an open volume with a file.
func newExport(t *testing.T) (e Export, volume *os.File) {
	t.Helper()
	privileged(t)
	e = Export{Dir: filepath.Join(t.TempDir(), "ex port"), Owner: "/run/own er"} // blanks are escaped in mountinfo
	if err := os.Mkdir(e.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // before it is removed with its contents
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if all, err := e.Bound(); err != nil || len(all) > 0 {
			t.Errorf("bound are %v, %v", all, err)
		}
	})
	return e, newVolume(t)
}

func newVolume(t *testing.T) *os.File {
	t.Helper()
	dir := t.TempDir()
	volume, err := os.Open(dir)
	if err == nil {
		err = os.WriteFile(dir+"/file", []byte("hello"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { volume.Close() })
	return volume
}

// writable returns the export without its read-only flag, until the test ends.
func (e Export) writable(t *testing.T) *os.File {
	t.Helper()
	dir, err := e.open()
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	writable, err := cloneMount(dir, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { writable.Close() })
	return writable
}

func (e Export) mustPrepare(t *testing.T) {
	t.Helper()
	if err := e.Prepare(); err != nil {
		t.Fatal(err)
	}
}

func (e Export) wantEntries(t *testing.T, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(e.Dir)
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("the export has %q, %v, want %q", got, err, want)
	}
}

func TestExport(t *testing.T) {
	e, volume := newExport(t)
	for range 2 { // the second time it exists
		e.mustPrepare(t)
		name, err := e.Bind(data, volume)
		if err != nil || name != "volume.data.web" {
			t.Fatalf("got %s, %v", name, err)
		}
	}
	got, err := os.ReadFile(e.Dir + "/volume.data.web/file")
	if err != nil || string(got) != "hello" {
		t.Errorf("in the export is %q, %v", got, err)
	}
	if all, err := e.Bound(); err != nil || len(all) != 1 || !all[data] {
		t.Errorf("bound are %v, %v", all, err)
	}
	if err := os.WriteFile(e.Dir+"/volume.data.web/new", nil, 0o600); err != nil {
		t.Errorf("the volume cannot be written: %v", err)
	}
	for range 2 {
		if err := e.Unbind(data); err != nil {
			t.Error(err)
		}
	}
	if all, err := e.Bound(); err != nil || len(all) != 0 {
		t.Errorf("bound are %v, %v", all, err)
	}
	e.wantEntries(t)
	if _, err := os.Stat(volume.Name() + "/file"); err != nil {
		t.Errorf("the volume's file: %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(e.Dir+"/after", nil, 0o600); err != nil {
		t.Errorf("the directory is still read-only: %v", err)
	}
}

// A guest's root, which writes in the export as the host's root, can put nothing next to
// the volumes, and the host runs, opens and follows nothing of a volume.
func TestExportIsRestricted(t *testing.T) {
	e, volume := newExport(t)
	e.mustPrepare(t)
	if _, err := e.Bind(data, volume); err != nil {
		t.Fatal(err)
	}
	next := e.Dir + "/volume.logs.web"
	for what, err := range map[string]error{
		"link":      os.Symlink("/etc", next),
		"directory": os.Mkdir(next, 0o700),
		"file":      os.WriteFile(next, nil, 0o600),
		"rename":    os.Rename(e.Dir+"/volume.data.web", next),
		"mode":      os.Chmod(e.Dir, 0o777),
		"node":      unix.Mknod(next, unix.S_IFCHR, int(unix.Mkdev(1, 3))),
	} {
		if !errors.Is(err, unix.EROFS) && !errors.Is(err, unix.EBUSY) {
			t.Errorf("%s: got %v, want a read-only file system", what, err)
		}
	}
	within := e.Dir + "/volume.data.web"
	if err := errors.Join(os.Symlink("file", within+"/link"), unix.Mknod(within+"/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))),
		os.WriteFile(within+"/program", []byte("#!/bin/sh\n"), 0o600), os.Chmod(within+"/program", 0o755|os.ModeSetuid)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(within + "/link"); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a link: %v", err)
	}
	if _, err := os.ReadFile(within + "/null"); !errors.Is(err, unix.EACCES) {
		t.Errorf("a device: %v", err)
	}
	if err := exec.Command(within + "/program").Run(); !errors.Is(err, unix.EACCES) {
		t.Errorf("a program: %v", err)
	}
}

// What a guest has planted is not followed, also if the export's own mount were writable
// to it for a moment.
func TestExportPlanted(t *testing.T) {
	for name, plant := range map[string]func(path, outside string) error{
		"link":          func(path, outside string) error { return os.Symlink(outside, path) },
		"relative link": func(path, _ string) error { return os.Symlink("..", path) },
		"file":          func(path, _ string) error { return os.WriteFile(path, nil, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			e, volume := newExport(t)
			outside := newVolume(t)
			e.mustPrepare(t)
			writable := e.writable(t)
			t.Chdir("/") // and back at the end
			if err := unix.Fchdir(int(writable.Fd())); err != nil {
				t.Fatal(err)
			}
			if err := plant(data.String(), outside.Name()); err != nil {
				t.Fatal(err)
			}
			if bound, err := e.Bind(data, volume); err == nil {
				t.Errorf("bound as %s", bound)
			}
			if err := e.Unbind(data); err != nil {
				t.Errorf("unbind: %v", err)
			}
			content, err := os.ReadFile("/proc/self/mountinfo")
			if err != nil || strings.Contains(string(content), outside.Name()) {
				t.Errorf("something is mounted outside: %s, %v", content, err)
			}
			if got, err := os.ReadFile(outside.Name() + "/file"); err != nil || string(got) != "hello" {
				t.Errorf("outside: %q, %v", got, err)
			}
		})
	}
}

// Each state in which a killed daemon can leave an export is taken over.
func TestExportAfterKill(t *testing.T) {
	e, volume := newExport(t)
	e.mustPrepare(t)
	writable := e.writable(t)
	for _, name := range []string{"volume.data.web", "volume.logs.web"} { // mount points without mounts
		if err := unix.Mkdirat(int(writable.Fd()), name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.Bind(data, volume); err != nil {
		t.Fatal(err)
	}
	e.mustPrepare(t)
	e.wantEntries(t, "volume.data.web")
	if got, err := os.ReadFile(e.Dir + "/volume.data.web/file"); err != nil || string(got) != "hello" {
		t.Errorf("in the export is %q, %v", got, err)
	}
	all, err := mounts()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, m := range all {
		if strings.HasPrefix(m.point, e.Dir) {
			n++
		}
	}
	if n != 2 {
		t.Errorf("there are %d mounts, want 2", n)
	}
}

// An export of an earlier version is writable to its guest. Its volumes can be unbound;
// no other is bound.
func TestExportOfEarlierVersion(t *testing.T) {
	e, volume := newExport(t)
	target := filepath.Join(e.Dir, data.String())
	if err := errors.Join(os.Mkdir(target, 0o700), unix.Mount(volume.Name(), target, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	logs := ID{Volume, "web", "logs"}
	if err := os.Symlink("/etc", filepath.Join(e.Dir, logs.String())); err != nil {
		t.Fatal(err)
	}
	for _, id := range []ID{data, logs} {
		if _, err := e.Bind(id, volume); !errors.Is(err, ErrWritable) {
			t.Errorf("bind %s: got %v", id, err)
		}
	}
	if err := e.Prepare(); !errors.Is(err, ErrWritable) {
		t.Errorf("prepare while a volume is bound: got %v", err)
	}
	if err := errors.Join(e.Unbind(data), e.Unbind(logs)); err != nil {
		t.Error(err)
	}
	e.mustPrepare(t)
	if _, err := e.Bind(logs, volume); err != nil {
		t.Error(err)
	}
}

func TestExportRefuses(t *testing.T) {
	for name, prepare := range map[string]func(dir string) error{
		"no directory":  os.Remove,
		"another's":     func(dir string) error { return os.Chown(dir, 1000, 0) },
		"others write":  func(dir string) error { return os.Chmod(dir, 0o770) },
		"a link":        func(dir string) error { return errors.Join(os.Rename(dir, dir+"x"), os.Symlink(dir+"x", dir)) },
		"above another": func(dir string) error { return os.Chown(filepath.Dir(dir), 1000, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			privileged(t)
			e := Export{Dir: filepath.Join(t.TempDir(), "export")}
			if err := errors.Join(os.Mkdir(e.Dir, 0o700), prepare(e.Dir)); err != nil {
				t.Fatal(err)
			}
			if err := e.Prepare(); !errors.Is(err, ErrDirectory) {
				t.Errorf("prepare: got %v", err)
			}
			if _, err := e.Bind(data, newVolume(t)); !errors.Is(err, ErrDirectory) {
				t.Errorf("bind: got %v", err)
			}
		})
	}
}

// A VMM has to have the read-only mount, not what was there before.
func TestCheckVMM(t *testing.T) {
	e, _ := newExport(t)
	check := func() error {
		f, err := os.Open(e.Dir)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		vmm := exec.Command("sleep", "60")
		vmm.ExtraFiles = []*os.File{f}
		if err := vmm.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = errors.Join(vmm.Process.Kill(), vmm.Wait()) })
		if !isReadOnly(f) {
			e.mustPrepare(t)
		}
		return e.CheckVMM(vmm.Process.Pid)
	}
	if err := check(); !errors.Is(err, ErrWritable) {
		t.Errorf("started before: got %v", err)
	}
	if err := check(); err != nil {
		t.Errorf("started after: %v", err)
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
	got := boundIn("/run/export", parseMounts(text))
	if len(got) != 1 || !got[data] {
		t.Errorf("got %v", got)
	}
}

func TestCheckFileSystem(t *testing.T) {
	dir := tenantDirectory(t)
	if err := CheckFileSystem(dir); !errors.Is(err, ErrDirectory) || !strings.Contains(err.Error(), "volumesUnbounded") {
		t.Errorf("on the file system above: got %v", err)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0700,size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := CheckFileSystem(dir); err != nil {
		t.Error(err)
	}
}
