package guest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Image is a guest image on disk. Guests share it and never write to it.
type Image struct {
	Arch       Arch   // empty: AMD64
	Digest     string // of its recipe
	Kernel     string // path of the kernel that QEMU enters: on AMD64 the ELF kernel
	Compressed string // path of the same kernel as Debian ships it
	Initrd     string
	Root       string // path of a raw ext4 image
}

// The least size of a root file system, and its least free space, in bytes. Its file is
// sparse.
const (
	minimumSize = 4 << 30
	minimumFree = 3 << 30
)

// rootSize returns the size of a root file system with content bytes of files, in whole
// GiB.
func rootSize(content int64) int64 {
	const gib = 1 << 30
	return max(minimumSize, (content+minimumFree+gib-1)/gib*gib)
}

// Builder makes guest images and keeps them in Cache.
type Builder struct {
	Cache    string            // directory of the images
	Files    map[string]string // executables to add: path in the image -> file here
	Progress func(step string) // called with each step; may be nil
}

// Build returns the image of r, and makes it first if it is not in the cache. If
// several processes want the same image, one makes it and the others wait. A build
// removes what failed or interrupted builds left, and images that were not used for a
// month.
func (b *Builder) Build(ctx context.Context, r Recipe) (Image, error) {
	if err := r.Arch.check(); err != nil {
		return Image{}, err
	}
	files, err := b.readFiles(r.Arch)
	if err != nil {
		return Image{}, err
	}
	digest, err := r.Digest(files)
	if err != nil {
		return Image{}, err
	}
	dir := filepath.Join(b.Cache, "image-"+digest)
	file := func(name string) string { return filepath.Join(dir, name) }
	image := Image{r.Arch, digest, file("vmlinux"), file("vmlinuz"), file("initrd"), file("root.ext4")}
	if cached(dir) {
		return image, nil
	}
	unlock, err := b.lock(ctx)
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	if cached(dir) {
		return image, nil
	}
	root, err := b.debianRoot(ctx, r)
	if err != nil {
		return Image{}, err
	}
	if err := b.removeStale(); err != nil {
		return Image{}, err
	}
	err = b.whole(dir, func(tmp string) error { return b.assemble(ctx, r, root, files, tmp) })
	return image, err
}

func (b *Builder) report(format string, args ...any) {
	if b.Progress != nil {
		b.Progress(fmt.Sprintf(format, args...))
	}
}

// readFiles reads the files to add. Those in ELF format must be of the guest's
// architecture.
func (b *Builder) readFiles(arch Arch) (map[string][]byte, error) {
	files := map[string][]byte{}
	for target, path := range b.Files {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read file for the guest image: %w: run `make build`", err)
		}
		if err := arch.checkBinary(path, content); err != nil {
			return nil, err
		}
		files[target] = content
	}
	return files, nil
}

// lock locks the cache for this process.
func (b *Builder) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(b.Cache, 0o755); err != nil {
		return nil, fmt.Errorf("create image cache: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(b.Cache, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock image cache: %w", err)
	}
	for reported := false; ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock image cache %s: %w", b.Cache, err), f.Close())
		}
		if !reported {
			b.report("waiting for another unnest that builds an image in %s", b.Cache)
			reported = true
		}
		if err := sleep(ctx, pollInterval); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
}

// whole creates the directory path with the content that fill makes, completely or not
// at all.
func (b *Builder) whole(path string, fill func(tmp string) error) error {
	tmp := path + ".part"
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("remove unfinished %s: %w", tmp, err)
	}
	err := os.Mkdir(tmp, 0o755)
	if err == nil {
		err = fill(tmp)
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(tmp))
	}
	return nil
}

// Root returns the directory with the unpacked Debian packages of a recipe, without the
// builder's files. It is shared: do not write to it.
func (b *Builder) Root(ctx context.Context, r Recipe) (string, error) {
	unlock, err := b.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	return b.debianRoot(ctx, r)
}

// debianRoot is Root with the cache locked.
func (b *Builder) debianRoot(ctx context.Context, r Recipe) (string, error) {
	dir := filepath.Join(b.Cache, "debian-"+r.rootDigest())
	root := filepath.Join(dir, "root")
	if cached(dir) {
		return root, nil
	}
	b.report("unpacking Debian %s for %s and %d packages (takes minutes, once)", r.Suite, r.Arch.or(), len(r.Packages))
	return root, b.whole(dir, func(tmp string) error {
		target := filepath.Join(tmp, "root")
		if r.foreign() {
			return b.extract(ctx, r, target)
		}
		return b.mmdebstrap(ctx, r, target, "--variant=minbase")
	})
}

func (b *Builder) mmdebstrap(ctx context.Context, r Recipe, target string, options ...string) error {
	args := append(options, "--mode=root", "--architectures="+string(r.Arch.or()), "--include="+strings.Join(r.Packages, ","),
		"--aptopt=Acquire::Languages \"none\"", "--aptopt=Acquire::Retries \"3\"")
	for _, path := range r.Excluded {
		args = append(args, "--dpkgopt=path-exclude="+path)
	}
	// A Java runtime and PostgreSQL make links in directories of manuals, which may be
	// excluded.
	args = append(args, `--setup-hook=mkdir -p "$1/usr/share/man/man1" "$1/usr/share/man/man7"`)
	return b.run(ctx, []string{"INITRD=No", "DEBIAN_FRONTEND=noninteractive"}, // INITRD=No: the guest has its own initrd
		append(append([]string{"mmdebstrap"}, args...), r.Suite, target)...)
}

// run runs a command in a process namespace of its own, so that the end of ctx kills
// everything that it started, also processes that left its session, as those of dpkg
// do. The error quotes the cause from the output.
func (b *Builder) run(ctx context.Context, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"--pid", "--fork", "--mount-proc", "--kill-child"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true} // Ctrl-C at the terminal must not reach it
	cmd.WaitDelay = stopGrace
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", args[0], context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("run %s: %w: %s", args[0], err, causeOf(string(out)))
	}
	return nil
}

// assemble writes the kernel, the initrd and the root image of r into dir.
func (b *Builder) assemble(ctx context.Context, r Recipe, debian string, added map[string][]byte, dir string) error {
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
	delete(files, "initrd:/init")
	maps.Copy(files, added)
	if err := addFiles(root, files); err != nil {
		return err
	}
	images := filepath.Join(root, "usr/share/unnest/images")
	if err := os.MkdirAll(images, 0o755); err != nil {
		return err
	}
	if err := writeContainerImage(ctx, filepath.Join(images, "tools.tar"), root, r); err != nil {
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
	bzImage, err := os.ReadFile(filepath.Join(root, "boot/vmlinuz-"+release))
	if err != nil {
		return fmt.Errorf("read kernel: %w", err)
	}
	elf := bzImage // those of other architectures are not compressed, or decompress fast
	if r.Arch.or() == AMD64 {
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
	found, err := filepath.Glob(filepath.Join(root, "boot/vmlinuz-*"))
	if err != nil || len(found) != 1 {
		return "", fmt.Errorf("find kernel in %s: want one vmlinuz, found %d", root, len(found))
	}
	return strings.TrimPrefix(filepath.Base(found[0]), "vmlinuz-"), nil
}

// addFiles writes executable files into root. It replaces existing files and links
// without changing what they are linked to.
func addFiles(root string, files map[string][]byte) error {
	for path, content := range files {
		target := filepath.Join(root, path)
		err := os.MkdirAll(filepath.Dir(target), 0o755)
		if err == nil {
			err = os.Remove(target)
		}
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			err = os.WriteFile(target, content, 0o755)
		}
		if err != nil {
			return fmt.Errorf("add %s to the guest image: %w", path, err)
		}
	}
	return nil
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
	// No journal: the disk of a guest is a snapshot that is discarded.
	return b.run(ctx, nil, "mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-d", root, path)
}
