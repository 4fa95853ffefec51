package guest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/testbed/image"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/testbed/place"
)

// A guest that hangs while it is being frozen is reported and given up. The firmware prints nothing for
// longer than this one may be silent.
func TestFreezeThatHangs(t *testing.T) {
	privileged(t)
	var said []string
	s := &Snapshots{Cache: t.TempDir(), Progress: func(step string) { said = append(said, step) }}
	c := Config{Name: "node1", Image: testImage(t), Accel: TCG, VCPUs: 1, Memory: 512 << 20, Slots: 2,
		patience: limits{notice: 10 * time.Millisecond, silent: 100 * time.Millisecond, all: patience}}
	_, err := s.For(t.Context(), c)
	if !errors.Is(err, ErrBoot) {
		t.Fatalf("got %v, want ErrBoot", err)
	}
	for _, want := range []string{"frozen: no output for 100ms", "qemu-system-x86_64 -name guest=frozen"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	if !slices.ContainsFunc(said, func(step string) bool { return strings.HasPrefix(step, "guest frozen is not ready after ") }) {
		t.Errorf("said %q, want that the guest is not ready", said)
	}
}

// Guests are restored one after the other from one snapshot. One that QEMU refuses boots,
// and the line about it says why.
func TestRestore(t *testing.T) {
	privileged(t)
	image := testImage(t)
	_, signer := testKey(t)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	defer cancel()
	var said []string
	s := &Snapshots{Cache: t.TempDir(), Progress: func(step string) { said = append(said, step) }}
	boots := map[string]bool{}
	start := func(what string, restored bool) {
		l := testLab(t)
		begin := time.Now()
		g := testGuest(t, l, image, signer, func(c *Config) {
			var err error
			if c.Snapshot, err = s.For(ctx, *c); err != nil {
				t.Fatal(err)
			}
			begin = time.Now()
		})
		client, times, err := g.WaitReady(ctx, l.Dial, signer)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		t.Logf("%s: %v: %+v", what, time.Since(begin), times)
		if g.Restored() != restored || (g.NotRestored == nil) != restored {
			t.Errorf("%s: restored is %v (%v), want %v", what, g.Restored(), g.NotRestored, restored)
		}
		if sum := times.Firmware + times.Kernel + times.Userspace + times.SSH; sum != times.Total || times.Total <= 0 {
			t.Errorf("%s: times %+v: the parts sum to %v", what, times, sum)
		}
		out, err := place.Output(ctx, client, "cat", "/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/random/uuid")
		if err != nil || boots[string(out)] {
			t.Errorf("%s: boot ID and random ID are %q again (%v)", what, out, err)
		}
		boots[string(out)] = true
		if err := errors.Join(client.Close(), g.Kill()); err != nil {
			t.Error(err)
		}
	}
	start("first", true)
	start("second", true)
	if len(said) != 1 || !strings.HasPrefix(said[0], "freezing a guest with 1 processors and 512 MiB") {
		t.Errorf("steps: %q", said)
	}
	dirs, err := filepath.Glob(filepath.Join(s.Cache, "snapshot-*[0-9a-f]"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("snapshots: %q, %v", dirs, err)
	}
	// The state of a QEMU that numbers its devices in another way, with a right manifest.
	var m manifest
	manifest, err := os.ReadFile(filepath.Join(dirs[0], manifestFile))
	if err = errors.Join(err, decodeManifest(manifest, &m)); err != nil {
		t.Fatal(err)
	}
	devices := filepath.Join(dirs[0], deviceFile)
	content, err := os.ReadFile(devices)
	if err := errors.Join(err, os.WriteFile(devices, []byte(strings.ReplaceAll(string(content), "virtio-blk", "virtio-xxx")), 0o600), writeManifest(dirs[0], m)); err != nil {
		t.Fatal(err)
	}
	start("foreign state", false)
	if err := os.Truncate(devices, 100); err != nil {
		t.Fatal(err)
	}
	if found, err := openSnapshot(dirs[0], m.Inputs); found != nil || !errors.Is(err, errDamaged) {
		t.Errorf("damaged snapshot: got %v, %v", found, err)
	}
}

// fakeQEMU puts a script in place of QEMU, and returns a guest to restore with it.
func fakeQEMU(t *testing.T, script string) Config {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, QEMU(image.AMD64)), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	key, signer := testKey(t)
	return Config{
		Name: "node1", Dir: t.TempDir(), Image: image.Image{Root: filepath.Join(dir, "root.ext4")}, Accel: TCG, VCPUs: 1, Memory: 512 << 20, Snapshot: &Snapshot{Dir: t.TempDir()},
		Seed: Seed{Hostname: "node1", HostKey: key, Authorized: signer.PublicKey()},
	}
}

// A guest that cannot be restored boots, and says why it was not restored.
func TestRestoreFallsBack(t *testing.T) {
	const refuses = `case "$*" in *-incoming*) echo "no such machine" >&2; exit 1 ;; esac; exec sleep 60`
	for name, tt := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"QEMU ends":      {func(*Config) {}, "no such machine"},
		"large seed":     {func(c *Config) { c.Seed.Files = map[string]string{"/etc/large": strings.Repeat("x", seedRoom)} }, "bytes: want at most 131072"},
		"memory is gone": {func(c *Config) { c.Shares = 1 }, "copy the memory of the snapshot: open "},
	} {
		t.Run(name, func(t *testing.T) {
			c := fakeQEMU(t, refuses)
			tt.change(&c)
			g, err := Start(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if g.Restored() || g.NotRestored == nil || !strings.Contains(g.NotRestored.Error(), tt.want) || g.Err() != nil {
				t.Errorf("restored %v (%v), ended with %v; want it to boot because of %q", g.Restored(), g.NotRestored, g.Err(), tt.want)
			}
			if err := g.Kill(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The error of a wait that ends while QEMU runs says what QEMU does, how its output ends, and its command line.
func TestQEMUThatIsSilent(t *testing.T) {
	const silent, monitor = `echo "waits for its disk"; exec sleep 60`, "wait for QMP greeting: "
	c := fakeQEMU(t, silent)
	c.patience = limits{notice: 50 * time.Millisecond, silent: patience, all: 300 * time.Millisecond}
	var said []string
	c.Progress = func(step string) { said = append(said, step) }
	g, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	restored := g.NotRestored
	_, _, booted := g.WaitReady(t.Context(), nil, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, _, cut := g.WaitReady(ctx, nil, nil)
	if err := g.Kill(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(c.Image.Root, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	_, frozen := c.frozen(&Snapshot{Dir: t.TempDir(), making: true}).freeze(t.Context())
	for name, tt := range map[string]struct {
		err  error
		want string
	}{
		"restore": {restored, monitor + "not restored after 300ms"}, "freeze": {frozen, monitor + "guest did not boot: frozen: not ready after 300ms"},
		"boot": {booted, "guest did not boot: node1: not ready after 300ms"}, "boot until ctx ends": {cut, "context deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, want := range []string{tt.want, "; QEMU (pid ", "qemu.log ends: waits for its disk", "; it was started by: "} {
				if tt.err == nil || strings.Count(tt.err.Error(), want) != 1 {
					t.Errorf("%q is not in, or twice: %v", want, tt.err)
				}
			}
		})
	}
	for _, want := range []string{"guest node1 is not ready after ", "guest frozen is not ready after "} {
		if !slices.ContainsFunc(said, func(step string) bool { return strings.HasPrefix(step, want) }) {
			t.Errorf("said %q, want %q", said, want)
		}
	}
}

// If the command ends while QEMU loads the state, no guest boots and QEMU is killed.
func TestRestoreIsStopped(t *testing.T) {
	c := fakeQEMU(t, `echo $$ >"$0.pid"; exec sleep 60`)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if g, err := Start(ctx, c); g != nil || !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, %v", g, err)
	}
	path, _, _ := strings.Cut(os.Getenv("PATH"), ":")
	pid, err := os.ReadFile(filepath.Join(path, QEMU(image.AMD64)+".pid"))
	if err == nil { // else it was killed before it began
		if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("QEMU (%s) still runs (%v)", pid, err)
		}
	}
}

// Without its inputs a snapshot is neither looked for nor made.
func TestNoSnapshot(t *testing.T) {
	for name, tt := range map[string]struct {
		script string
		change func(t *testing.T, c *Config)
		want   string
	}{
		"cannot be frozen":       {"echo QEMU 7", func(_ *testing.T, c *Config) { c.CPU = NestingCPU }, "guest cannot be restored: its processor"},
		"QEMU prints no version": {"exit 1", func(*testing.T, *Config) {}, "find snapshot: ask QEMU for its version"},
		"no QEMU":                {"", func(t *testing.T, _ *Config) { t.Setenv("PATH", t.TempDir()) }, "find snapshot: exec: "},
		"no kernel":              {"echo QEMU 7", func(_ *testing.T, c *Config) { c.Image.Kernel = "/none/vmlinux" }, "find snapshot: lstat /none: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			c, s := fakeQEMU(t, tt.script), &Snapshots{Cache: t.TempDir()}
			tt.change(t, &c)
			if found, err := s.For(t.Context(), c); found != nil || err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("got %v, %v; want %q", found, err, tt.want)
			}
			if left, err := os.ReadDir(s.Cache); err != nil || len(left) > 0 {
				t.Errorf("in the cache is %v (%v)", left, err)
			}
		})
	}
}

// A freeze that fails is not tried again for the next guest.
func TestFreezeFailsOnce(t *testing.T) {
	c, freezes := fakeQEMU(t, `[ "$1" != --version ] || exec echo QEMU 7; exit 1`), 0
	c.Snapshot = nil
	for _, file := range []*string{&c.Image.Kernel, &c.Image.Initrd, &c.Image.Root} {
		*file = filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(*file, make([]byte, 4096), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := &Snapshots{Cache: t.TempDir(), Progress: func(step string) {
		if strings.HasPrefix(step, "freezing a guest ") {
			freezes++
		}
	}}
	_, first := s.For(t.Context(), c)
	if _, second := s.For(t.Context(), c); first == nil || !errors.Is(second, first) || !strings.HasPrefix(first.Error(), "freeze a guest: ") || freezes != 1 {
		t.Errorf("got %v, then %v, after %d freezes", first, second, freezes)
	}
	c.VCPUs++
	if _, err := s.For(t.Context(), c); err == nil || freezes != 2 {
		t.Errorf("other guests: got %v after %d freezes", err, freezes)
	}
}

// One line says why a guest boots that was to be restored.
func TestReportBoots(t *testing.T) {
	var said []string
	s := &Snapshots{Progress: func(step string) { said = append(said, step) }}
	s.Report(&Guest{Config: Config{Name: "node1", NotRestored: errors.New("one\ntwo")}})
	s.Report(&Guest{})
	(*Snapshots)(nil).Report(&Guest{Config: Config{NotRestored: errors.New("x")}})
	if want := []string{"node1 boots: one; two"}; !slices.Equal(said, want) {
		t.Errorf("it says %q, want %q", said, want)
	}
}

// A cache that is full has no part of a snapshot afterwards.
func TestFreezeOnFullDisk(t *testing.T) {
	privileged(t)
	image, cache := testImage(t), t.TempDir()
	if err := unix.Mount("tmpfs", cache, "tmpfs", 0, "size=48m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(cache, 0); err != nil {
			t.Error(err)
		}
	})
	s := &Snapshots{Cache: cache}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	found, err := s.For(ctx, Config{Image: image, Accel: TCG, VCPUs: 1, Memory: 512 << 20})
	if found != nil || err == nil || !strings.HasPrefix(err.Error(), "freeze a guest: ") || ctx.Err() != nil || !strings.Contains(err.Error(), "bus error") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, %v", found, err)
	}
	t.Log(err)
	if left, err := filepath.Glob(filepath.Join(cache, "snapshot-*")); err != nil || len(left) > 1 || len(left) == 1 && filepath.Base(left[0]) != "snapshot.lock" {
		t.Errorf("left are %q (%v)", left, err)
	}
}
