package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const iperf3 = "/usr/bin/iperf3" // Debian's package iperf3

// The root of this host stands for that of a guest: it is Debian, too.
func TestWithLibraries(t *testing.T) {
	got, err := withLibraries("/", []string{iperf3}, AMD64)
	if err != nil {
		t.Fatal(err)
	}
	if got[0] != iperf3 {
		t.Errorf("first is %s, want the program itself", got[0])
	}
	for _, want := range []string{"ld-linux-x86-64.so.2", "libc.so.6", "libiperf.so.0"} {
		if !slices.ContainsFunc(got, func(p string) bool { return path.Base(p) == want }) {
			t.Errorf("no %s in %v", want, got)
		}
	}
	for i, p := range got {
		if info, err := os.Stat(p); err != nil || !info.Mode().IsRegular() || slices.Contains(got[:i], p) {
			t.Errorf("%s is no file, or there twice (%v)", p, err)
		}
	}
	again, err := withLibraries("/", []string{iperf3, iperf3, strings.TrimPrefix(iperf3, "/")}, AMD64)
	if err != nil || !slices.Equal(again, got) {
		t.Errorf("one program named three times: got %v, %v; want %v", again, err, got)
	}
}

// The loader of Debian's programs is an absolute link. The container image has the file that it
// leads to in the guest, not the one of this host.
func TestLayerHasLoaderOfItsRoot(t *testing.T) {
	const loader = "/lib64/ld-linux-x86-64.so.2"
	root := t.TempDir()
	files, err := withLibraries("/", []string{iperf3}, AMD64)
	if err != nil {
		t.Fatal(err)
	}
	own := map[string][]byte{}
	for _, f := range files {
		if own[f], err = os.ReadFile(f); err != nil {
			t.Fatal(err)
		}
	}
	host, err := filepath.EvalSymlinks(loader)
	if err != nil {
		t.Fatal(err)
	}
	own[loader] = slices.Concat(own[loader], []byte("of the guest"))
	guest := own[loader]
	delete(own, loader)
	own[host] = guest
	if err := errors.Join(addFiles(root, own), os.MkdirAll(filepath.Join(root, "lib64"), 0o755), os.Symlink(host, filepath.Join(root, loader))); err != nil {
		t.Fatal(err)
	}
	layer, err := Recipe{Image: []string{iperf3}}.layer(root, nil)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(bytes.NewReader(layer)); ; {
		h, err := r.Next()
		if err != nil {
			t.Fatalf("%s: %v", loader, err)
		}
		if "/"+h.Name != loader {
			continue
		}
		if content, err := io.ReadAll(r); err != nil || !bytes.Equal(content, guest) {
			t.Errorf("%s has %d bytes (%v), want the %d of the guest's", loader, len(content), err, len(guest))
		}
		return
	}
}

func TestWithLibrariesMissing(t *testing.T) {
	root := t.TempDir()
	content, err := os.ReadFile(iperf3)
	if err != nil {
		t.Fatal(err)
	}
	if err := addFiles(root, map[string][]byte{iperf3: content, "/etc/text": []byte("text")}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ file, want string }{
		{iperf3, ".so"},             // none of its libraries is there
		{"/usr/bin/none", "none"},   // not there itself
		{"/etc/text", "/etc/text:"}, // no program
	} {
		got, err := withLibraries(root, []string{tt.file}, AMD64)
		if err == nil || !strings.Contains(err.Error(), "find libraries of "+tt.file) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, %v; want an error that names it", tt.file, got, err)
		}
	}
}

// The layer has links for a shell, and files instead of links to them.
func TestWriteLayer(t *testing.T) {
	root := t.TempDir()
	busybox := "/bin/busybox"
	if err := addFiles(root, map[string][]byte{busybox: []byte("busybox")}); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("busybox", filepath.Join(root, "bin/link")); err != nil {
		t.Fatal(err)
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	if err := errors.Join(writeLayer(w, root, []string{busybox, "/bin/link"}), w.Close()); err != nil {
		t.Fatal(err)
	}
	found := map[string]*tar.Header{}
	for r := tar.NewReader(&layer); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		found[h.Name] = h
	}
	for _, applet := range []string{"sh", "cat", "kill", "rm", "sleep"} { // what package place needs
		if h := found["bin/"+applet]; h == nil || h.Typeflag != tar.TypeSymlink || h.Linkname != "busybox" {
			t.Errorf("bin/%s: got %+v, want a link to busybox", applet, h)
		}
	}
	if h := found["bin/link"]; h == nil || h.Typeflag != tar.TypeReg || h.Size != int64(len("busybox")) {
		t.Errorf("bin/link: got %+v, want the file that it links to", h)
	}
	if h := found["bin/busybox"]; h == nil || h.Mode != 0o755 {
		t.Errorf("bin/busybox: got %+v, want a program", h)
	}
	for _, name := range []string{"etc/passwd", "etc/group"} { // servers look for root
		if h := found[name]; h == nil || h.Mode != 0o644 || h.Size == 0 {
			t.Errorf("%s: got %+v, want root's line", name, h)
		}
	}
	if h := found["tmp/"]; h == nil || h.Mode != 0o1777 {
		t.Errorf("tmp/: got %+v, want a directory for all", h)
	}
	if err := writeLayer(tar.NewWriter(io.Discard), root, []string{"/bin/none"}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: got %v", err)
	}
}

// Container engines can load the archive under its name.
func TestWriteContainerImage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tools.tar")
	if err := writeContainerImage(t.Context(), path, "/", Recipe{Image: []string{iperf3}}); err != nil {
		t.Fatal(err)
	}
	manifest, err := exec.Command("tar", "-xOf", path, "manifest.json").Output()
	if err != nil || !strings.Contains(string(manifest), `"RepoTags":["`+ContainerImage+`"]`) {
		t.Errorf("manifest: %s, %v; want the tag %s", manifest, err, ContainerImage)
	}
	if err := writeContainerImage(t.Context(), path, "/", Recipe{Image: []string{"/no/such/program"}}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing program: got %v", err)
	}
}

// The image of a whole root has only the mark, and the architecture of the guest.
func TestWholeContainerImage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tools.tar")
	if err := writeContainerImage(t.Context(), path, "/no/such/root", Recipe{Whole: true, Arch: S390X, Image: []string{"/bin/none"}}); err != nil {
		t.Fatal(err)
	}
	files, err := exec.Command("sh", "-c", `tar -xOf "$0" layer.tar | tar -t`, path).Output()
	if err != nil || strings.TrimSpace(string(files)) != wholeMark {
		t.Errorf("files: got %q, %v; want %s", files, err, wholeMark)
	}
	config, err := exec.Command("tar", "-xOf", path, "--wildcards", "????????*.json").Output()
	if err != nil || !strings.Contains(string(config), `"architecture":"s390x"`) {
		t.Errorf("configuration: got %s, %v", config, err)
	}
	engine, err := overlay.ReadFile("rootfs/engine")
	if err != nil || !strings.Contains(string(engine), wholeMark) || !strings.Contains(string(engine), wholeRoot) {
		t.Errorf("the engine's script knows neither mark nor root (%v)", err)
	}
}

// The root of containers shares the guest's files, except files that either writes and
// mount points.
func TestLinkWhole(t *testing.T) {
	privileged(t)
	root := filepath.Join(t.TempDir(), "root")
	if err := addFiles(root, map[string][]byte{
		"/usr/bin/tool": []byte("tool"), "/etc/conf": []byte("conf"), "/proc/left": nil, "/boot/vmlinuz": nil,
		"/usr/lib/modules/6.1/kernel.ko": nil, "/usr/share/unnest/images/tools.tar": nil, "/var/lib/dpkg/status": []byte("status"), "/tmp/left": nil,
	}); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if err := (&Builder{}).linkWhole(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	same := func(path string) bool {
		guest, err := os.Stat(filepath.Join(root, path))
		container, err2 := os.Stat(filepath.Join(root, wholeRoot, path))
		if err := errors.Join(err, err2); err != nil {
			t.Error(err)
			return false
		}
		return os.SameFile(guest, container)
	}
	for path, want := range map[string]bool{"usr/bin/tool": true, "var/lib/dpkg/status": true, "etc/conf": false} {
		if got := same(path); got != want {
			t.Errorf("%s: one file for both: %v, want %v", path, got, want)
		}
	}
	for _, dir := range []string{"proc", "boot", "usr/lib/modules", "usr/share/unnest", "tmp"} {
		entries, err := os.ReadDir(filepath.Join(root, wholeRoot, dir))
		if err != nil || len(entries) > 0 {
			t.Errorf("%s: %v are in it (%v), want nothing", dir, entries, err)
		}
	}
	if info, err := os.Stat(filepath.Join(root, wholeRoot, "tmp")); err != nil || info.Mode()&os.ModeSticky == 0 || info.Mode().Perm() != 0o777 {
		t.Errorf("tmp: %v, mode %v; want it open to all, sticky", err, info.Mode())
	}
	if _, err := os.Stat(filepath.Join(root, wholeRoot, wholeRoot)); err == nil {
		t.Error("the containers' root has a containers' root")
	}
	if !exists(filepath.Join(root, "boot/vmlinuz")) {
		t.Error("the guest's own files were removed")
	}
}
