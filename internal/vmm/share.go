package vmm

import (
	"context"
	"os"
)

// Sharer is a VMM that can give its guest files and memory of the host. They go
// into ports of their own, so that no NIC's slot is touched. IDs are the caller's,
// which tells its own from others'.
type Sharer interface {
	// SharePorts are the guest's ports for what is shared, by their numbers from 1.
	SharePorts() []SharePort
	// Shared lists what is in those ports, ours or not.
	Shared(ctx context.Context) ([]Occupied, error)
	// MapsMemory reports whether another process can map the guest's memory, which
	// AddFiles needs.
	MapsMemory(ctx context.Context) (bool, error)
	// AddFiles plugs a virtio file system of the tag into a port. server is the
	// VMM's end of the connection to who serves the files; the caller closes its own.
	// A step that fails leaves nothing.
	AddFiles(ctx context.Context, id string, port int, tag string, server *os.File) error
	// AddMemory plugs a PCI device (ivshmem) into a port, whose BAR 2 is the memory:
	// size bytes, a power of two. A step that fails leaves nothing.
	AddMemory(ctx context.Context, id string, port int, size int64, memory *os.File) error
	// DeleteDevice is that of VMM.
	DeleteDevice(ctx context.Context, id string) error
	// DeleteBackend deletes what was behind a device that is gone. That there is nothing
	// is no error.
	DeleteBackend(ctx context.Context, id string) error
	// OrphanedBackends are the IDs of what DeleteBackend would delete: behind no device.
	OrphanedBackends(ctx context.Context) ([]string, error)
	// PID is the VMM's process.
	PID() (int, error)
}

// SharePort is a port for what is shared.
type SharePort struct {
	// Address is where the guest finds the port, as its kernel writes it:
	// "0000:00:0e.1". The device in it is the only one on the bus behind it.
	Address string
}
