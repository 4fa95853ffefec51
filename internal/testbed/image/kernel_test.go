package image

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// bzImageOf returns a kernel image: a setup code of some sectors, then, at an offset,
// the payload and its uncompressed length.
func bzImageOf(sectors byte, offset int, payload []byte) []byte {
	setup := (int(sectors) + 1) * 512
	if sectors == 0 {
		setup = 5 * 512 // "for backwards compatibility", boot.rst on setup_sects
	}
	image := make([]byte, setup+offset)
	image[0x1f1] = sectors
	copy(image[0x202:], "HdrS")
	binary.LittleEndian.PutUint32(image[0x248:], uint32(offset))
	binary.LittleEndian.PutUint32(image[0x24c:], uint32(len(payload)+4))
	return append(append(image, payload...), 1, 2, 3, 4)
}

func TestKernelPayload(t *testing.T) {
	payload := []byte(xzMagic + "stream")
	good := func() []byte { return bzImageOf(1, 16, payload) }
	with := func(at int, b ...byte) []byte {
		image := good()
		copy(image[at:], b)
		return image
	}
	tests := []struct {
		name  string
		image []byte
		ok    bool
	}{
		{"one sector", good(), true},
		{"sectors left at 0 mean 4", bzImageOf(0, 16, payload), true},
		{"many sectors", bzImageOf(255, 0, payload), true},
		{"more after the payload", append(good(), make([]byte, 100)...), true},
		{"empty", nil, false},
		{"header cut short", good()[:0x24f], false},
		{"payload cut short", good()[:len(good())-1], false},
		{"no kernel", with(0x202, 'E', 'L', 'F', ' '), false},
		{"gzip", bzImageOf(1, 16, []byte("\x1f\x8b\x08stream")), false},
		{"payload far beyond the end", with(0x248, 0xff, 0xff, 0xff, 0xff), false},
		{"payload as long as can be", with(0x24c, 0xff, 0xff, 0xff, 0xff), false},
		{"payload of no length", with(0x24c, 0, 0, 0, 0), false},
		{"payload shorter than its magic", with(0x24c, 9, 0, 0, 0), false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := kernelPayload(tt.image)
			if tt.ok && (err != nil || !bytes.Equal(got, payload)) {
				t.Errorf("got %q, %v; want %q", got, err, payload)
			}
			if !tt.ok && !errors.Is(err, errBzImage) {
				t.Errorf("got %q, %v; want errBzImage", got, err)
			}
		})
	}
}

// A compressed kernel is decompressed. For another payload, the error quotes xz.
func TestUncompressKernel(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vmlinux")
	kernel := []byte(strings.Repeat("\x7fELF kernel ", 1000))
	if err := os.WriteFile(path, kernel, 0o600); err != nil {
		t.Fatal(err)
	}
	compressed, err := exec.Command("xz", "--check=crc32", "--stdout", path).Output()
	if err != nil {
		t.Fatalf("xz: %v (install it by `apt-get install xz-utils`)", err)
	}
	if got, err := uncompressKernel(t.Context(), bzImageOf(27, 300, compressed)); err != nil || !bytes.Equal(got, kernel) {
		t.Errorf("got %d bytes, %v; want the %d that were compressed", len(got), err, len(kernel))
	}
	_, err = uncompressKernel(t.Context(), bzImageOf(27, 300, []byte(xzMagic+"but no stream")))
	if err == nil || !strings.Contains(err.Error(), "uncompress kernel: ") || !strings.Contains(err.Error(), "xz:") {
		t.Errorf("got %v; want what xz says", err)
	}
}

// The fields of the header are separate arguments, because the fuzzer shrinks images
// slowly.
func FuzzKernelPayload(f *testing.F) {
	f.Add(byte(1), uint32(16), uint32(16), uint16(1056), []byte(xzMagic+"stream"))
	f.Add(byte(0), uint32(0), uint32(10), uint16(2570), []byte(xzMagic))
	f.Add(byte(1), uint32(16), uint32(16), uint16(1055), []byte(xzMagic+"stream"))
	f.Add(byte(4), uint32(1<<32-1), uint32(1<<32-1), uint16(0x250), []byte("\x1f\x8b"))
	f.Add(byte(4), uint32(0), uint32(0), uint16(0x24f), []byte{})
	f.Fuzz(func(t *testing.T, sectors byte, offset, length uint32, size uint16, content []byte) {
		image := make([]byte, max(int(size), 0x250))
		image[0x1f1] = sectors
		copy(image[0x202:], "HdrS")
		binary.LittleEndian.PutUint32(image[0x248:], offset)
		binary.LittleEndian.PutUint32(image[0x24c:], length)
		image = image[:size]
		if start := (int(sectors)+1)*512 + int(offset); start < len(image) {
			copy(image[start:], content)
		}
		payload, err := kernelPayload(image)
		if err == nil && (!bytes.HasPrefix(payload, []byte(xzMagic)) || len(payload) != int(length)-4 || !bytes.Contains(image, payload)) {
			t.Errorf("got %q, which is no xz stream of the image", payload)
		}
		if err != nil && len(payload) > 0 {
			t.Errorf("got %d bytes with the error %v", len(payload), err)
		}
	})
}

// Streams are uncompressed by their first bytes. What follows them is left out.
func TestUncompress(t *testing.T) {
	content := strings.Repeat("content ", 100)
	xz := exec.CommandContext(t.Context(), "xz", "--stdout")
	xz.Stdin = strings.NewReader(content)
	packed, err := xz.Output()
	if err != nil {
		t.Fatal(err)
	}
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, stream := range map[string][]byte{
		"xz": packed, "xz, more follows": append(bytes.Clone(packed), 1, 2, 3, 4), "zstd": w.EncodeAll([]byte(content), nil), "none": []byte(content),
	} {
		if got, err := uncompress(t.Context(), stream); err != nil || string(got) != content {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
	for _, damaged := range []string{xzMagic, zstdMagic + "x"} {
		if got, err := uncompress(t.Context(), []byte(damaged)); err == nil {
			t.Errorf("%q: %d bytes", damaged, len(got))
		}
	}
}

// The configuration of this host's modprobe changes neither which modules are found nor their paths.
func TestModuleOrder(t *testing.T) {
	root, configuration := t.TempDir(), t.TempDir()
	const release, dir = "6.1.0-57-amd64", "/lib/modules/6.1.0-57-amd64/kernel/"
	for path, content := range map[string]string{
		filepath.Join(configuration, "host.conf"): "install first /bin/true\noptions second napi_tx=0\n",
		root + dir + "first.ko":                   "", root + dir + "second.ko": "",
		filepath.Join(root, dir, "../modules.builtin"): "kernel/third.ko\n", filepath.Join(root, dir, "../modules.order"): "",
	} {
		if strings.HasSuffix(path, ".ko") { // depmod wants an ELF file
			program, err := os.ReadFile("/bin/true")
			if err != nil {
				t.Fatal(err)
			}
			content = string(program)
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("depmod", "--basedir", root, release).CombinedOutput(); err != nil {
		t.Fatalf("depmod: %v: %s (install it by `apt-get install kmod`)", err, out)
	}
	t.Setenv("MODPROBE_OPTIONS", "--config "+configuration)
	got, err := moduleOrder(t.Context(), root, release, os.DevNull, []string{"first", "second", "third", "first"})
	if want := []string{dir + "first.ko", dir + "second.ko"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if got, err := moduleOrder(t.Context(), root, release, configuration, []string{"second"}); err != nil || !slices.Equal(got, []string{dir + "second.ko"}) {
		t.Errorf("with options: got %q, %v; want the path alone", got, err)
	}
	if got, err := moduleOrder(t.Context(), root, release, configuration, []string{"first"}); err == nil || !strings.Contains(err.Error(), `modprobe prints "install /bin/true"`) {
		t.Errorf("with a command in place of a module: got %q, %v; want it refused", got, err)
	}
}
