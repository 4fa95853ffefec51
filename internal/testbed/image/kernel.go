package image

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/cavaliergopher/cpio"
	"github.com/klauspost/compress/zstd"

	"unnest.io/unnest/internal/testbed/rootdir"
)

var errBzImage = errors.New("not an x86 bzImage with an xz or zstd payload")

// uncompressKernel returns the ELF kernel in a bzImage (Linux/x86 boot protocol,
// Documentation/arch/x86/boot.rst, payload_offset and payload_length). QEMU enters it
// through its PVH note, which saves the guest the decompression: seconds under TCG.
func uncompressKernel(ctx context.Context, bzImage []byte) ([]byte, error) {
	payload, err := kernelPayload(bzImage)
	if err != nil {
		return nil, err
	}
	elf, err := uncompress(ctx, payload)
	if err != nil {
		return nil, fmt.Errorf("uncompress kernel: %w", err)
	}
	return elf, nil
}

// The first bytes of a stream by xz and by zstd.
const (
	xzMagic   = "\xfd7zXZ\x00"
	zstdMagic = "\x28\xb5\x2f\xfd"
)

// uncompress returns the content of a stream by xz or zstd, and anything else as it is. What follows
// the stream is left out.
func uncompress(ctx context.Context, stream []byte) ([]byte, error) {
	switch {
	case bytes.HasPrefix(stream, []byte(xzMagic)):
		xz := exec.CommandContext(ctx, "xz", "--decompress", "--stdout", "--single-stream")
		xz.Stdin = bytes.NewReader(stream)
		var out, problem bytes.Buffer
		xz.Stdout, xz.Stderr = &out, &problem
		if err := xz.Run(); err != nil {
			return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(problem.Bytes()))
		}
		return out.Bytes(), nil
	case bytes.HasPrefix(stream, []byte(zstdMagic)):
		d, err := zstd.NewReader(nil)
		if err != nil {
			return nil, err
		}
		defer d.Close()
		return d.DecodeAll(stream, nil)
	}
	return stream, nil
}

// kernelPayload returns the stream in a bzImage, without the four bytes of
// uncompressed length that the kernel's build appends.
func kernelPayload(image []byte) ([]byte, error) {
	const headerEnd = 0x250
	if len(image) < headerEnd || string(image[0x202:0x206]) != "HdrS" {
		return nil, errBzImage
	}
	sectors := cmp.Or(int(image[0x1f1]), 4)
	start := (sectors+1)*512 + int(binary.LittleEndian.Uint32(image[0x248:]))
	length := int(binary.LittleEndian.Uint32(image[0x24c:]))
	if length < 10 || start < 0 || start+length > len(image) {
		return nil, errBzImage
	}
	payload := image[start : start+length-4]
	if !bytes.HasPrefix(payload, []byte(xzMagic)) && !bytes.HasPrefix(payload, []byte(zstdMagic)) {
		return nil, errBzImage
	}
	return payload, nil
}

// buildInitrd returns an uncompressed initial RAM file system: a static busybox, our
// first process, and the modules with their dependencies in loading order.
func buildInitrd(ctx context.Context, root, release string, modules []string, init []byte) ([]byte, error) {
	order, err := moduleOrder(ctx, root, release, os.DevNull, modules) // the configuration of this host is not the guest's
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := cpio.NewWriter(&b)
	for _, dir := range []string{"bin", "lib", "dev", "proc", "sys", "root"} {
		err = errors.Join(err, w.WriteHeader(&cpio.Header{Name: dir, Mode: cpio.TypeDir | 0o755, Links: 2}))
	}
	add := func(name string, mode cpio.FileMode, content []byte) {
		err = errors.Join(err, w.WriteHeader(&cpio.Header{Name: name, Mode: cpio.TypeReg | mode, Size: int64(len(content)), Links: 1}))
		_, writeErr := w.Write(content)
		err = errors.Join(err, writeErr)
	}
	read := func(path string) []byte {
		content, readErr := rootdir.Dir(root).ReadFile(path)
		err = errors.Join(err, readErr)
		return content
	}
	add("bin/busybox", 0o755, read("bin/busybox"))
	add("init", 0o755, init)
	var names strings.Builder
	for _, path := range order {
		module, uncompressErr := uncompress(ctx, read(path)) // the first process cannot
		err = errors.Join(err, uncompressErr)
		name, _, _ := strings.Cut(filepath.Base(path), ".ko.")
		name = strings.TrimSuffix(name, ".ko") + ".ko"
		add("lib/"+name, 0o644, module)
		fmt.Fprintln(&names, name)
	}
	add("lib/order", 0o644, []byte(names.String()))
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, fmt.Errorf("write initrd: %w", err)
	}
	return b.Bytes(), nil
}

// moduleOrder returns the paths inside root of modules and their dependencies, in
// loading order. A module that is built into the kernel has no path. configuration is modprobe's.
func moduleOrder(ctx context.Context, root, release, configuration string, modules []string) ([]string, error) {
	var order []string
	seen := map[string]bool{}
	for _, m := range modules {
		// The modprobe in root may be of a foreign architecture.
		modprobe := exec.CommandContext(ctx, "modprobe", "--config", configuration, "--dirname", root, "--set-version", release, "--show-depends", m)
		modprobe.Env = append(os.Environ(), "MODPROBE_OPTIONS=") // could add a configuration
		out, err := modprobe.Output()
		if err != nil {
			return nil, fmt.Errorf("find module %s of kernel %s: %w (modprobe is in Debian's package kmod)", m, release, err)
		}
		for line := range strings.Lines(string(out)) {
			path, ok := strings.CutPrefix(line, "insmod "+root)
			if !ok && !strings.HasPrefix(line, "builtin ") {
				return nil, fmt.Errorf("find module %s of kernel %s: modprobe prints %q: want insmod or builtin", m, release, strings.TrimSpace(line))
			}
			path, _, _ = strings.Cut(strings.TrimSpace(path), " ") // options follow, also from this host's kernel command line
			if ok && !seen[path] {
				seen[path] = true
				order = append(order, path)
			}
		}
	}
	return order, nil
}
