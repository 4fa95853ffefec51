package doctor

import (
	"context"

	"unnest/internal/testbed/guest"
)

// Probes are the questions that the checks ask of a machine.
type Probes struct {
	Root     bool   // the process has user id 0
	CPUs     int    // processors it may use
	CacheDir string // where guest images are kept

	// Accel chooses the accelerator that guests get by default.
	Accel func() (guest.Choice, error)
	// ReadFile returns what a file of /proc or /sys holds.
	ReadFile func(path string) (string, error)
	// Stat returns an error unless there is a file at path.
	Stat func(path string) error
	// OpenDevice opens a device for reading and writing, and closes it.
	OpenDevice func(path string) error
	// LookPath returns the path of a program.
	LookPath func(program string) (string, error)
	// Output runs a program and returns what it writes to both its outputs.
	Output func(ctx context.Context, path string, args ...string) (string, error)
	// Dial connects to a unix socket and hangs up.
	Dial func(socket string) error
	// FreeDisk returns the free bytes of the file system that holds dir, or
	// will hold it.
	FreeDisk func(dir string) (uint64, error)
	// Namespace makes a network namespace, runs try with it and drops it.
	Namespace func(try func(Namespace) error) error
	// LoadProgram loads an eBPF program for tc that does nothing.
	LoadProgram func() error
}

// Namespace is a network namespace made to try things in.
type Namespace interface {
	// AddLink adds a link of the kind, "bridge" or "veth".
	AddLink(kind string) error
	// Masquerade adds the nftables rule that NAT needs.
	Masquerade() error
}
