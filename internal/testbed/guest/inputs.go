package guest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// snapshotFormat changes when snapshots of earlier versions must not be restored.
const snapshotFormat = "unnest snapshot 2"

// inputs returns everything that the snapshot for guests like c depends on: our format,
// QEMU and its command line, the files of the image, and this machine's processor and
// kernel. An image with the same digest can be another one, of newer packages.
func (c Config) inputs(ctx context.Context) ([]string, error) {
	version, err := qemuVersion(ctx, QEMU(c.Arch))
	if err != nil {
		return nil, err
	}
	processor, err := processor()
	if err != nil {
		return nil, err
	}
	var uname unix.Utsname
	if err := unix.Uname(&uname); err != nil {
		return nil, fmt.Errorf("read version of the kernel: %w", err)
	}
	f := c.frozen(&Snapshot{Dir: "."})
	all := []string{snapshotFormat, version, "Linux " + unix.ByteSliceToString(uname.Release[:]), processor}
	for _, path := range []string{c.Image.Kernel, c.Image.Initrd, c.Image.Root} {
		identity, err := fileIdentity(path)
		if err != nil {
			return nil, err
		}
		all = append(all, identity)
	}
	return append(all, f.arguments()...), nil
}

// versions are what QEMU binaries print, by their identity.
var versions sync.Map

// qemuVersion identifies the binary and the version that it prints.
func qemuVersion(ctx context.Context, binary string) (string, error) {
	path, err := exec.LookPath(binary)
	if err != nil {
		return "", err
	}
	identity, err := fileIdentity(path)
	if err != nil {
		return "", err
	}
	if known, ok := versions.Load(identity); ok {
		return known.(string), nil
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask QEMU for its version: %w", err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	version, _ := versions.LoadOrStore(identity, first+", "+identity)
	return version.(string), nil
}

func fileIdentity(path string) (string, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %d %d", path, info.Size(), info.ModTime().UnixNano()), nil
}

// processor returns what the kernel tells of the first processor, without its present
// frequency.
func processor() (string, error) {
	content, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(string(content), "\n\n")
	var kept []string
	for line := range strings.Lines(first) {
		key, value, _ := strings.Cut(line, ":")
		switch key = strings.TrimSpace(key); key {
		case "vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags":
			kept = append(kept, key+" "+strings.TrimSpace(value))
		}
	}
	return strings.Join(kept, "; "), nil
}
