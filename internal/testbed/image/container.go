package image

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"unnest.io/unnest/internal/testbed/rootdir"
)

// ContainerImage is the name of the container image in every guest. It has the tools of
// the workloads with the guest's own libraries, so that a container and its guest run
// the same code.
const ContainerImage = "localhost/unnest/tools:1"

// writeContainerImage writes the docker-archive of ContainerImage. Its layer has the
// recipe's binaries and the shared libraries that they need, from the root file system
// root, with busybox as shell. If the container has the whole of root, the layer has
// wholeMark only: see linkWhole.
func writeContainerImage(ctx context.Context, path, root string, r Recipe) error {
	layer, err := r.layer(root, nil)
	if err != nil {
		return err
	}
	image, err := newImage(ctx, r.Arch, layerOf(layer))
	if err != nil {
		return fmt.Errorf("make container image: %w", err)
	}
	image.Name = ContainerImage
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write container image: %w", err)
	}
	return errors.Join(image.Write(ctx, f), f.Close())
}

// layerOf writes a layer that is in memory.
func layerOf(content []byte) func(context.Context, io.Writer) error {
	return func(_ context.Context, w io.Writer) error {
		_, err := w.Write(content)
		return err
	}
}

// wholeMark is the only file of a container image that stands for the whole root file
// system.
const wholeMark = ".unnest-whole"

// layer packs the layer of writeContainerImage. The added files, by their path, are not in root.
func (r Recipe) layer(root string, added map[string]source) ([]byte, error) {
	write := func(w *tar.Writer) error { return writeFile(w, wholeMark, 0o644, nil) }
	if !r.Whole {
		programs := slices.DeleteFunc(slices.Clone(r.Image), func(path string) bool { _, ok := added[path]; return ok })
		files, err := withLibraries(root, programs, r.Arch)
		if err != nil {
			return nil, err
		}
		write = func(w *tar.Writer) error { return writeLayer(w, root, files) }
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := errors.Join(write(w), packAll(w, added), w.Close()); err != nil {
		return nil, fmt.Errorf("pack container image: %w", err)
	}
	return b.Bytes(), nil
}

// wholeRoot is the root of containers with the whole root file system, until the
// container engine starts for the first time. An archive of half a gigabyte takes
// minutes to import under TCG, so the engine loads an image of one file, and this
// directory replaces its unpacked layer.
const wholeRoot = "/var/lib/unnest/container"

// notInContainer are directories of the guest that are empty in containers. The first
// ones are mount points there.
var notInContainer = []string{"proc", "sys", "dev", "run", "tmp", "boot", "var/cache/apt", "var/lib/apt", "usr/lib/modules", "usr/share/unnest"}

// linkWhole adds wholeRoot to the root file system root as hard links, so that guest
// and containers share each file, on the disk and in the page cache. It copies /etc,
// because both may write there.
func (b *Builder) linkWhole(ctx context.Context, root string) error {
	part := root + ".container"
	if err := b.run(ctx, nil, "cp", "--archive", "--link", root, part); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(part, "etc")); err != nil {
		return fmt.Errorf("make root of containers: %w", err)
	}
	if err := b.run(ctx, nil, "cp", "--archive", filepath.Join(root, "etc"), part); err != nil {
		return err
	}
	for _, dir := range notInContainer {
		if err := clearDir(rootdir.Dir(part), dir); err != nil {
			return fmt.Errorf("make root of containers: %w", err)
		}
	}
	target, err := rootdir.Dir(root).Entry(wholeRoot)
	if err == nil {
		err = os.Rename(part, target)
	}
	if err != nil {
		return fmt.Errorf("make root of containers: %w", err)
	}
	return nil
}

// clearDir empties a directory of a root, if it exists.
func clearDir(root rootdir.Dir, name string) error {
	dir, err := root.Path(name)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// withLibraries returns files and, after them, all shared libraries and interpreters
// that they need, as paths below root.
func withLibraries(root string, files []string, arch Arch) ([]string, error) {
	var all []string
	for queue := slices.Clone(files); len(queue) > 0; queue = queue[1:] {
		path := filepath.Clean("/" + queue[0])
		if slices.Contains(all, path) {
			continue
		}
		all = append(all, path)
		needed, err := neededBy(root, path, arch)
		if err != nil {
			return nil, fmt.Errorf("find libraries of %s: %w", path, err)
		}
		queue = append(queue, needed...)
	}
	return all, nil
}

func neededBy(root, path string, arch Arch) ([]string, error) {
	program, err := rootdir.Dir(root).Open(path)
	if err != nil {
		return nil, err
	}
	defer program.Close()
	f, err := elf.NewFile(program)
	if err != nil {
		return nil, err
	}
	var needed []string
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			b, err := io.ReadAll(p.Open())
			if err != nil {
				return nil, err
			}
			needed = append(needed, string(bytes.TrimRight(b, "\x00")))
		}
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	for _, l := range libraries {
		found, err := findLibrary(root, l, arch)
		if err != nil {
			return nil, err
		}
		needed = append(needed, found)
	}
	return needed, nil
}

func findLibrary(root, library string, arch Arch) (string, error) {
	for _, dir := range arch.libraryPaths() {
		path := filepath.Join("/", dir, library)
		if _, err := rootdir.Dir(root).Stat(path); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w", library, fs.ErrNotExist)
}

// writeLayer packs files of root, with symbolic links followed, the links that a shell
// needs, a directory for temporary files, and the users and groups root and nobody.
func writeLayer(w *tar.Writer, root string, files []string) error {
	err := w.WriteHeader(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777})
	for _, applet := range []string{"sh", "sleep", "cat", "kill", "setsid", "rm", "true"} {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: "bin/" + applet, Linkname: "busybox", Typeflag: tar.TypeSymlink, Mode: 0o777}))
	}
	err = errors.Join(err, writeFile(w, "etc/passwd", 0o644, []byte("root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")),
		writeFile(w, "etc/group", 0o644, []byte("root:x:0:\nnogroup:x:65534:\n")))
	for _, f := range files {
		content, readErr := rootdir.Dir(root).ReadFile(f)
		err = errors.Join(err, readErr, writeFile(w, f[1:], 0o755, content))
	}
	return err
}
