// Package image makes the images of guests, for three architectures, and keeps them in a cache,
// which also has the snapshots of guests.
//
// It knows nothing about how a guest runs.
package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/testbed/place"
)

// Image is a guest image on disk. Guests share it and never write to it.
type Image struct {
	Arch       Arch   // empty: AMD64
	Digest     string // of its recipe
	Kernel     string // path of the kernel that QEMU enters: on AMD64 the ELF kernel
	Compressed string // path of the same kernel as Debian ships it
	Initrd     string
	Root       string // path of a raw ext4 image
	Hypervisor string `json:",omitempty"` // Xen, which QEMU enters; empty: QEMU enters Kernel
}

// Builder makes guest images and keeps them in Cache.
type Builder struct {
	Cache    string            // directory of the images
	Files    map[string]string // executables to add: path in the image -> file here
	Contents map[string][]byte // files to add, also in place of ours: path in the image -> content
	Progress func(step string) // called with each step; may be nil
}

// Build returns the image of r, and makes it first if it is not in the cache. If
// several processes want the same image, one makes it and the others wait. A build
// removes what failed or interrupted builds left, and what the cache has too much: see
// Prune.
func (b *Builder) Build(ctx context.Context, r Recipe) (Image, error) {
	if err := r.Arch.Check(); err != nil {
		return Image{}, err
	}
	files, err := b.sources(r.Arch)
	if err != nil {
		return Image{}, err
	}
	digest, err := r.Digest(sums(files))
	if err != nil {
		return Image{}, err
	}
	dir := filepath.Join(b.Cache, imagePrefix+digest)
	file := func(name string) string { return filepath.Join(dir, name) }
	image := Image{Arch: r.Arch, Digest: digest, Kernel: file("vmlinux"), Compressed: file("vmlinuz"), Initrd: file("initrd"), Root: file("root.ext4")}
	if r.xen() {
		image.Hypervisor = file(hypervisorFile)
	}
	if MarkUsed(dir) {
		return image, nil
	}
	unlock, err := b.lock(ctx, imageLock)
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	if MarkUsed(dir) {
		return image, nil
	}
	root, err := b.debianRoot(ctx, r)
	if err != nil {
		return Image{}, err
	}
	if err := b.prune(ctx, buildPrefixes...); err != nil {
		return Image{}, err
	}
	err = b.whole(dir, func(tmp string) error { return b.checkDisk(b.assemble(ctx, r, root, files, tmp)) })
	return image, err
}

func (b *Builder) report(format string, args ...any) {
	if b.Progress != nil {
		b.Progress(fmt.Sprintf(format, args...))
	}
}

// Root returns the directory with the unpacked Debian packages of a recipe, without the
// builder's files. It is shared: do not write to it.
func (b *Builder) Root(ctx context.Context, r Recipe) (string, error) {
	unlock, err := b.lock(ctx, imageLock)
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
	if MarkUsed(dir) {
		return root, nil
	}
	b.report("unpacking Debian %s for %s and %d packages (takes minutes, once)", r.Suite, r.Arch.OrAMD64(), len(r.Packages))
	return root, b.whole(dir, func(tmp string) error {
		target := filepath.Join(tmp, "root")
		if r.Arch.OrAMD64() != Arch(runtime.GOARCH) { // the image's binaries do not run here
			return b.checkDisk(b.extract(ctx, r, target))
		}
		return b.checkDisk(b.mmdebstrap(ctx, r, target, "--variant=minbase"))
	})
}

func (b *Builder) mmdebstrap(ctx context.Context, r Recipe, target string, options ...string) error {
	args := append(options, "--mode=root", "--architectures="+string(r.Arch.OrAMD64()), "--include="+strings.Join(r.Packages, ","),
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

// outputGrace is how long a killed command may keep its output open.
const outputGrace = 3 * time.Second

// run runs a command in a process namespace of its own, so that the end of ctx, and that of this process, kills
// everything that it started, also processes that left its session, as those of dpkg
// do. The output goes to a log in the cache, which stays if the command fails. The error
// quotes the cause from it and names it.
func (b *Builder) run(ctx context.Context, env []string, args ...string) error {
	log, err := os.Create(filepath.Join(b.Cache, args[0]+".log"))
	if err != nil {
		return fmt.Errorf("create log of %s: %w", args[0], err)
	}
	cmd := exec.CommandContext(ctx, "unshare", append([]string{"--pid", "--fork", "--mount-proc", "--kill-child"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	runtime.LockOSThread() // Pdeathsig refers to the thread
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL} // Ctrl-C at the terminal must not reach it
	cmd.WaitDelay = outputGrace
	cmd.Stdout, cmd.Stderr = log, log
	err = cmd.Run()
	_ = log.Close() // on a full disk the command fails, too
	if ctx.Err() != nil {
		return errors.Join(fmt.Errorf("%s: %w", args[0], context.Cause(ctx)), os.Remove(log.Name()))
	}
	if err != nil {
		out, _ := os.ReadFile(log.Name())
		return fmt.Errorf("run %s: %w: %s; see %s", args[0], err, causeOf(string(out)), log.Name())
	}
	return os.Remove(log.Name())
}

// packageError matches dpkg's error about a package that it could not install, and the
// last line of the package's script before it.
var packageError = regexp.MustCompile(`(?m)^.*\n(?:dpkg: error .*)$`)

// causeOf returns the cause of a failure from the output of a command. apt ends with a
// quote of its own command line, so the cause is dpkg's error; of other commands it is
// the last lines.
func causeOf(s string) string {
	if found := packageError.FindString(s); found != "" {
		return place.LastLines(found, 2)
	}
	return place.LastLines(s, 3)
}
