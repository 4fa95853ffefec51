package guest

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// ContainerImage is the name of the container image that every guest holds: the
// measuring tools with the very libraries of the guest, so that a container
// and its guest run the same code.
const ContainerImage = "localhost/unnest/tools:1"

// libraryPaths are where Debian keeps shared libraries.
var libraryPaths = []string{"lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "lib64"}

// writeContainerImage writes a docker-archive with the programs, and the shared
// libraries that they need, taken from the root file system root. The image has
// busybox as its shell, for commands run in the container.
func writeContainerImage(path, root string, programs []string) error {
	files, err := withLibraries(root, programs)
	if err != nil {
		return err
	}
	layerTar, err := tarOf(root, files)
	if err != nil {
		return err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(layerTar)), nil
	})
	if err != nil {
		return fmt.Errorf("make layer of container image: %w", err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err == nil {
		image, err = mutate.ConfigFile(image, imageConfig(image))
	}
	if err != nil {
		return fmt.Errorf("make container image: %w", err)
	}
	tag, err := name.NewTag(ContainerImage)
	if err != nil {
		return err
	}
	if err := tarball.WriteToFile(path, tag, image); err != nil {
		return fmt.Errorf("write container image: %w", err)
	}
	return nil
}

func imageConfig(image v1.Image) *v1.ConfigFile {
	config, err := image.ConfigFile()
	if err != nil {
		config = &v1.ConfigFile{}
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", "amd64"
	config.Config = v1.Config{
		Env: []string{"PATH=/usr/bin:/bin"},
		Cmd: []string{"/bin/sh", "-c", "trap exit TERM; while :; do sleep 3600 & wait; done"},
	}
	return config
}

// withLibraries returns files and, after them, every shared library and program
// interpreter that they need, as paths below root.
func withLibraries(root string, files []string) ([]string, error) {
	var all []string
	for queue := slices.Clone(files); len(queue) > 0; queue = queue[1:] {
		path := filepath.Clean("/" + queue[0])
		if slices.Contains(all, path) {
			continue
		}
		all = append(all, path)
		needed, err := neededBy(root, path)
		if err != nil {
			return nil, fmt.Errorf("find libraries of %s: %w", path, err)
		}
		queue = append(queue, needed...)
	}
	return all, nil
}

func neededBy(root, path string) ([]string, error) {
	f, err := elf.Open(filepath.Join(root, path))
	if err != nil {
		return nil, err
	}
	defer f.Close()
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
		found, err := findLibrary(root, l)
		if err != nil {
			return nil, err
		}
		needed = append(needed, found)
	}
	return needed, nil
}

func findLibrary(root, library string) (string, error) {
	for _, dir := range libraryPaths {
		path := filepath.Join("/", dir, library)
		if _, err := os.Stat(filepath.Join(root, path)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: %w", library, fs.ErrNotExist)
}

// tarOf packs the files of root, symbolic links followed, with the links that a
// shell needs and a directory for temporary files.
func tarOf(root string, files []string) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	err := w.WriteHeader(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777})
	for _, applet := range []string{"sh", "sleep", "cat", "kill", "setsid", "rm", "true"} {
		err = errors.Join(err, w.WriteHeader(&tar.Header{Name: "bin/" + applet, Linkname: "busybox", Typeflag: tar.TypeSymlink, Mode: 0o777}))
	}
	for _, f := range files {
		content, readErr := os.ReadFile(filepath.Join(root, f))
		err = errors.Join(err, readErr,
			w.WriteHeader(&tar.Header{Name: f[1:], Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))}))
		_, writeErr := w.Write(content)
		err = errors.Join(err, writeErr)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("pack container image: %w", err)
	}
	return b.Bytes(), nil
}
