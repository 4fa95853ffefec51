package image

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
