package guest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"unnest/internal/testbed/place"
)

func TestParseArch(t *testing.T) {
	for name, want := range map[string]Arch{
		"amd64": AMD64, "x86_64": AMD64, "arm64": ARM64, "aarch64": ARM64, "s390x": S390X,
		"": "", "AMD64": "", "i386": "", "s390": "", "riscv64": "",
	} {
		got, err := ParseArch(name)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: got %q, %v; want %q", name, got, err, want)
		}
		if err != nil && !strings.Contains(err.Error(), "want amd64, arm64 or s390x") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// Only TCG runs guests of a foreign architecture.
func TestChooseForeign(t *testing.T) {
	foreign := foreignArch()
	tests := []struct {
		want Accel
		got  Accel // empty: an error
		says string
	}{
		{AccelAuto, TCG, "the guest is " + string(foreign)},
		{"", TCG, "this machine " + runtime.GOARCH},
		{TCG, TCG, "asked for"},
		{KVM, "", "the guest is " + string(foreign)},
		{"xen", "", "want auto, kvm or tcg"},
	}
	for _, tt := range tests {
		got, err := foreign.ChooseAccel(tt.want)
		if got.Accel != tt.got || (err == nil) != (tt.got != "") {
			t.Errorf("%q: got %+v, %v; want %q", tt.want, got, err, tt.got)
		}
		text := got.Reason
		if err != nil {
			text = err.Error()
		}
		if !strings.Contains(text, tt.says) {
			t.Errorf("%q: %q is not in %q", tt.want, tt.says, text)
		}
	}
	if _, err := foreign.ChooseAccel(KVM); !errors.Is(err, ErrAccel) {
		t.Errorf("got %v, want ErrAccel", err)
	}
}

// foreignArch is an architecture that differs from that of this machine.
func foreignArch() Arch {
	if runtime.GOARCH == string(S390X) {
		return AMD64
	}
	return S390X
}

// The parts of the command line that depend on the architecture.
func TestArgumentsOfArchitectures(t *testing.T) {
	tests := []struct {
		arch Arch
		want []string
		not  []string
	}{
		{AMD64, []string{
			"-machine q35", "-cpu max,erms=off,fsrm=off", "-serial chardev:console", "-device virtio-blk-pci,drive=root", "-fw_cfg name=opt/unnest/seed,file=/s/seed.tar",
			"-drive if=none,id=disk0,format=raw,readonly=on,file=/more", "-device virtio-blk-pci,drive=disk0,serial=more",
			"-device virtio-net-pci,netdev=nic0,mac=02:00:00:00:00:01,romfile=",
		}, []string{"serial=unnest-seed"}},
		{ARM64, []string{
			"-machine virt,gic-version=max", "-cpu max,pauth-impdef=on", "-serial chardev:console", "-device virtio-blk-pci,drive=root",
			"-drive if=none,id=disk0,format=raw,readonly=on,file=/s/seed.tar", "-device virtio-blk-pci,drive=disk0,serial=unnest-seed",
			"-device virtio-blk-pci,drive=disk1,serial=more", "-device virtio-net-pci,netdev=nic0,mac=02:00:00:00:00:01,romfile=",
		}, []string{"-fw_cfg", "ttyS0", "q35"}},
		{S390X, []string{
			"-machine s390-ccw-virtio", "-cpu max", "-device sclpconsole,chardev=console", "-device virtio-blk-ccw,drive=root",
			"-drive if=none,id=disk0,format=raw,readonly=on,file=/s/seed.tar", "-device virtio-blk-ccw,drive=disk0,serial=unnest-seed",
			"-device virtio-blk-ccw,drive=disk1,serial=more", "-device virtio-net-ccw,netdev=nic0,mac=02:00:00:00:00:01",
		}, []string{"-fw_cfg", "-serial", "pci", "romfile", "q35"}},
	}
	for _, tt := range tests {
		c := Config{
			Arch: tt.arch, Accel: TCG, Dir: "/s", VCPUs: 1, Disks: []Disk{{"/more", "more"}}, NICs: []NIC{{MAC: "02:00:00:00:00:01"}},
		}
		got := optionPerLine(c.arguments())
		for _, w := range tt.want {
			if !slices.Contains(strings.Split(got, "\n"), w) {
				t.Errorf("%s: no %q in\n%s", tt.arch, w, got)
			}
		}
		for _, w := range tt.not {
			if strings.Contains(got, w) {
				t.Errorf("%s: %q is in\n%s", tt.arch, w, got)
			}
		}
		for line := range strings.Lines(got) {
			if strings.Contains(line, "drive=") && strings.Contains(line, "serial=") == strings.Contains(line, "drive=root") {
				t.Errorf("%s: %s: want a serial number for each disk except root: the initrd finds root by that", tt.arch, line)
			}
		}
	}
}

func TestStartRefusesArchitecture(t *testing.T) {
	tests := []struct {
		config Config
		want   string
	}{
		{Config{Arch: "riscv64"}, `architecture "riscv64": want`},
		{Config{Arch: S390X, Image: Image{Arch: S390X}, Slots: 1}, "1 slots: NICs cannot be plugged into a guest of s390x"},
		{Config{Arch: ARM64}, "the image is for amd64, the guest is arm64"},
		{Config{Arch: foreignArch(), Image: Image{Arch: foreignArch()}, Accel: KVM}, "KVM runs guests of " + runtime.GOARCH},
		{Config{Image: Image{Arch: S390X}}, "the image is for s390x, the guest is amd64"},
	}
	for _, tt := range tests {
		tt.config.Name, tt.config.Dir = "node1", t.TempDir()
		if g, err := Start(t.Context(), tt.config); g != nil || err == nil || !strings.Contains(err.Error(), "start guest node1: "+tt.want) {
			t.Errorf("got %v, %v; want %q", g, err, tt.want)
		}
	}
}

// A binary of another architecture is refused before an image is made. A script has no
// architecture.
func TestCheckProgram(t *testing.T) {
	program := filepathOf(t, "true")
	script := []byte("#!/bin/sh\n")
	for _, a := range Arches() {
		err := a.checkBinary("/a/program", bytes.NewReader(program))
		if own := string(a) == runtime.GOARCH; (err == nil) != own {
			t.Errorf("%s: a program of this machine: got %v", a, err)
		} else if !own && (!strings.Contains(err.Error(), "/a/program") || !strings.Contains(err.Error(), "GOARCH="+string(a))) {
			t.Errorf("%s: got %v; want the program and the fix", a, err)
		}
		if err := a.checkBinary("/a/script", bytes.NewReader(script)); err != nil {
			t.Errorf("%s: a script: %v", a, err)
		}
	}
}

func filepathOf(t *testing.T, program string) []byte {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// The files that scripts of packages would make are made. Files of the packages stay.
func TestConfigure(t *testing.T) {
	root := t.TempDir()
	if err := addFiles(root, map[string][]byte{
		"/usr/share/base-passwd/passwd.master": []byte("root:*:0:0:root:/root:/bin/bash\n"),
		"/usr/share/base-passwd/group.master":  []byte("root:*:0:\n"),
		"/usr/sbin/iptables-save":              []byte("its own"), "/usr/bin/mawk": nil, "/usr/sbin/xtables-nft-multi": nil,
	}); err != nil {
		t.Fatal(err)
	}
	if err := configure(root); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, path := range []string{"/etc/passwd", "/etc/group", "/etc/shells", "/usr/sbin/iptables-save"} {
		content, err := os.ReadFile(root + path)
		if err != nil {
			t.Error(err)
		}
		got[path] = string(content)
	}
	for _, path := range []string{"/usr/bin/awk", "/usr/sbin/iptables"} {
		target, err := os.Readlink(root + path)
		if err != nil {
			t.Error(err)
		}
		got[path] = target
	}
	want := map[string]string{
		"/etc/passwd": "root:*:0:0:root:/root:/bin/bash\n", "/etc/group": "root:*:0:\n", "/etc/shells": "/bin/sh\n/bin/bash\n",
		"/usr/sbin/iptables-save": "its own", "/usr/bin/awk": "mawk", "/usr/sbin/iptables": "xtables-nft-multi",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(root + "/tmp"); err != nil || info.Mode().Perm() != 0o777 || info.Mode()&os.ModeSticky == 0 {
		t.Errorf("/tmp: %v, %v; want it open to all, sticky", info, err)
	}
	if err := configure(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a base: got %v", err)
	}
}

// A guest of each architecture boots, unpacks its seed, and accepts a login.
func TestArchitectures(t *testing.T) {
	privileged(t)
	for _, a := range Arches() {
		t.Run(string(a), func(t *testing.T) {
			r, err := ArchRecipe(a)
			if err != nil {
				t.Fatal(err)
			}
			builder := Builder{Cache: CacheDir(), Progress: func(step string) { t.Log(step) }}
			begin := time.Now()
			image, err := builder.Build(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("image built in %v, %s", time.Since(begin), onDisk(t, image.Root))
			l := testLab(t)
			_, signer := testKey(t)
			g := testGuest(t, l, image, signer, func(c *Config) { c.Arch, c.Slots, c.Memory = a, 0, 1<<30 })
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
			defer cancel()
			client, times, err := g.WaitReady(ctx, l.Dial, signer)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			t.Logf("boot: %+v", times)
			out, err := place.Output(ctx, client, "sh", "-c", "uname -m; hostname")
			if want := a.Uname() + "\nnode1\n"; err != nil || string(out) != want {
				t.Errorf("got %q, %v; want %q", out, err, want)
			}
			version, err := place.Output(ctx, client, "dpkg-query", "--show", "--showformat", "${Status} ${Version}", "bash")
			if err != nil || !strings.HasPrefix(string(version), "install ok installed 5.") {
				t.Errorf("the version of bash: %q, %v", version, err)
			}
			if err := g.Kill(); err != nil {
				t.Error(err)
			}
		})
	}
}
