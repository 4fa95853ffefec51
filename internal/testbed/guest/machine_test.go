package guest

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/testbed/image"

	"unnest.io/unnest/internal/testbed/place"
)

// The parts of the command line that depend on the architecture.
func TestArgumentsOfArchitectures(t *testing.T) {
	tests := []struct {
		arch image.Arch
		want []string
		not  []string
	}{
		{image.AMD64, []string{
			"-machine q35", "-cpu max,erms=off,fsrm=off", "-serial chardev:console", "-device virtio-blk-pci,drive=root", "-fw_cfg name=opt/unnest/seed,file=/s/seed.tar",
			"-drive if=none,id=disk0,format=raw,readonly=on,file=/more", "-device virtio-blk-pci,drive=disk0,serial=more",
			"-device virtio-net-pci,netdev=nic0,mac=02:00:00:00:00:01,romfile=",
		}, []string{"serial=unnest-seed"}},
		{image.ARM64, []string{
			"-machine virt,gic-version=max", "-cpu max,pauth-impdef=on", "-serial chardev:console", "-device virtio-blk-pci,drive=root",
			"-drive if=none,id=disk0,format=raw,readonly=on,file=/s/seed.tar", "-device virtio-blk-pci,drive=disk0,serial=unnest-seed",
			"-device virtio-blk-pci,drive=disk1,serial=more", "-device virtio-net-pci,netdev=nic0,mac=02:00:00:00:00:01,romfile=",
		}, []string{"-fw_cfg", "ttyS0", "q35"}},
		{image.S390X, []string{
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
		{Config{Arch: image.S390X, Image: image.Image{Arch: image.S390X}, Slots: 1}, "1 slots: NICs cannot be plugged into a guest of s390x"},
		{Config{Arch: image.ARM64}, "the image is for amd64, the guest is arm64"},
		{Config{Arch: foreignArch(), Image: image.Image{Arch: foreignArch()}, Accel: KVM}, "KVM runs guests of " + runtime.GOARCH},
		{Config{Image: image.Image{Arch: image.S390X}}, "the image is for s390x, the guest is amd64"},
	}
	for _, tt := range tests {
		tt.config.Name, tt.config.Dir = "node1", t.TempDir()
		if g, err := Start(t.Context(), tt.config); g != nil || err == nil || !strings.Contains(err.Error(), "start guest node1: "+tt.want) {
			t.Errorf("got %v, %v; want %q", g, err, tt.want)
		}
	}
}

// A guest of each architecture boots, unpacks its seed, and accepts a login.
func TestArchitectures(t *testing.T) {
	privileged(t)
	for _, a := range image.Arches() {
		t.Run(string(a), func(t *testing.T) {
			r, err := image.ArchRecipe(a)
			if err != nil {
				t.Fatal(err)
			}
			builder := image.Builder{Cache: image.CacheDir(), Progress: func(step string) { t.Log(step) }}
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
