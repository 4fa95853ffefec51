package doctor

import (
	"context"

	"unnest/internal/testbed/guest"
)

// Probes are the questions that checks ask about a machine.
type Probes struct {
	Root     bool   // the process has user id 0
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
	// Namespace makes a network namespace, calls try with it and removes it.
	Namespace func(try func(Namespace) error) error
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
