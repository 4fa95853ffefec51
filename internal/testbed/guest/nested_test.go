package guest

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/testbed/image"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/testbed/place"
)

// The arguments of the inner guest's QEMU: the same machine as outside, with the files
// in the outer guest, and without vectors, sockets and slots.
func TestNestedArguments(t *testing.T) {
	c := Config{
		Name: "inner", Dir: "/run/unnest/lab/guests/outer/nested",
		Image: image.Image{Kernel: "/cache/vmlinux", Initrd: "/cache/initrd", Root: "/cache/root.ext4"},
		Accel: KVM, VCPUs: 1, Memory: 512 << 20, NICs: []NIC{{MAC: "52:54:00:ca:00:01"}},
	}
	want := `-name guest=inner
-nodefaults
-no-user-config
-display none
-no-reboot
-machine q35
-accel kvm
-cpu host
-smp 1
-m 512M
-kernel /var/lib/unnest/nested/vmlinux
-initrd /var/lib/unnest/nested/initrd
-append ` + kernelCommandLine + `
-drive if=none,id=root,format=raw,snapshot=on,cache=unsafe,file=/var/lib/unnest/nested/root
-device virtio-blk-pci,drive=root
-fw_cfg name=opt/unnest/seed,file=/var/lib/unnest/nested/seed.tar
-chardev stdio,id=console,signal=off
-serial chardev:console
-monitor none
-netdev tap,id=nic0,ifname=nested0,script=no,downscript=no
-device virtio-net-pci,netdev=nic0,mac=52:54:00:ca:00:01,romfile=`
	if diff := cmp.Diff(want, optionPerLine(c.inside().nestedArguments())); diff != "" {
		t.Errorf("command line (-want +got):\n%s", diff)
	}
	if c.Dir != "/run/unnest/lab/guests/outer/nested" || c.Image.Root != "/cache/root.ext4" {
		t.Errorf("the configuration here was changed: %+v", c)
	}
}

// The image's script and the disks of the outer guest use the same names.
func TestNestingDisks(t *testing.T) {
	script, err := os.ReadFile("../image/rootfs/nest")
	if err != nil {
		t.Fatal(err)
	}
	disks := NestingDisks(image.Image{Kernel: "/k", Initrd: "/i", Root: "/r"})
	want := []Disk{{"/k", "unnest-kernel"}, {"/i", "unnest-initrd"}, {"/r", "unnest-root"}}
	if !slices.Equal(disks, want) {
		t.Errorf("got %v, want %v", disks, want)
	}
	for _, d := range disks {
		if len(d.Serial) > 20 {
			t.Errorf("serial number %s is longer than virtio's 20 bytes", d.Serial)
		}
		if name := strings.TrimPrefix(d.Serial, "unnest-"); !strings.Contains(string(script), name) {
			t.Errorf("the script does not look for %s", name)
		}
	}
	for _, name := range []string{nestedDir, nestedTAP} {
		if !strings.Contains(string(script), name) {
			t.Errorf("the script does not know %s", name)
		}
	}
}

func TestChooseNested(t *testing.T) {
	const none = "no KVM in the guest: modprobe: ERROR: could not insert 'kvm_intel': Operation not supported"
	tests := []struct {
		want Accel
		said string
		got  Choice
		err  error // nil with an empty choice: any
	}{
		{AccelAuto, "kvm", Choice{KVM, "/dev/kvm opens"}, nil},
		{"", "kvm", Choice{KVM, "/dev/kvm opens"}, nil},
		{KVM, "kvm", Choice{KVM, "asked for"}, nil},
		{TCG, "kvm", Choice{TCG, "asked for"}, nil},
		{AccelAuto, none, Choice{TCG, "KVM cannot be used: " + none}, nil},
		{TCG, none, Choice{TCG, "asked for"}, nil},
		{KVM, none, Choice{}, ErrAccel},
		{"xen", "kvm", Choice{}, nil},
		{AccelAuto, "", Choice{}, nil},
	}
	for _, tt := range tests {
		got, err := chooseNested(tt.want, tt.said)
		if got != tt.got || (err == nil) != (tt.got != Choice{}) || tt.err != nil && !errors.Is(err, tt.err) {
			t.Errorf("%q in a guest that says %q: got %+v, %v; want %+v", tt.want, tt.said, got, err, tt.got)
		}
	}
}

// stranger is a place that prints what a test sets, and takes files.
type stranger struct {
	said  string // by the script that makes it ready
	hangs bool   // the script
	fails map[string]error
	ran   []string
	put   map[string]string
	qemu  chan error // its end
}

func (s *stranger) String() string { return "guest outer" }

func (s *stranger) Put(_ context.Context, path string, _ fs.FileMode, content io.Reader) error {
	b, err := io.ReadAll(content)
	s.put[path] = string(b)
	return errors.Join(err, s.fails["put"])
}

func (s *stranger) Start(ctx context.Context, c place.Command) (place.Process, error) {
	s.ran = append(s.ran, strings.Join(c.Args, " "))
	if err := s.fails[filepath.Base(c.Args[0])]; err != nil {
		return nil, err
	}
	if c.Args[0] != QEMU(image.AMD64) {
		if s.hangs {
			return ending(func() error { <-ctx.Done(); return ctx.Err() }), nil
		}
		_, err := io.WriteString(c.Stdout, s.said+"\n")
		return ending(func() error { return err }), nil
	}
	_, err := io.WriteString(c.Stdout, "unnest-boot init 1.00\nunnest-boot failed: no root disk\n")
	return ending(func() error {
		select {
		case err := <-s.qemu:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}), err
}

type ending func() error

func (e ending) Wait() error { return e() }

func strangeGuest(t *testing.T) (*stranger, Config, Config) {
	t.Helper()
	dir := t.TempDir()
	image := image.Image{Kernel: dir + "/vmlinux", Initrd: dir + "/initrd", Root: dir + "/root.ext4"}
	if err := errors.Join(os.WriteFile(image.Kernel, make([]byte, 300), 0o600), os.WriteFile(image.Initrd, make([]byte, 20), 0o600)); err != nil {
		t.Fatal(err)
	}
	hostKey, signer := testKey(t)
	inner := Config{
		Name: "inner", Dir: t.TempDir(), Image: image, Memory: 512 << 20, VCPUs: 1, NICs: []NIC{{MAC: "02:00:00:00:00:02"}},
		Seed: Seed{Hostname: "inner", HostKey: hostKey, Authorized: signer.PublicKey()},
	}
	s := &stranger{said: "kvm", fails: map[string]error{}, put: map[string]string{}, qemu: make(chan error, 1)}
	return s, inner, Config{Name: "outer", Memory: 1 << 30}
}

// Any failing step leaves no guest, and the error names it.
func TestStartNestedFails(t *testing.T) {
	broken := errors.New("broken")
	tests := []struct {
		name   string
		change func(s *stranger, inner, outer *Config)
		want   string
	}{
		{"not ready", func(s *stranger, _, _ *Config) { s.fails["nest"] = broken }, "broken"},
		{"script hangs", func(s *stranger, _, outer *Config) { s.hangs, outer.patience.all = true, 100*time.Millisecond }, "not prepared after 100ms"},
		{"script says nothing", func(s *stranger, _, _ *Config) { s.said = "" }, "want kvm, or why not"},
		{"KVM asked for", func(s *stranger, inner, _ *Config) { s.said, inner.Accel = "no KVM", KVM }, "no KVM"},
		{"seed not taken", func(s *stranger, _, _ *Config) { s.fails["put"] = broken }, "broken"},
		{"no QEMU", func(s *stranger, _, _ *Config) { s.fails[QEMU(image.AMD64)] = broken }, "broken"},
		{"no logs", func(_ *stranger, inner, _ *Config) { inner.Dir += "/gone" }, "gone"},
		{"no image", func(_ *stranger, inner, _ *Config) { inner.Image.Initrd += ".none" }, "initrd.none"},
		{"too large", func(_ *stranger, inner, _ *Config) { inner.Memory = 1025 << 20 }, "1025 MiB of memory: the outer guest has 1024 MiB"},
		{"no NIC", func(_ *stranger, inner, _ *Config) { inner.NICs = nil }, "0 NICs"},
		{"slots", func(_ *stranger, inner, _ *Config) { inner.Slots = 2 }, "2 slots"},
		{"foreign", func(_ *stranger, inner, _ *Config) { inner.Arch, inner.Image.Arch = image.S390X, image.S390X }, "only amd64 nests"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, inner, outer := strangeGuest(t)
			tt.change(s, &inner, &outer)
			g, choice, err := StartNested(t.Context(), inner, outer, s, "02:00:00:00:00:01")
			if g != nil || choice != (Choice{}) || err == nil || !strings.Contains(err.Error(), tt.want) ||
				!strings.Contains(err.Error(), "start guest inner in guest outer: ") {
				t.Errorf("got %v, %+v, %v; want %q", g, choice, err, tt.want)
			}
		})
	}
}

// The inner guest's console is on this host, its end is noticed, and Kill ends its
// QEMU.
func TestStartNested(t *testing.T) {
	broken := errors.New("connection lost")
	for name, end := range map[string]func(t *testing.T, s *stranger, g *Guest) error{
		"killed": func(t *testing.T, _ *stranger, g *Guest) error {
			return errors.Join(g.Kill(), g.Kill())
		},
		"powered down": func(t *testing.T, _ *stranger, g *Guest) error { return g.PowerDown(t.Context()) },
		"died":         func(_ *testing.T, s *stranger, _ *Guest) error { s.qemu <- broken; return nil },
	} {
		t.Run(name, func(t *testing.T) {
			s, inner, outer := strangeGuest(t)
			ctx, cancel := context.WithCancel(t.Context())
			g, choice, err := StartNested(ctx, inner, outer, s, "02:00:00:00:00:01")
			cancel() // that of the start only
			if err != nil || choice.Accel != KVM || g.Accel != KVM {
				t.Fatalf("got %+v, %+v, %v", g, choice, err)
			}
			if len(s.ran) != 2 || s.ran[0] != "/etc/unnest/nest 02:00:00:00:00:01 300 20" || !strings.Contains(s.ran[1], " -accel kvm ") {
				t.Errorf("ran %q", s.ran)
			}
			if seed := s.put[nestedDir+"/seed.tar"]; !strings.Contains(seed, "etc/hostname") {
				t.Errorf("seed of %d bytes was put to %v", len(seed), s.put)
			}
			if err := g.Err(); err != nil {
				t.Errorf("it runs, but: %v", err)
			}
			_, signer := testKey(t)
			if _, _, err := g.WaitReady(t.Context(), nil, signer); !errors.Is(err, ErrBoot) || !strings.Contains(err.Error(), "no root disk") {
				t.Errorf("got %v, want what the console says", err)
			}
			if err := end(t, s, g); err != nil {
				t.Error(err)
			}
			select {
			case <-g.Done():
			case <-time.After(patience):
				t.Fatal("it does not end")
			}
			if err := g.Err(); !errors.Is(err, ErrDied) || !strings.Contains(err.Error(), "inner") || name == "died" && !errors.Is(err, broken) {
				t.Errorf("got %v, want ErrDied", err)
			}
		})
	}
}

func TestNestingCPU(t *testing.T) {
	for version, want := range map[string]string{
		"QEMU emulator version 7.2.19 (Debian 1:7.2+dfsg-7+deb12u16)": "EPYC,+svm,+npt",
		"QEMU emulator version 8.2.2 (Debian 1:8.2.2+ds-0ubuntu1.18)": "EPYC,+svm,-npt",
		"QEMU emulator version 10.0.3 (Debian 1:10.0.3+ds-0+deb13u1)": "EPYC,+svm,+npt",
	} {
		if got := NestingCPUFor(version); got != want {
			t.Errorf("%s: got %s, want %s", version, got, want)
		}
	}
}
