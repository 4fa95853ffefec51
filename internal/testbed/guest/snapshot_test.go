package guest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"unnest.io/unnest/internal/testbed/image"

	"github.com/google/go-cmp/cmp"
)

// A restored guest has the devices of the frozen one at the same places, and its NICs
// besides.
func TestSnapshotArguments(t *testing.T) {
	c := Config{
		Name: "node1", Dir: "/run/node1", Image: image.Image{Kernel: "/c/vmlinux", Initrd: "/c/initrd", Root: "/c/root.ext4"},
		Accel: TCG, VCPUs: 1, Memory: 1 << 30, Slots: 9, NICs: []NIC{{MAC: "02:00:00:00:00:01"}},
	}
	frozen := c.frozen(&Snapshot{Dir: "/c/s.part", making: true})
	c.Snapshot, c.Slots = &Snapshot{Dir: "/c/s"}, frozenSlots(c.Slots)
	changes := map[string]string{ // of the restored guest, to those of the frozen
		"guest=node1": "guest=frozen", "/run/node1/": "/c/s.part/", "/c/s/": "/c/s.part/", "snapshot=on,cache=unsafe,": "cache=unsafe,werror=stop,",
		"share=off": "share=on", "string=thawed": "string=freeze", "fd=4": "fd=3", "fd=5": "fd=4",
		"-qmp unix:/c/s.part/qmp,server=on,wait=off\n-qmp unix:/c/s.part/hostd.qmp,server=on,wait=off\n": "",
		"-netdev tap,id=nic0,fd=3\n-device virtio-net-pci,netdev=nic0,mac=02:00:00:00:00:01,romfile=\n":  "",
		"\n-S\n-incoming defer": "",
	}
	got := optionPerLine(c.arguments())
	for _, old := range []string{
		"guest=node1", "/run/node1/", "/c/s/", "snapshot=on,cache=unsafe,", "share=off", "string=thawed",
		"-qmp unix:/c/s.part/qmp,server=on,wait=off\n-qmp unix:/c/s.part/hostd.qmp,server=on,wait=off\n",
		"-netdev tap,id=nic0,fd=3\n-device virtio-net-pci,netdev=nic0,mac=02:00:00:00:00:01,romfile=\n", "\n-S\n-incoming defer", "fd=4", "fd=5",
	} {
		if !strings.Contains(got, old) {
			t.Errorf("no %q in\n%s", old, got)
		}
		got = strings.ReplaceAll(got, old, changes[old])
	}
	want := strings.ReplaceAll(optionPerLine(frozen.arguments()), "-qmp unix:/c/s.part/qmp,server=on,wait=off\n-qmp unix:/c/s.part/hostd.qmp,server=on,wait=off\n", "")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices of the frozen guest (-) and of the restored one (+):\n%s", diff)
	}
	if n := strings.Count(want, "pcie-root-port"); n != 16 {
		t.Errorf("%d ports for 9 slots, want 16", n)
	}
}

// The frozen guest has the ports for shares of those that are restored from it. These have a
// copy of its memory, which other processes can map without changing the snapshot.
func TestSnapshotOfShares(t *testing.T) {
	c := Config{Dir: "/run/node1", VCPUs: 1, Memory: 1 << 30, Slots: 8, Shares: 2, NICs: []NIC{{}, {}}}
	frozen := optionPerLine(c.frozen(&Snapshot{Dir: "/c/s.part", making: true}).arguments())
	c.Snapshot = &Snapshot{Dir: "/c/s"}
	restored := optionPerLine(c.arguments())
	for _, port := range c.shareArguments() {
		if !strings.Contains(frozen, port) || !strings.Contains(restored, port) {
			t.Errorf("no %q in\n%s\nor\n%s", port, frozen, restored)
		}
	}
	for args, memory := range map[string]string{
		frozen:   "-object memory-backend-file,id=ram,share=on,size=1024M,mem-path=/c/s.part/memory\n",
		restored: "-object memory-backend-file,id=ram,share=on,size=1024M,mem-path=/proc/self/fd/7\n",
	} {
		if !strings.Contains(args, memory) || strings.Count(args, "id=ram") != 1 {
			t.Errorf("want %q and no other memory in\n%s", memory, args)
		}
	}
}

// A copy of a sparse file has its content, and its holes take no memory.
func TestCopyMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), memoryFile)
	const size = 64 << 20
	writes := map[int64]string{0: "first", 33<<20 + 777: "middle", size - 4: "last"}
	f, err := os.Create(path)
	if err == nil {
		err = f.Truncate(size)
	}
	for at, text := range writes {
		_, writeErr := f.WriteAt([]byte(text), at)
		err = errors.Join(err, writeErr)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	got, err := copyMemory(path)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	info, err := got.Stat()
	if err != nil || info.Size() != size || info.Sys().(*syscall.Stat_t).Blocks*512 > 1<<20 {
		t.Errorf("got %+v, %v", info, err)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(io.NewSectionReader(got, 0, size))
	if err != nil || !bytes.Equal(content, want) {
		t.Errorf("the copy differs (%v)", err)
	}
	if _, err := copyMemory(path + ".none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no file: %v", err)
	}
}

func TestFreezable(t *testing.T) {
	for _, tt := range []struct {
		name   string
		config Config
		want   string
	}{
		{"a plain guest", Config{Slots: 3, Export: "/run/x", NICs: []NIC{{}}}, ""},
		{"another architecture", Config{Arch: image.ARM64}, "architecture is arm64"},
		{"hardware virtualization", Config{CPU: NestingCPU}, "EPYC,+svm,+npt"},
		{"shared memory", Config{Shares: 2}, ""},
		{"an inner guest", Config{Disks: []Disk{{}}}, "disks for another guest"},
	} {
		err := tt.config.checkFreezable()
		if (err == nil) != (tt.want == "") || err != nil && (!errors.Is(err, ErrBootOnly) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.want)
		}
	}
}

// newSnapshot writes the files of a snapshot.
func newSnapshot(t *testing.T, inputs []string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, size := range map[string]int64{memoryFile: 20 << 20, diskFile: 1 << 20, deviceFile: 1000} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeManifest(dir, manifest{Inputs: inputs, Stopped: time.Unix(1000, 0), Ahead: time.Second}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestManifest(t *testing.T) {
	inputs := []string{"QEMU 7", "-smp 1"}
	m, err := readManifest(newSnapshot(t, inputs), inputs)
	if err != nil || m.lag(time.Unix(1010, 0)) != 9*time.Second {
		t.Errorf("got %+v, %v", m, err)
	}
	if _, err := readManifest(filepath.Join(t.TempDir(), "none"), inputs); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, errDamaged) {
		t.Errorf("no snapshot: got %v", err)
	}
	for name, damage := range map[string]func(dir string) error{
		"no manifest":     func(dir string) error { return os.Remove(filepath.Join(dir, manifestFile)) },
		"half a manifest": func(dir string) error { return os.Truncate(filepath.Join(dir, manifestFile), 100) },
		"no devices":      func(dir string) error { return os.Remove(filepath.Join(dir, deviceFile)) },
		"short memory":    func(dir string) error { return os.Truncate(filepath.Join(dir, memoryFile), 19<<20) },
		"other memory":    func(dir string) error { return rewrite(filepath.Join(dir, memoryFile), 12<<20) },
		"other disk":      func(dir string) error { return rewrite(filepath.Join(dir, diskFile), 777) },
		"other devices":   func(dir string) error { return rewrite(filepath.Join(dir, deviceFile), 999) },
		"written to":      func(dir string) error { return os.Chtimes(filepath.Join(dir, memoryFile), time.Now(), time.Now()) },
		"other inputs": func(dir string) error {
			m, err := readManifest(dir, inputs)
			m.Inputs = []string{"QEMU 8", "-smp 1"}
			return errors.Join(err, writeManifest(dir, m))
		},
	} {
		dir := newSnapshot(t, inputs)
		if err := damage(dir); err != nil {
			t.Fatal(err)
		}
		if s, err := openSnapshot(dir, inputs); s != nil || !errors.Is(err, errDamaged) {
			t.Errorf("%s: got %v, %v; want errDamaged", name, s, err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: the snapshot is left (%v)", name, err)
		}
	}
}

// rewrite changes a byte of a file, and keeps its times.
func rewrite(path string, at int64) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte{1}, at)
	return errors.Join(err, f.Close(), os.Chtimes(path, info.ModTime(), info.ModTime()))
}

// A disk over a small or a large one has one L1 entry for each half gigabyte.
func TestOverlayDisk(t *testing.T) {
	for size, entries := range map[int64]byte{1 << 20: 1, 4 << 30: 8, 4<<30 + 512: 9} {
		disk, err := overlayDisk("/cache/root.ext4", size)
		if err != nil || len(disk) != 4*clusterSize || string(disk[:4]) != "QFI\xfb" || disk[39] != entries || !strings.Contains(string(disk[:clusterSize]), "/cache/root.ext4") {
			t.Errorf("%d bytes: %v, header % x", size, err, disk[:64])
		}
	}
	if _, err := overlayDisk(strings.Repeat("x", clusterSize), 1<<30); err == nil {
		t.Error("a path of a cluster's length is accepted")
	}
}

// A snapshot depends on the image's files, not only on its digest, and on the command line.
func TestInputs(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"vmlinux", "initrd", "root.ext4", "qemu-system-x86_64"} {
		if err := os.WriteFile(file(name), []byte("#!/bin/sh\necho QEMU emulator version 7.2.22\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	base := Config{Name: "a", Dir: "/a", Image: image.Image{Kernel: file("vmlinux"), Initrd: file("initrd"), Root: file("root.ext4")}, Accel: TCG, VCPUs: 1, Memory: 1 << 30, Slots: 2}
	key := func(change func(*Config)) string {
		c := base
		change(&c)
		inputs, err := c.inputs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return image.SnapshotDir("", inputs)
	}
	first := key(func(*Config) {})
	for name, change := range map[string]func(*Config){
		"name and NICs": func(c *Config) { c.Name, c.Dir, c.NICs = "b", "/b", []NIC{{MAC: "02:00:00:00:00:01"}} },
		"fewer slots":   func(c *Config) { c.Slots = 1 },
	} {
		if key(change) != first {
			t.Errorf("%s: another snapshot", name)
		}
	}
	for name, change := range map[string]func(*Config){
		"accelerator": func(c *Config) { c.Accel = KVM },
		"processors":  func(c *Config) { c.VCPUs = 2 },
		"memory":      func(c *Config) { c.Memory = 2 << 30 },
		"more slots":  func(c *Config) { c.Slots = 9 },
		"share ports": func(c *Config) { c.Shares = 2 },
		"fewer ports": func(c *Config) { c.Shares = 1 },
		"kernel":      func(c *Config) { c.Image.Kernel = file("initrd") },
		"rebuilt image": func(*Config) {
			if err := os.WriteFile(file("root.ext4"), []byte("newer"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		if key(change) == first {
			t.Errorf("%s: the same snapshot", name)
		}
	}
	first = key(func(*Config) {})
	if err := os.WriteFile(file("qemu-system-x86_64"), []byte("#!/bin/sh\necho QEMU emulator version 7.2.23\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if key(func(*Config) {}) == first {
		t.Error("another QEMU: the same snapshot")
	}
}
