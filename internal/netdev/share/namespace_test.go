package share

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// bindElsewhere does what a daemon does that systemd confines: with a mount namespace of its
// own, in which nothing can be written, it prepares an export in another, for a VMM there, and
// binds a volume. It returns what is wrong.
func bindElsewhere(vmms Namespace, e Export, tenant, vmm string) error {
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""), unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})); err != nil {
		return err
	}
	pid, err := strconv.Atoi(vmm)
	if err != nil {
		return err
	}
	if err := e.CheckVMM(pid); !errors.Is(err, ErrNamespace) {
		return fmt.Errorf("in its own namespace: got %w", err)
	}
	bind := func() error {
		if err := errors.Join(e.Check(), e.CheckVMM(pid)); err != nil {
			return err
		}
		volume, err := OpenVolume(tenant, data, Digest{1}, anyone)
		if err != nil {
			return err
		}
		defer volume.Close()
		_, err = e.Bind(data, volume.File)
		return err
	}
	if err := vmms.Do(bind); err != nil {
		return err
	}
	if bound, err := e.Bound(); err != nil || len(bound) > 0 {
		return fmt.Errorf("in its own namespace there is %v, %w", bound, err)
	}
	_, err = os.Create(tenant + "/file")
	if !errors.Is(err, unix.EROFS) {
		return fmt.Errorf("the other threads: got %w, want a read-only file system", err)
	}
	return nil
}

// unitCapabilities returns the capabilities of the shipped unit with volumes, as setpriv(1)
// writes them.
func unitCapabilities(t *testing.T) (names []string) {
	t.Helper()
	for _, name := range []string{"unnest-hostd.service", "volumes.conf"} {
		content, err := os.ReadFile("../../../deploy/systemd/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(content)) {
			if list, ok := strings.CutPrefix(strings.TrimSpace(line), "CapabilityBoundingSet="); ok {
				names = append(names, strings.Fields(strings.ToLower(strings.ReplaceAll(list, "CAP_", "")))...)
			}
		}
	}
	return names
}

// A daemon with a mount namespace of its own, and the capabilities of the shipped unit, binds
// volumes in the namespace of the VMMs. It says so if it lacks a capability.
func TestNamespace(t *testing.T) {
	e, _ := newExport(t)
	tenant := tenantDirectory(t)
	e.mustPrepare(t)
	dir, err := os.Open(e.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	vmm := exec.Command("sleep", "60")
	vmm.ExtraFiles = []*os.File{dir}
	if err := vmm.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(vmm.Process.Kill(), vmm.Wait()) })
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	daemon := func(without string) string {
		all := unitCapabilities(t)
		i := slices.Index(all, without)
		if i >= 0 {
			all = slices.Delete(all, i, i+1)
		}
		p := exec.Command("setpriv", "--no-new-privs", "--bounding-set=-all,+"+strings.Join(all, ",+"),
			exe, "elsewhere", fmt.Sprintf("/proc/%d/ns/mnt", os.Getpid()), e.Dir, tenant, strconv.Itoa(vmm.Process.Pid))
		p.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
		out, err := p.CombinedOutput()
		if err != nil {
			t.Fatalf("got %v: %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if got := daemon("sys_chroot"); !strings.Contains(got, "give the process CAP_SYS_ADMIN, CAP_SYS_CHROOT and CAP_SYS_PTRACE") {
		t.Errorf("without a capability: got %s", got)
	}
	if got := daemon(""); got != "<nil>" {
		t.Fatal(got)
	}
	if bound, err := e.Bound(); err != nil || !bound[data] {
		t.Errorf("bound are %v, %v", bound, err)
	}
	if err := os.WriteFile(filepath.Join(e.Dir, data.String(), "file"), nil, 0o600); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(tenant + "/web/data/file"); err != nil {
		t.Errorf("the volume: %v", err)
	}
}

// A namespace that cannot be entered is an error, and a panic is the caller's.
func TestNamespaceFails(t *testing.T) {
	privileged(t)
	called := func() error { t.Error("called"); return nil }
	if err := Namespace("/proc/none/ns/mnt").Do(called); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no namespace: got %v", err)
	}
	if err := Namespace("/proc/self/ns/net").Do(called); err == nil {
		t.Error("a network namespace was entered")
	}
	own, wrong := Namespace("/proc/self/ns/mnt"), errors.New("wrong")
	if err := own.Do(func() error { return wrong }); !errors.Is(err, wrong) {
		t.Errorf("got %v", err)
	}
	defer func() {
		if p := fmt.Sprint(recover()); !strings.Contains(p, "bug") || !strings.Contains(p, "namespace_test.go") {
			t.Errorf("got %q, want the panic with its stack", p)
		}
	}()
	_ = own.Do(func() error { panic("bug") })
}

// Only the exports of an owner are closed, with their volumes.
func TestCloseOwned(t *testing.T) {
	var all []Export
	for range 3 {
		e, volume := newExport(t)
		e.Owner += strconv.Itoa(len(all) / 2) // the third is another's
		e.mustPrepare(t)
		if _, err := e.Bind(data, volume); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	unmarked, _ := newExport(t)
	unmarked.Owner = strings.Repeat("x", maxSource)
	unmarked.mustPrepare(t)
	for _, owner := range []string{"", "/run/own er", unmarked.Owner} {
		if err := CloseOwned(owner); err != nil {
			t.Error(err)
		}
	}
	want := func(prepared ...bool) {
		t.Helper()
		for i, e := range append(all, unmarked) {
			if err := e.Check(); (err == nil) != prepared[i] {
				t.Errorf("export %d: %v, want prepared %v", i, err, prepared[i])
			}
		}
	}
	want(true, true, true, true)
	if err := CloseOwned(all[0].Owner, all[1].Dir); err != nil {
		t.Error(err)
	}
	want(false, true, true, true)
	all[0].wantEntries(t)
	all[1].wantEntries(t, data.String())
	if err := CloseOwned(all[0].Owner); err != nil {
		t.Error(err)
	}
	want(false, false, true, true)
}
