package guest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest/internal/testbed/place"
)

// Guests are restored one after the other from one snapshot. One that QEMU refuses boots,
// and the line about it says why.
func TestRestore(t *testing.T) {
	privileged(t)
	image := testImage(t)
	_, signer := testKey(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
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
	dirs, err := filepath.Glob(filepath.Join(s.Cache, snapshotPrefix+"*[0-9a-f]"))
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	found, err := s.For(ctx, Config{Image: image, Accel: TCG, VCPUs: 1, Memory: 512 << 20})
	if found != nil || err == nil || !strings.HasPrefix(err.Error(), "freeze a guest: ") || ctx.Err() != nil || !strings.Contains(err.Error(), "bus error") || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, %v", found, err)
	}
	t.Log(err)
	if left, err := filepath.Glob(filepath.Join(cache, snapshotPrefix+"*")); err != nil || len(left) > 1 || len(left) == 1 && filepath.Base(left[0]) != snapshotLock.file {
		t.Errorf("left are %q (%v)", left, err)
	}
}
