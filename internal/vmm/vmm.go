// Package vmm defines how the host daemon controls the hypervisor of one guest.
// Each hypervisor has a package below this one.
//
// The caller decides which NIC goes where, and makes TAPs and bridges. Nothing here
// knows pods.
package vmm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// VMM is a connection to the hypervisor of one guest. It is safe for concurrent
// use. All state is in the hypervisor, so the next connection finds it again.
//
// After an error that wraps *RefusedError the hypervisor has done nothing; after
// any other error it may have carried out the call.
type VMM interface {
	// AddNetdev gives a TAP to the hypervisor, as the netdev with the ID.
	AddNetdev(ctx context.Context, id string, t TAP) error
	// AddDevice plugs a NIC into a free slot.
	AddDevice(ctx context.Context, d Device) error
	// DeleteDevice asks the guest to release a device. The answer is an Event.
	// Asking again is not an error. If the device does not exist, the error wraps
	// ErrNotFound.
	DeleteDevice(ctx context.Context, id string) error
	// DeleteNetdev deletes a netdev, or what a failed AddNetdev has left of it,
	// even if a device uses it. A missing netdev is not an error. As long as a device
	// uses it, the hypervisor may keep the TAP, so this alone does not cut a guest off.
	DeleteNetdev(ctx context.Context, id string) error
	// Devices lists the devices in the slots, whoever plugged them.
	Devices(ctx context.Context) ([]Occupied, error)
	// OwnNICs lists the NICs on TAPs that the hypervisor has opened by name, except those
	// that AddDevice has plugged. A TAP that it got as a descriptor has no name there.
	OwnNICs(ctx context.Context) ([]NIC, error)
	// Next waits for the next event since the connection was made.
	Next(ctx context.Context) (Event, error)
	// Slots is the number of the guest's slots, which count from 1.
	Slots() int
	// PersistentTAPs reports whether the hypervisor opens a TAP by its name. Then
	// the TAP has to outlive the caller's descriptor. Otherwise the hypervisor gets
	// the descriptor, and the TAP disappears with it.
	PersistentTAPs() bool
	// Done is closed when the connection or the guest has ended. Err then says why.
	Done() <-chan struct{}
	Err() error
	Close() error
}

// TAP is the host's end of a NIC.
type TAP struct {
	Name   string
	Queues []Queue // at least one
	// Poll is how long the kernel's thread waits for the next frame before it sleeps, in whole
	// microseconds; only with VHost.
	Poll time.Duration
}

// Queue is a pair of queues of a NIC, one for each direction. The caller closes its own copies of the files.
type Queue struct {
	File  *os.File // of the TAP; nil with PersistentTAPs
	VHost *os.File // /dev/vhost-net, to let the kernel move the frames, or nil; the same for all queues of a TAP
}

// Device is a virtio NIC.
type Device struct {
	ID     string // of the device: ours begin with "nic"
	Netdev string // ID of the netdev
	TAP    string // name of the TAP under it
	Slot   int    // from 1
	MAC    string // lower case, with colons
	MTU    int    // bytes, told to the guest
	Queues int    // pairs of queues, as many as the TAP has
}

// NIC is a NIC of a guest that was not plugged by AddDevice.
type NIC struct {
	TAP string
	MAC string // as configured: the guest cannot change it
}

// Occupied is a device in a slot.
type Occupied struct {
	ID   string // as given to AddDevice, or the hypervisor's own
	Slot int
}

// Event is a message that the hypervisor sends without a request.
type Event interface{ event() }

// Events.
type (
	// Deleted says that the guest has released a device.
	Deleted struct{ ID string }
	// Refused says that the guest has refused to release a device.
	Refused struct{ ID string }
	// Reset says that the guest reboots.
	Reset struct{}
	// Lost says that events were dropped.
	Lost struct{}
)

func (Deleted) event() {}
func (Refused) event() {}
func (Reset) event()   {}
func (Lost) event()    {}

// ErrNotFound is wrapped when a device does not exist, ErrNotRunning when a dialled
// guest does not run or does not exist.
var (
	ErrNotFound   = errors.New("no such device")
	ErrNotRunning = errors.New("guest does not run")
)

// RefusedError is the hypervisor's own refusal.
type RefusedError struct{ Err error }

// Error gives the hypervisor's reason.
func (e *RefusedError) Error() string { return fmt.Sprintf("refused: %v", e.Err) }

// Unwrap returns the hypervisor's error.
func (e *RefusedError) Unwrap() error { return e.Err }

// MarkRefused wraps a hypervisor's error, which is an E, in a RefusedError.
func MarkRefused[E error](err error) error {
	if errors.As(err, new(E)) {
		return &RefusedError{Err: err}
	}
	return err
}

// ErrNoDrive is wrapped when the guest was started without a drive for credentials.
var ErrNoDrive = errors.New("the guest has no drive for credentials")

// Drive is a VMM whose guest may have a CD-ROM drive for its credentials. The host changes
// the medium whatever the guest does, and the guest cannot write it.
type Drive interface {
	// Medium returns the label of the medium in the drive, "" if the drive is empty.
	Medium(ctx context.Context) (label string, err error)
	// InsertMedium replaces the medium in the drive by an image: up to 16 letters and
	// digits name it. The caller closes its own copy of the image, which must be open for
	// reading only.
	InsertMedium(ctx context.Context, label string, image *os.File) error
	// RemoveMedium empties the drive.
	RemoveMedium(ctx context.Context) error
}

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
