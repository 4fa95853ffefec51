package guest

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// QEMU enters Xen, whose modules are dom0's kernel with its command line and the initrd.
func TestXenArguments(t *testing.T) {
	c := Config{Name: "x", Dir: "/d", VCPUs: 2, Memory: 1 << 30, Image: Image{
		Kernel: "/i/vmlinux", Compressed: "/i,1/vmlinuz", Initrd: "/i,1/initrd", Root: "/i/root", Hypervisor: "/i/xen",
	}}
	args := strings.Join(c.machineArguments(), "\n")
	for _, want := range []string{
		"-kernel\n/i/xen\n", "-append\ncom1=115200", "-initrd\n/i,,1/vmlinuz console=hvc0 ", ",/i,,1/initrd\n", "file=/d/seed.tar\n-device\nvirtio-blk-pci,drive=disk0,serial=unnest-seed",
	} {
		if !strings.Contains(args, want) {
			t.Errorf("lacks %q:\n%s", want, args)
		}
	}
	if strings.Contains(args, "vmlinux") || strings.Contains(args, "fw_cfg") {
		t.Errorf("has the entry of a guest without Xen:\n%s", args)
	}
	c.Accel = TCG
	if emulated := strings.Join(c.machineArguments(), "\n"); strings.Contains(args, " norandmaps") || !strings.Contains(emulated, " norandmaps,/i,,1/initrd\n") {
		t.Errorf("addresses of dom0's programs: %s\nunder TCG: %s", args, emulated)
	}
	c.Image.Hypervisor = ""
	if args := c.machineArguments(); !slices.Contains(args, "/i/vmlinux") || !slices.Contains(args, "-fw_cfg") {
		t.Errorf("without Xen: %q", args)
	}
}

// Only an image that asks for Xen has its packages and its hypervisor.
func TestXenRecipe(t *testing.T) {
	if DefaultRecipe().xen() || !DefaultRecipe().Xen().xen() {
		t.Error("the default recipe has Xen, or that with Xen has not")
	}
	root, dir := t.TempDir(), t.TempDir()
	if err := DefaultRecipe().hypervisor(root, dir); err != nil {
		t.Errorf("without Xen: %v", err)
	}
	with := DefaultRecipe().Xen()
	if err := with.hypervisor(root, dir); err == nil || !strings.Contains(err.Error(), "found 0") {
		t.Errorf("no file: %v", err)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write([]byte("ELF")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(root, "boot", "xen-4.17-amd64.gz")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]string{packed.String(): "", "damaged": "uncompress", packed.String()[:12]: "uncompress"} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		err := with.hypervisor(root, dir)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v; want %q", content, err, want)
		}
	}
	if elf, err := os.ReadFile(filepath.Join(dir, hypervisorFile)); err != nil || string(elf) != "ELF" {
		t.Errorf("got %q, %v", elf, err)
	}
}
