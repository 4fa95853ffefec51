package guest

import (
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/testbed/image"
)

// QEMU enters Xen, whose modules are dom0's kernel with its command line and the initrd.
func TestXenArguments(t *testing.T) {
	c := Config{Name: "x", Dir: "/d", VCPUs: 2, Memory: 1 << 30, Image: image.Image{
		Kernel: "/i/vmlinux", Compressed: "/i/1/vmlinuz", Initrd: "/i/1/initrd", Root: "/i/root", Hypervisor: "/i/xen",
	}}
	args := strings.Join(c.machineArguments(), "\n")
	for _, want := range []string{
		"-kernel\n/i/xen\n", "-append\ncom1=115200", "-initrd\n/i/1/vmlinuz console=hvc0 ", ",/i/1/initrd\n", "file=/d/seed.tar\n-device\nvirtio-blk-pci,drive=disk0,serial=unnest-seed",
	} {
		if !strings.Contains(args, want) {
			t.Errorf("lacks %q:\n%s", want, args)
		}
	}
	if strings.Contains(args, "vmlinux") || strings.Contains(args, "fw_cfg") {
		t.Errorf("has the entry of a guest without Xen:\n%s", args)
	}
	c.Accel = TCG
	if emulated := strings.Join(c.machineArguments(), "\n"); strings.Contains(args, " norandmaps") || !strings.Contains(emulated, " norandmaps,/i/1/initrd\n") {
		t.Errorf("addresses of dom0's programs: %s\nunder TCG: %s", args, emulated)
	}
	c.Image.Hypervisor = ""
	if args := c.machineArguments(); !slices.Contains(args, "/i/vmlinux") || !slices.Contains(args, "-fw_cfg") {
		t.Errorf("without Xen: %q", args)
	}
}

// A module's name ends at the first blank. Other guests have blanks in their paths.
func TestXenBlanks(t *testing.T) {
	c := Config{Dir: "/my run", VCPUs: 1, Memory: 1 << 30, Image: image.Image{Compressed: "/my cache/i/vmlinuz", Initrd: "/my cache/i/initrd"}}
	if err := c.check(); err != nil {
		t.Errorf("without Xen: %v", err)
	}
	c.Image.Hypervisor = "/my cache/i/xen"
	if err := c.check(); err == nil || err.Error() != "the image in /my cache/i: a blank ends the name of a module of Xen: set UNNEST_CACHE to a path without blanks" {
		t.Errorf("with Xen: %v", err)
	}
}
