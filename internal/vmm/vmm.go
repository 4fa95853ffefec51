// Package vmm is how the host daemon reaches the hypervisor of one guest: one
// interface, and a package for each hypervisor below this one.
//
// Which NIC goes where is decided by package hotplug; TAPs and bridges are the
// daemon's. Nothing here knows of pods.
package vmm

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// VMM is a connection to the hypervisor of one guest. It may be used from
// several goroutines. What it does is found again by the next connection: nothing
// is kept but in the hypervisor.
//
// Every method's context bounds it. An error that wraps *RefusedError says that
// the hypervisor has answered and done nothing; after any other error it may or
// may not have done it.
type VMM interface {
	// AddNetdev gives the guest's side of a TAP to the hypervisor, as the netdev
	// of the given ID.
	AddNetdev(ctx context.Context, id string, t TAP) error
	// AddDevice plugs a NIC into a slot. A slot in use is refused.
	AddDevice(ctx context.Context, d Device) error
	// DeleteDevice asks the guest to give a device up; the answer is an Event.
	// A device that was asked for before is no error; for one that is not there
	// the error wraps ErrNotFound.
	DeleteDevice(ctx context.Context, id string) error
	// DeleteNetdev deletes a netdev, or what a failed AddNetdev has left of it,
	// also under a device. That there is none is no error.
	DeleteNetdev(ctx context.Context, id string) error
	// Devices lists what is in the slots, ours or not.
	Devices(ctx context.Context) ([]Occupied, error)
	// Next returns the next event since the connection was made. It fails when
	// the connection or ctx ends.
	Next(ctx context.Context) (Event, error)
	// Slots is how many slots the guest has, numbered from 1.
	Slots() int
	// PersistentTAPs reports whether the hypervisor opens a TAP by its name, so
	// that it has to outlive the descriptor by which it was made. Else it gets
	// the descriptor, and the TAP goes with it.
	PersistentTAPs() bool
	// Done is closed when the connection has ended, or the guest has; Err then
	// says why.
	Done() <-chan struct{}
	Err() error
	Close() error
}

// TAP is the host's end of a NIC.
type TAP struct {
	Name  string
	File  *os.File // nil with PersistentTAPs; the caller closes its own
	VHost bool     // let the kernel move the frames
}

// Device is a virtio NIC.
type Device struct {
	ID     string // of the device: ours begin with "nic"
	Netdev string // ID of the netdev
	TAP    string // name of the TAP under it
	Slot   int    // from 1
	MAC    string // six pairs of lower-case hex digits, with colons
	MTU    int    // bytes, told to the guest
}

// Occupied is a device in a slot.
type Occupied struct {
	ID   string // as given to AddDevice, or the hypervisor's own
	Slot int
}

// Event is what the hypervisor tells unasked.
type Event interface{ event() }

// Events.
type (
	// Deleted says that the guest has given a device up.
	Deleted struct{ ID string }
	// Refused says that the guest has refused to.
	Refused struct{ ID string }
	// Reset says that the guest starts anew.
	Reset struct{}
	// Lost says that events were dropped.
	Lost struct{}
)

func (Deleted) event() {}
func (Refused) event() {}
func (Reset) event()   {}
func (Lost) event()    {}

// ErrNotFound is wrapped when there is no such device, ErrNotRunning by the dial of
// a hypervisor that says that there is no such guest, or no hypervisor at all.
var (
	ErrNotFound   = errors.New("no such device")
	ErrNotRunning = errors.New("the guest does not run")
)

// RefusedError is the hypervisor's own refusal.
type RefusedError struct{ Err error }

// Error gives the hypervisor's words.
func (e *RefusedError) Error() string { return fmt.Sprintf("refused: %v", e.Err) }

// Unwrap returns the hypervisor's error.
func (e *RefusedError) Unwrap() error { return e.Err }
