package vmm

import (
	"context"
	"os"
)

// Sharer is a VMM that can give its guest files and memory of the host. They use
// PCI ports of their own, never a NIC's slot. The caller chooses the IDs, and
// recognizes its own devices by them.
type Sharer interface {
	// SharePorts are the guest's ports for shares, by their numbers from 1.
	SharePorts() []SharePort
	// Shared lists the devices in those ports, whoever plugged them.
	Shared(ctx context.Context) ([]Occupied, error)
	// MappedMemory returns the size of the guest's memory in bytes if other processes
	// can map it, which AddFiles needs; otherwise 0.
	MappedMemory(ctx context.Context) (int64, error)
	// AddFiles plugs a virtio file system with the tag into a port. server is the
	// VMM's end of the connection to the file server; the caller closes its own
	// copy. A call that fails leaves nothing behind.
	AddFiles(ctx context.Context, id string, port int, tag string, server *os.File) error
	// AddMemory plugs a PCI device (ivshmem) into a port. Its BAR 2 is the memory:
	// size bytes, a power of two. A call that fails leaves nothing behind.
	AddMemory(ctx context.Context, id string, port int, size int64, memory *os.File) error
	// DeleteDevice is the method of VMM.
	DeleteDevice(ctx context.Context, id string) error
	// DeleteBackend deletes the backend of a device that is gone, if there is one.
	DeleteBackend(ctx context.Context, id string) error
	// OrphanedBackends lists the IDs of backends without a device.
	OrphanedBackends(ctx context.Context) ([]string, error)
	// PID returns the VMM's process.
	PID() (int, error)
}

// SharePort is a port for shares.
type SharePort struct {
	// Address is the PCI address of the port in the guest, as Linux writes it:
	// "0000:00:0e.1". The bus behind the port holds one device.
	Address string
}
