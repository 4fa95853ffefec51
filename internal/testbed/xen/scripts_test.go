package xen

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"unnest.io/unnest/internal/testbed/place"
)

// withFakes returns an environment in which commands are shell scripts that add what they are
// called with to a file, and its path.
func withFakes(t *testing.T, commands map[string]string) (env []string, calls string) {
	t.Helper()
	dir := t.TempDir()
	calls = filepath.Join(dir, "calls")
	for name, script := range commands {
		content := "#!/bin/sh\necho \"" + name + " $*\" >>" + calls + "\n" + script + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH")), calls
}

func called(t *testing.T, calls string) string {
	t.Helper()
	content, err := os.ReadFile(calls)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return string(content)
}

func run(t *testing.T, env []string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// The removal of a run destroys its domains, whatever it remembers of them, and no others; where it
// had none, it does not call xl, which the machine may not have.
func TestRemoval(t *testing.T) {
	env, calls := withFakes(t, map[string]string{
		"xl": `[ "$1" != list ] || { cat ` + filepath.Join(mustAbs(t), "testdata/list") + `; echo "unnest-run-test2-pv 3 512 1 -b---- 1.0"; }`,
	})
	dir := filepath.Join(t.TempDir(), "unnest-run-test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	remove := func() { run(t, env, "sh", "-ec", Removal()+`remove_domains "$1"`, "remove", dir) }
	remove()
	if got := called(t, calls); got != "" {
		t.Errorf("without domains: %q", got)
	}
	for _, file := range []string{".xen", "pv1.disk"} {
		if err := os.WriteFile(filepath.Join(dir, file), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	remove()
	if got, want := called(t, calls), "xl list\nxl destroy unnest-run-test-pv\nxl destroy unnest-run-test-pvh\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func mustAbs(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// The script for disks tells Xen the number of the device, in hexadecimal.
func TestBlockScript(t *testing.T) {
	devices, err := filepath.Glob("/sys/class/block/*/dev")
	if err != nil || len(devices) == 0 {
		t.Fatalf("no block device: %v", err)
	}
	env, calls := withFakes(t, map[string]string{"xenstore-read": "echo /dev/" + filepath.Base(filepath.Dir(devices[0])), "xenstore-write": ""})
	env = append(env, "XENBUS_PATH=backend/vbd/1/51712")
	run(t, env, "sh", "-c", blockScript, "block", "remove")
	if got := called(t, calls); got != "" {
		t.Errorf("remove: %q", got)
	}
	run(t, env, "sh", "-c", blockScript, "block", "add")
	number, err := os.ReadFile(devices[0])
	if err != nil {
		t.Fatal(err)
	}
	major, minor, _ := strings.Cut(strings.TrimSpace(string(number)), ":")
	want := "xenstore-read backend/vbd/1/51712/params\nxenstore-write backend/vbd/1/51712/physical-device " +
		hex(t, major) + ":" + hex(t, minor) + " backend/vbd/1/51712/hotplug-status connected\n"
	if got := called(t, calls); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The script for NICs puts them on the bridge of the domains.
func TestVIFScript(t *testing.T) {
	env, calls := withFakes(t, map[string]string{"ip": "", "xenstore-write": ""})
	run(t, append(env, "XENBUS_PATH=b/vif", "vif=vif1.0"), "sh", "-c", vifScript, "vif", "online")
	run(t, append(env, "XENBUS_PATH=b/vif", "INTERFACE=vif1.0-emu"), "sh", "-c", vifScript, "vif", "add")
	run(t, append(env, "XENBUS_PATH=b/vif", "vif=vif1.0"), "sh", "-c", vifScript, "vif", "offline")
	want := "ip link set vif1.0 master unnest0 up\nxenstore-write b/vif/hotplug-status connected\nip link set vif1.0-emu master unnest0 up\n"
	if got := called(t, calls); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func hex(t *testing.T, decimal string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "printf", "%x", decimal).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// A domain that xl does not create is reported with the cause, which xl prints first, and not with
// what xl could not do because of it.
func TestCreationThatFails(t *testing.T) {
	env, _ := withFakes(t, map[string]string{
		"mkfs.ext4": "",
		"losetup":   `[ "$1" = --detach ] || echo /dev/loop99`,
		"xl":        `printf 'Parsing config\nlibxl: error: no memory\nlibxl: error: domain lost\nlibxl: error: cannot destroy\n' >&2; exit 3`,
	})
	dir := t.TempDir()
	for name, content := range map[string]string{"initrd": "", "a.cpio": "", "a.in": "name = \"unnest-run-test-a\"\n", "root": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script := strings.Replace(createScript, "export PATH=", "#", 1)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script, "create", dir, "a", filepath.Join(dir, "root"))
	cmd.Env = env
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != 3 || string(out) != "libxl: error: no memory\nlibxl: error: domain lost\n" {
		t.Errorf("%v: %s", err, out)
	}
}

// cutting loses the connection of commands after half of a kilobyte of their input.
type cutting struct{ place.Local }

func (c cutting) Start(ctx context.Context, command place.Command) (place.Process, error) {
	command.Stdin = io.LimitReader(command.Stdin, 512)
	return c.Local.Start(ctx, command)
}

// The root file system gets its name only if all of it has arrived, also if it ends with a hole.
func TestPutRoot(t *testing.T) {
	dir := t.TempDir()
	from := filepath.Join(dir, "root.ext4")
	content := make([]byte, 300<<10)
	if _, err := rand.Read(content[:70<<10]); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(from, content, 0o600); err != nil {
		t.Fatal(err)
	}
	h := &Host{Dom0: cutting{}, Image: Image{Root: filepath.Join(dir, "copy")}}
	if err := h.putRoot(t.Context(), from); err == nil {
		t.Error("no error for a copy that was cut off")
	}
	if left, err := filepath.Glob(h.Image.Root + "*"); err != nil || len(left) > 0 {
		t.Errorf("%v are left of a copy that was cut off (%v)", left, err)
	}
	h.Dom0 = place.Local{}
	if err := h.putRoot(t.Context(), from); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(h.Image.Root); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the copy has %d bytes (%v), want the %d of the file", len(got), err, len(content))
	}
}
