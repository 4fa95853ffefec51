package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// unpacked makes a cache with the root directory of a recipe, and returns it with a
// builder that adds one file.
func unpacked(t *testing.T) (b *Builder, r Recipe, root string) {
	t.Helper()
	r = SuiteRecipe([]string{"sysbench"})
	b = &Builder{Cache: t.TempDir(), Files: map[string]string{"/usr/local/share/java/one.jar": filepath.Join(t.TempDir(), "one.jar")}}
	root = filepath.Join(b.Cache, "debian-"+r.rootDigest(), "root")
	err := addFiles(root, map[string][]byte{
		"/usr/bin/perl": []byte("perl"), "/usr/bin/containerd": []byte("engine"), "/usr/lib/cni/bridge": []byte("plugin"),
		"/etc/passwd": []byte("root"), "/boot/vmlinuz": []byte("kernel"), "/proc/1": nil,
	})
	if err == nil {
		err = errors.Join(
			os.WriteFile(b.Files["/usr/local/share/java/one.jar"], []byte("jar"), 0o600),
			os.Link(filepath.Join(root, "usr/bin/perl"), filepath.Join(root, "usr/bin/perl5")),
			os.Symlink("usr/bin", filepath.Join(root, "bin")),
			unix.Mkfifo(filepath.Join(root, "etc/fifo"), 0o600),
			os.Mkdir(filepath.Join(root, "tmp"), 0o700), os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky),
			os.Chmod(filepath.Join(root, "etc/passwd"), 0o640))
	}
	if err != nil {
		t.Fatal(err)
	}
	return b, r, root
}

// members returns the headers and the contents of an archive.
func members(t *testing.T, archive []byte) (headers map[string]*tar.Header, contents map[string][]byte) {
	t.Helper()
	headers, contents = map[string]*tar.Header{}, map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return headers, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		if headers[h.Name] != nil {
			t.Errorf("%s is there twice", h.Name)
		}
		if headers[h.Name], contents[h.Name] = h, nil; h.Typeflag == tar.TypeReg {
			if contents[h.Name], err = io.ReadAll(r); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// The archive has the format of `docker save`: a manifest that names the image, its
// configuration and its layer, and a configuration with the digest of the layer.
func TestArchive(t *testing.T) {
	b, r, _ := unpacked(t)
	a, err := b.Archive(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := a.Write(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	headers, contents := members(t, out.Bytes())
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	if err := json.Unmarshal(contents["manifest.json"], &manifest); err != nil || len(manifest) != 1 || len(manifest[0].Layers) != 1 {
		t.Fatalf("manifest %s, %v; want one image of one layer", contents["manifest.json"], err)
	}
	var config struct {
		Architecture string
		OS           string
		Config       struct{ Cmd []string }
		RootFS       struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	if err := json.Unmarshal(contents[manifest[0].Config], &config); err != nil {
		t.Fatalf("configuration %s: %v", contents[manifest[0].Config], err)
	}
	layer := contents[manifest[0].Layers[0]]
	sum := sha256.Sum256(layer)
	digest := hex.EncodeToString(sum[:])
	if len(config.RootFS.DiffIDs) != 1 || config.RootFS.DiffIDs[0] != "sha256:"+digest || config.Architecture != "amd64" || config.OS != "linux" || len(config.Config.Cmd) == 0 {
		t.Errorf("configuration %s, want the layer %s", contents[manifest[0].Config], digest)
	}
	if want := archiveName + ":" + digest[:16]; a.Name != want || len(manifest[0].RepoTags) != 1 || manifest[0].RepoTags[0] != want {
		t.Errorf("the image is called %s, in the manifest %q, want %s", a.Name, manifest[0].RepoTags, want)
	}
	if a.Size != int64(len(layer)) || headers["layer.tar"].Size != a.Size {
		t.Errorf("size %d, want %d", a.Size, len(layer))
	}
	assertLayer(t, layer)
}

// assertLayer checks that a layer has the files of unpacked's root, except mount points
// of containers, files for guests only, and special files.
func assertLayer(t *testing.T, layer []byte) {
	t.Helper()
	headers, contents := members(t, layer)
	for name, content := range map[string]string{"usr/bin/perl": "perl", "usr/local/share/java/one.jar": "jar", "etc/passwd": "root"} {
		if string(contents[name]) != content {
			t.Errorf("%s: got %q, want %q", name, contents[name], content)
		}
	}
	for _, name := range []string{"usr/bin/containerd", "usr/lib/cni/", "usr/lib/cni/bridge", "boot/vmlinuz", "proc/1", "etc/fifo"} {
		if headers[name] != nil {
			t.Errorf("%s is there", name)
		}
	}
	for name, want := range map[string]tar.Header{
		"usr/bin/perl5": {Typeflag: tar.TypeLink, Linkname: "usr/bin/perl", Mode: 0o755},
		"bin":           {Typeflag: tar.TypeSymlink, Linkname: "usr/bin", Mode: 0o777},
		"proc/":         {Typeflag: tar.TypeDir, Mode: 0o755},
		"tmp/":          {Typeflag: tar.TypeDir, Mode: 0o1777},
		"etc/passwd":    {Typeflag: tar.TypeReg, Mode: 0o640},
	} {
		if h := headers[name]; h == nil || h.Typeflag != want.Typeflag || h.Linkname != want.Linkname || h.Mode != want.Mode {
			t.Errorf("%s: got %+v, want %+v", name, h, want)
		}
	}
}

// The archive of a recipe whose containers have some programs has these, their libraries and the
// builder's files, and nothing else of the guest.
func TestArchiveOfPrograms(t *testing.T) {
	const ours = "/usr/local/bin/load" // a program of the containers that the builder adds
	libraries, err := withLibraries("/", []string{iperf3}, AMD64)
	if err != nil {
		t.Fatal(err)
	}
	r := DefaultRecipe()
	r.Image = []string{iperf3, ours}
	b := &Builder{Cache: t.TempDir(), Files: map[string]string{ours: filepath.Join(t.TempDir(), "load")}}
	files := map[string][]byte{"/etc/shadow": []byte("root"), "/usr/bin/containerd": []byte("engine")}
	for _, path := range libraries {
		if files[path], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	err = errors.Join(addFiles(filepath.Join(b.Cache, "debian-"+r.rootDigest(), "root"), files), os.WriteFile(b.Files[ours], []byte("load"), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	a, err := b.Archive(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := a.layer(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	headers, contents := members(t, out.Bytes())
	for _, path := range libraries {
		if !bytes.Equal(contents[path[1:]], files[path]) || headers[path[1:]].Mode != 0o755 {
			t.Errorf("%s is not the guest's", path)
		}
	}
	if string(contents[ours[1:]]) != "load" || headers["bin/sh"] == nil {
		t.Errorf("the program that the builder adds is %q, the shell %+v", contents[ours[1:]], headers["bin/sh"])
	}
	for name := range files {
		if headers[name[1:]] != nil && !slices.Contains(libraries, name) {
			t.Errorf("%s is there", name)
		}
	}
}

// The same content has the same name, so that an engine has it once. Other content,
// another mode or another file gives another name.
func TestArchiveName(t *testing.T) {
	b, r, root := unpacked(t)
	name := func() string {
		t.Helper()
		a, err := b.Archive(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return a.Name
	}
	first := name()
	passwd := filepath.Join(root, "etc/passwd")
	if err := os.Chtimes(passwd, time.Now(), time.Time{}); err != nil { // read, not written
		t.Fatal(err)
	}
	if again := name(); again != first {
		t.Errorf("the same content is called %s, then %s", first, again)
	}
	seen := map[string]bool{first: true}
	for _, change := range []func() error{
		func() error { return os.Chmod(passwd, 0o600) },
		func() error { return os.WriteFile(passwd, []byte("other"), 0o600) },
		func() error { return os.WriteFile(b.Files["/usr/local/share/java/one.jar"], []byte("jar 2"), 0o600) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if n := name(); seen[n] {
			t.Errorf("other content has the name %s too", n)
		} else {
			seen[n] = true
		}
	}
}

// A file that has changed since NewArchive is an error, and a reader that ends early
// ends the writing.
func TestArchiveChanged(t *testing.T) {
	b, r, root := unpacked(t)
	a, err := b.Archive(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Write(ctx, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v", err)
	}
	if err := os.WriteFile(filepath.Join(root, "etc/passwd"), bytes.Repeat([]byte("x"), 10<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := a.Write(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "pack container image") {
		t.Errorf("changed: got %v, want an error", err)
	}
}
