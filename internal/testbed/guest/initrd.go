package guest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/cavaliergopher/cpio"
)

// buildInitrd returns an uncompressed initial RAM file system: a static busybox, our
// first process, and the modules with their dependencies in loading order.
func buildInitrd(ctx context.Context, root, release string, modules []string, init []byte) ([]byte, error) {
	order, err := moduleOrder(ctx, root, release, modules)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := cpio.NewWriter(&b)
	for _, dir := range []string{"bin", "lib", "dev", "proc", "root"} {
		if err := w.WriteHeader(&cpio.Header{Name: dir, Mode: cpio.TypeDir | 0o755, Links: 2}); err != nil {
			return nil, fmt.Errorf("write initrd: %w", err)
		}
	}
	add := func(name string, mode cpio.FileMode, content []byte) {
		if err == nil {
			err = w.WriteHeader(&cpio.Header{Name: name, Mode: cpio.TypeReg | mode, Size: int64(len(content)), Links: 1})
		}
		if err == nil {
			_, err = w.Write(content)
		}
	}
	busybox, err := os.ReadFile(filepath.Join(root, "bin/busybox"))
	if err != nil {
		return nil, fmt.Errorf("read busybox for initrd: %w", err)
	}
	add("bin/busybox", 0o755, busybox)
	add("init", 0o755, init)
	var names strings.Builder
	for _, path := range order {
		content, readErr := os.ReadFile(filepath.Join(root, path))
		if readErr != nil {
			return nil, fmt.Errorf("read module for initrd: %w", readErr)
		}
		add("lib/"+filepath.Base(path), 0o644, content)
		fmt.Fprintln(&names, filepath.Base(path))
	}
	add("lib/order", 0o644, []byte(names.String()))
	if err != nil {
		return nil, fmt.Errorf("write initrd: %w", err)
	}
	return b.Bytes(), w.Close()
}

// moduleOrder returns the paths inside root of modules and their dependencies, in
// loading order. A module that is built into the kernel has no path.
func moduleOrder(ctx context.Context, root, release string, modules []string) ([]string, error) {
	var order []string
	seen := map[string]bool{}
	for _, m := range modules {
		// The modprobe in root may be of a foreign architecture.
		out, err := exec.CommandContext(ctx, "modprobe", "--dirname", root, "--set-version", release, "--show-depends", m).Output()
		if err != nil {
			return nil, fmt.Errorf("find module %s of kernel %s: %w (modprobe is in Debian's package kmod)", m, release, err)
		}
		for line := range strings.Lines(string(out)) {
			path, ok := strings.CutPrefix(strings.TrimSpace(line), "insmod "+root)
			if ok && !seen[path] {
				seen[path] = true
				order = append(order, strings.TrimSpace(path))
			}
		}
	}
	return order, nil
}
