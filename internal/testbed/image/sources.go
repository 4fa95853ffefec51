package image

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"

	"unnest.io/unnest/internal/testbed/rootdir"
)

// source is the content of a file to add to an image. It is not kept in memory, because it can
// be a server of half a gigabyte.
type source struct {
	path    string // of the file on this host; empty: content
	content []byte
	sum     []byte // SHA-256
}

func contentOf(content []byte) source {
	sum := sha256.Sum256(content)
	return source{content: content, sum: sum[:]}
}

// sources returns the files to add, by their path in the image. Those in ELF format must be of
// the guest's architecture.
func (b *Builder) sources(arch Arch) (map[string]source, error) {
	all := map[string]source{}
	for _, target := range slices.Sorted(maps.Keys(b.Files)) {
		one, err := readSource(b.Files[target], arch)
		if err != nil {
			return nil, err
		}
		all[target] = one
	}
	for target, content := range b.Contents {
		all[target] = contentOf(content)
	}
	return all, nil
}

func readSource(path string, arch Arch) (source, error) {
	f, err := os.Open(path)
	if err != nil {
		return source{}, fmt.Errorf("read file for the guest image: %w: run `make build`, or install a package: guests need its other programs", err)
	}
	defer f.Close()
	if err := arch.checkBinary(path, f); err != nil {
		return source{}, err
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, io.NewSectionReader(f, 0, 1<<62)); err != nil {
		return source{}, fmt.Errorf("read file for the guest image: %w", err)
	}
	return source{path: path, sum: hash.Sum(nil)}, nil
}

// checkBinary returns an error if a file is a program for another architecture.
func (a Arch) checkBinary(path string, content io.ReaderAt) error {
	f, err := elf.NewFile(content)
	if err != nil {
		return nil // a script
	}
	if f.Machine != a.traits().elf {
		return fmt.Errorf("add %s to the guest image: it is for %s, the guest is %s: build it with GOARCH=%s", path, f.Machine, a.OrAMD64(), a.OrAMD64())
	}
	return nil
}

// sums returns the digests of the files, by their path in the image.
func sums(files map[string]source) map[string][]byte {
	all := map[string][]byte{}
	for target, one := range files {
		all[target] = one.sum
	}
	return all
}

// open returns the content and its size.
func (s source) open() (io.ReadCloser, int64, error) {
	if s.path == "" {
		return io.NopCloser(bytes.NewReader(s.content)), int64(len(s.content)), nil
	}
	f, err := os.Open(s.path)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

// copyTo writes the content. It fails if that has changed since its digest was taken.
func (s source) copyTo(w io.Writer) error {
	from, _, err := s.open()
	if err != nil {
		return err
	}
	defer from.Close()
	hash := sha256.New()
	if _, err := io.Copy(io.MultiWriter(w, hash), from); err != nil {
		return err
	}
	if !bytes.Equal(hash.Sum(nil), s.sum) {
		return fmt.Errorf("%s has changed meanwhile: run the command again", s.path)
	}
	return nil
}

// addSources writes executable files into root. It replaces existing files and links
// without changing what they are linked to.
func addSources(root string, files map[string]source) error {
	for path, one := range files {
		target, err := rootdir.Dir(root).Entry(path)
		if err == nil {
			err = os.Remove(target)
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			err = one.write(target)
		}
		if err != nil {
			return fmt.Errorf("add %s to the guest image: %w", path, err)
		}
	}
	return nil
}

func (s source) write(target string) error {
	f, err := os.OpenFile(target, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	return errors.Join(s.copyTo(f), f.Close())
}

// addFiles is addSources for small files.
func addFiles(root string, files map[string][]byte) error {
	all := map[string]source{}
	for path, content := range files {
		all[path] = contentOf(content)
	}
	return addSources(root, all)
}
