package image

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Archive is a container image with programs of our guests, for container engines on hosts of
// users.
type Archive struct {
	Name string // of the image; its tag is the digest of the image's layer
	Size int64  // of the layer, bytes

	config []byte
	layer  func(ctx context.Context, w io.Writer) error
}

// archiveName is the image's name without tag.
const archiveName = "localhost/unnest/suite"

// notInArchive are files of the guest's container engine, which containers do not use.
var notInArchive = []string{
	"usr/bin/containerd", "usr/bin/containerd-shim", "usr/bin/containerd-shim-runc-v1", "usr/bin/containerd-shim-runc-v2",
	"usr/bin/ctr", "usr/lib/cni", "usr/sbin/runc",
}

// Archive makes the image that containers of a recipe have, from the directory with its unpacked
// Debian packages: the whole of it, or only the recipe's binaries with the libraries that they
// need. It adds the builder's files.
func (b *Builder) Archive(ctx context.Context, r Recipe) (*Archive, error) {
	root, err := b.Root(ctx, r)
	if err != nil {
		return nil, err
	}
	files, err := b.sources(r.Arch)
	if err != nil {
		return nil, err
	}
	if r.Whole {
		return NewArchive(ctx, root, r.Arch, files)
	}
	layer, err := r.layer(root, files)
	if err != nil {
		return nil, err
	}
	return newImage(ctx, r.Arch, layerOf(layer))
}

// NewArchive makes the image of a root directory with added files by their path. It reads everything once, for the digest.
func NewArchive(ctx context.Context, root string, arch Arch, files map[string]source) (*Archive, error) {
	a, err := newImage(ctx, arch, func(ctx context.Context, w io.Writer) error { return writeRoot(ctx, w, root, files) })
	if err != nil {
		return nil, fmt.Errorf("pack container image of %s: %w", root, err)
	}
	return a, nil
}

// newImage makes the image with a layer, which is written twice: for its digest, and by
// Write.
func newImage(ctx context.Context, arch Arch, layer func(context.Context, io.Writer) error) (*Archive, error) {
	var size counter
	hash := sha256.New()
	if err := layer(ctx, io.MultiWriter(hash, &size)); err != nil {
		return nil, err
	}
	sum := hex.EncodeToString(hash.Sum(nil))
	config, err := json.Marshal(map[string]any{ // OCI image specification 1.1, config.md
		"os": "linux", "architecture": arch.OrAMD64(),
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + sum}},
		"config": map[string]any{
			"Env": []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			"Cmd": []string{"/bin/sh", "-c", "trap exit TERM; while :; do sleep 3600 & wait; done"},
		},
	})
	return &Archive{Name: archiveName + ":" + sum[:16], Size: int64(size), config: config, layer: layer}, err
}

// Write writes the image in the format of `docker save`, which every engine loads. The
// root directory must not have changed since NewArchive.
func (a *Archive) Write(ctx context.Context, to io.Writer) error {
	sum := sha256.Sum256(a.config)
	name := hex.EncodeToString(sum[:]) + ".json"
	manifest, err := json.Marshal([]struct {
		Config           string
		RepoTags, Layers []string
	}{{name, []string{a.Name}, []string{"layer.tar"}}})
	if err != nil {
		return err
	}
	w := tar.NewWriter(to)
	for _, f := range []struct {
		name    string
		content []byte
	}{{"manifest.json", manifest}, {name, a.config}} {
		if err := writeFile(w, f.name, 0o755, f.content); err != nil {
			return err
		}
	}
	if err := w.WriteHeader(&tar.Header{Name: "layer.tar", Typeflag: tar.TypeReg, Mode: 0o644, Size: a.Size}); err != nil {
		return err
	}
	if err := a.layer(ctx, w); err != nil {
		return fmt.Errorf("pack container image: %w", err)
	}
	return w.Close()
}

// counter counts the bytes that are written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// writeRoot writes an archive of root and the added files in a fixed order. It leaves
// out extended attributes: the suites need none of those in Debian's packages.
func writeRoot(ctx context.Context, to io.Writer, root string, files map[string]source) error {
	w := tar.NewWriter(to)
	links := map[uint64]string{} // inode -> its first name
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil || path == root {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case slices.Contains(notInArchive, name) && d.IsDir():
			return fs.SkipDir
		case slices.Contains(notInArchive, name) || d.Type()&(fs.ModeSocket|fs.ModeDevice|fs.ModeNamedPipe) != 0:
			return nil
		}
		if err := writeEntry(w, path, name, d, links); err != nil {
			return err
		}
		if slices.Contains(notInContainer, name) && d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := packAll(w, files); err != nil {
		return err
	}
	return w.Close()
}

// packAll writes files by their path, in a fixed order.
func packAll(w *tar.Writer, files map[string]source) error {
	for _, target := range slices.Sorted(maps.Keys(files)) {
		if err := files[target].pack(w, filepath.Clean(target)[1:]); err != nil {
			return err
		}
	}
	return nil
}

// writeEntry writes one file, directory or link. Further names of a file are links to
// its first.
func writeEntry(w *tar.Writer, path, name string, d fs.DirEntry, links map[uint64]string) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	var target string
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	}
	h, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	// The names of users may differ between machines.
	h.Name, h.Uname, h.Gname = name, "", ""
	if info.IsDir() {
		h.Name += "/"
	}
	if !info.Mode().IsRegular() {
		return w.WriteHeader(h)
	}
	inode := info.Sys().(*syscall.Stat_t).Ino
	if first, ok := links[inode]; ok {
		h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
		return w.WriteHeader(h)
	}
	links[inode] = name
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}

// pack writes the file into an archive, as executable.
func (s source) pack(w *tar.Writer, name string) error {
	from, size, err := s.open()
	if err != nil {
		return err
	}
	if err := from.Close(); err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755, Size: size}); err != nil {
		return err
	}
	return s.copyTo(w)
}

func writeFile(w *tar.Writer, name string, mode int64, content []byte) error {
	if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}
