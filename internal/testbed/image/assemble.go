package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"unnest.io/unnest/internal/testbed/rootdir"
)

// The least size of a root file system, and its least free space, in bytes. Its file is
// sparse.
const (
	minimumSize = 4 << 30
	minimumFree = 3 << 30
)

// assemble writes the kernel, the initrd and the root image of r into dir.
func (b *Builder) assemble(ctx context.Context, r Recipe, debian string, added map[string]source, dir string) error {
	b.report("assembling the guest image")
	root := filepath.Join(dir, "root")
	// With hard links, our files replace names and leave the unpacked Debian as it is.
	if err := b.run(ctx, nil, "cp", "--archive", "--link", debian, root); err != nil {
		return err
	}
	files, err := overlayFiles()
	if err != nil {
		return err
	}
	if err := b.kernel(ctx, r, root, files["initrd:/init"], dir); err != nil {
		return err
	}
	if err := r.hypervisor(root, dir); err != nil {
		return err
	}
	delete(files, "initrd:/init")
	if err := errors.Join(addFiles(root, files), addSources(root, added)); err != nil {
		return err
	}
	image, err := rootdir.Dir(root).Entry("usr/share/unnest/images/tools.tar")
	if err != nil {
		return err
	}
	if err := writeContainerImage(ctx, image, root, r); err != nil {
		return err
	}
	if r.Whole {
		if err := b.linkWhole(ctx, root); err != nil {
			return err
		}
	}
	if err := b.ext4(ctx, root, filepath.Join(dir, "root.ext4")); err != nil {
		return err
	}
	return os.RemoveAll(root)
}

// kernel writes the uncompressed kernel and the initrd into dir.
func (b *Builder) kernel(ctx context.Context, r Recipe, root string, init []byte, dir string) error {
	release, err := kernelRelease(root)
	if err != nil {
		return err
	}
	bzImage, err := rootdir.Dir(root).ReadFile("boot/vmlinuz-" + release)
	if err != nil {
		return fmt.Errorf("read kernel: %w", err)
	}
	elf := bzImage // those of other architectures are not compressed, or decompress fast
	if r.Arch.OrAMD64() == AMD64 {
		if elf, err = uncompressKernel(ctx, bzImage); err != nil {
			return fmt.Errorf("kernel %s: %w", release, err)
		}
	}
	initrd, err := buildInitrd(ctx, root, release, r.Modules, init)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "vmlinux"), elf, 0o644),
		os.WriteFile(filepath.Join(dir, "vmlinuz"), bzImage, 0o644),
		os.WriteFile(filepath.Join(dir, "initrd"), initrd, 0o644))
}

func kernelRelease(root string) (string, error) {
	found, err := rootdir.Dir(root).Only("boot/vmlinuz-*")
	if err != nil {
		return "", fmt.Errorf("find kernel: %w", err)
	}
	return strings.TrimPrefix(filepath.Base(found), "vmlinuz-"), nil
}

// rootSize returns the size of a root file system with content bytes of files, in whole
// GiB.
func rootSize(content int64) int64 {
	const gib = 1 << 30
	return max(minimumSize, (content+minimumFree+gib-1)/gib*gib)
}

// diskUsage returns the disk space of the files below root in bytes. It counts hard
// links once.
func diskUsage(root string) (int64, error) {
	var sum int64
	seen := map[uint64]bool{}
	err := filepath.WalkDir(root, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if s := info.Sys().(*syscall.Stat_t); !seen[s.Ino] {
			seen[s.Ino] = true
			sum += s.Blocks * 512
		}
		return nil
	})
	return sum, err
}

// ext4 packs the directory root into the file path without a mount.
func (b *Builder) ext4(ctx context.Context, root, path string) error {
	content, err := diskUsage(root)
	if err != nil {
		return fmt.Errorf("create root image: %w", err)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(rootSize(content)), f.Close()); err != nil {
		return fmt.Errorf("create root image: %w", err)
	}
	return b.run(ctx, nil, slices.Concat(makeFileSystem, []string{"-d", root, path})...)
}

// makeFileSystem creates the root file system with a journal: without one, a reset guest finds
// its files damaged. The journal is small, because a guest replays it while it boots.
var makeFileSystem = []string{"mkfs.ext4", "-q", "-F", "-O", "has_journal", "-J", "size=16"}
