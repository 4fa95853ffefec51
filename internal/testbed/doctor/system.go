package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"unnest/internal/testbed/guest"
)

// probeTimeout limits each command and each connection of a probe.
const probeTimeout = 10 * time.Second

// System returns the probes of this machine. cacheDir is the directory of guest images.
func System(cacheDir string) Probes {
	return Probes{
		Root:        os.Geteuid() == 0,
		CPUs:        runtime.NumCPU(),
		CacheDir:    cacheDir,
		Accel:       func() (guest.Choice, error) { return guest.ChooseAccel(guest.AccelAuto) },
		ReadFile:    func(path string) (string, error) { b, err := os.ReadFile(path); return string(b), err },
		Stat:        func(path string) error { _, err := os.Stat(path); return err },
		OpenDevice:  openDevice,
		LookPath:    exec.LookPath,
		Output:      output,
		Dial:        dial,
		FreeDisk:    freeDisk,
		Namespace:   withNamespace,
		LoadProgram: loadProgram,
	}
}

func openDevice(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

func output(ctx context.Context, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second // for children that keep the pipe open
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func dial(socket string) error {
	conn, err := net.DialTimeout("unix", socket, probeTimeout)
	if err != nil {
		return err
	}
	return conn.Close()
}

// freeDisk starts at dir and goes up to the first directory that exists.
func freeDisk(dir string) (uint64, error) {
	for {
		var fs unix.Statfs_t
		err := unix.Statfs(dir, &fs)
		if err == nil {
			return fs.Bavail * uint64(fs.Frsize), nil
		}
		parent := filepath.Dir(dir)
		if !errors.Is(err, unix.ENOENT) || parent == dir {
			return 0, fmt.Errorf("find free space of %s: %w", dir, err)
		}
		dir = parent
	}
}
