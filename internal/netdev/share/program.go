package share

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// ErrNoServer is wrapped when no virtiofsd is installed.
var ErrNoServer = errors.New("virtiofsd is not installed: install the package virtiofsd, or qemu-system-common on Debian 12")

// programPaths are QEMU's own virtiofsd, up to QEMU 7.2, and its successor in Rust. If both
// are installed, the first serves, because it has locks of the host.
var programPaths = []string{"/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd"}

// Program is an installed virtiofsd.
type Program struct {
	Path string
	// HostLocks says that locks of files are locks of the host, which hold between guests. If
	// not, they are locks of the guest.
	HostLocks bool

	help string // what it says about its options
}

// FindProgram finds the installed virtiofsd, and asks it for its options.
func FindProgram() (Program, error) {
	var missing error
	for _, path := range programPaths {
		_, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing = errors.Join(missing, err)
			continue
		case err != nil:
			return Program{}, fmt.Errorf("find virtiofsd: %w", err)
		}
		ctx, cancel := context.WithTimeoutCause(context.Background(), helpLimit, fmt.Errorf("no answer for %v", helpLimit))
		defer cancel()
		help, err := exec.CommandContext(ctx, path, "--help").Output()
		if err = cmp.Or(context.Cause(ctx), err); err != nil {
			return Program{}, fmt.Errorf("ask %s for its options: %w", path, err)
		}
		return Program{Path: path, help: string(help), HostLocks: bytes.Contains(help, []byte("-o posix_lock"))}, nil
	}
	return Program{}, fmt.Errorf("%w: %w", ErrNoServer, missing)
}

// helpLimit is how long the program may take to print its options.
var helpLimit = 10 * time.Second

// arguments are those for serving a directory by a listening socket, which is descriptor 3.
//
// They keep fractions consistent. Guests do not cache names and attributes. Of QEMU's
// virtiofsd, they read data again when a file is opened or has changed. Locks are the host's: a
// program that would wait for a lock gets an error, rather than a lock that the other
// fractions do not see. The successor has no such locks, and caches names for a second unless it
// caches nothing; then guests map files only if their kernel and --allow-mmap let them.
//
// Guests cannot make device nodes.
func (p Program) arguments(dir string, files uint64) ([]string, error) {
	if strings.ContainsRune(dir, ',') { // it would end the option source
		return nil, errors.New("want a path without comma")
	}
	common := []string{"--fd=3", "--rlimit-nofile=" + strconv.FormatUint(files, 10)}
	if p.HostLocks {
		return append(common, "-f", "-o", "source="+dir, "-o", "cache=auto,timeout=0,posix_lock,flock,sandbox=namespace,modcaps=-mknod,log_level=err"), nil
	}
	arguments := append(common, "--shared-dir="+dir, "--cache=never", "--sandbox=namespace", "--modcaps=-mknod", "--log-level=error")
	if strings.Contains(p.help, "--allow-mmap") {
		arguments = append(arguments, "--allow-mmap")
	}
	return arguments, nil
}
