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
	Name  string
	File  *os.File // nil with PersistentTAPs; the caller closes its own copy
	VHost *os.File // /dev/vhost-net, to let the kernel move the frames, or nil; as File
	// Poll is how long the kernel's thread waits for the next frame before it sleeps, in whole
	// microseconds; only with VHost.
	Poll time.Duration
}

// Device is a virtio NIC.
type Device struct {
	ID     string // of the device: ours begin with "nic"
	Netdev string // ID of the netdev
	TAP    string // name of the TAP under it
	Slot   int    // from 1
	MAC    string // lower case, with colons
	MTU    int    // bytes, told to the guest
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
