package doctor

import (
	"context"
	"net"
	"os"
	"os/exec"
	"runtime"
	"time"

	"unnest.io/unnest/internal/netdev/share"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/image"
)

// Probes are the questions that checks ask about a machine.
type Probes struct {
	Root     bool   // the process has user id 0
	Arch     string // as Go names it
	CPUs     int    // processors it may use
	CacheDir string // where guest images are kept

	// Accel chooses the default accelerator of guests.
	Accel func() (guest.Choice, error)
	// ReadFile returns the content of a file of /proc or /sys.
	ReadFile func(path string) (string, error)
	// Stat returns an error unless the file at path exists.
	Stat func(path string) error
	// OpenDevice opens a device for reading and writing, and closes it.
	OpenDevice func(path string) error
	// LookPath returns the path of a binary.
	LookPath func(binary string) (string, error)
	// Output runs a binary and returns its standard output and standard error.
	Output func(ctx context.Context, path string, args ...string) (string, error)
	// Dial connects to a unix socket and closes the connection.
	Dial func(socket string) error
	// FreeDisk returns the free bytes of the file system that holds dir, or will hold it.
	FreeDisk func(dir string) (uint64, error)
	// HasImage reports whether CacheDir has a guest image.
	HasImage func() bool
	// Namespace makes a network namespace, calls try with it and removes it.
	Namespace func(try func(Namespace) error) error
	// VolumeServer finds the program that serves volumes.
	VolumeServer func() (share.Program, error)
	// LoadProgram loads an eBPF program for tc that does nothing.
	LoadProgram func() error
}

// Namespace is a temporary network namespace.
type Namespace interface {
	// AddLink adds a link of the kind, "bridge" or "veth".
	AddLink(kind string) error
	// Masquerade adds an nftables rule as NAT needs it.
	Masquerade() error
}

// probeTimeout limits each command and each connection of a probe.
const probeTimeout = 10 * time.Second

// System returns the probes of this machine. cacheDir is the directory of guest images.
func System(cacheDir string) Probes {
	return Probes{
		Root:        os.Geteuid() == 0,
		Arch:        runtime.GOARCH,
		CPUs:        runtime.NumCPU(),
		CacheDir:    cacheDir,
		Accel:       func() (guest.Choice, error) { return guest.ChooseAccel(guest.AccelAuto) },
		ReadFile:    func(path string) (string, error) { b, err := os.ReadFile(path); return string(b), err },
		Stat:        func(path string) error { _, err := os.Stat(path); return err },
		OpenDevice:  openDevice,
		LookPath:    exec.LookPath,
		Output:      output,
		Dial:        dial,
		FreeDisk:    image.FreeDisk,
		HasImage:    func() bool { return image.Cached(cacheDir) },
		Namespace:   withNamespace,
		LoadProgram: loadProgram,

		VolumeServer: share.FindProgram,
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
