package hotplug

import "unnest.io/unnest/internal/hostd/attachment"

// Event is something that happened to the devices of one guest.
type Event interface {
	apply(*machine)
}

// RequestID names one request. The caller chooses it; the request's only Reply
// returns it.
type RequestID uint64

// Attach asks for a device. A key that has one, or is getting one, gets the same.
// Otherwise a NIC is the oldest warm one, or one plugged into a free slot; any other
// kind is plugged, and waits for a slot if one will become free.
//
// Several Attaches of a key take effect in the order in which they came: each is
// answered when its record is in effect.
type Attach struct {
	Request RequestID
	Key     attachment.Key
	// Record is how to set the attachment up. Zero: its present record stays. All
	// Attaches of an endpoint have the same record, which is not zero.
	Record attachment.Record
	// Cold asks for a NIC that is plugged now, unless no slot is free.
	Cold bool
}

// Detach asks that key's device be taken away. A key without device is not an error.
// The NIC does not enter the pool.
type Detach struct {
	Request RequestID
	Key     attachment.Key
}

// PlugSucceeded ends a plug: the VMM has accepted the device.
type PlugSucceeded struct{ Occupant }

// PlugFailed ends a plug: Step failed, later steps were not tried.
type PlugFailed struct {
	Occupant
	Step      PlugStep
	Err       error
	Uncertain bool // the VMM did not answer: the step may have taken effect
}

// PlugStep is a part of a plug.
type PlugStep int

// The steps of a plug, in their order. A share has StepDevice only.
const (
	StepTAP PlugStep = iota
	StepNetdev
	StepDevice
)

// String says what the step does.
func (s PlugStep) String() string {
	return [...]string{"add TAP", "add netdev", "add device"}[s]
}

// Connected ends a Connect.
type Connected struct{ Occupant }

// ConnectFailed ends a Connect.
type ConnectFailed struct {
	Occupant
	Err error
}

// Refill begins to plug one NIC for the pool, if State.Deficit says that one is
// wanted. No Reply follows.
type Refill struct{}

// Drain empties the pool: every warm NIC is unplugged, and no other is plugged. It
// lasts as long as the state. State.Draining says when no warm NIC is left.
type Drain struct{}

// DeviceDeleted is QEMU's event DEVICE_DELETED, or QEMU's answer that it has no such
// device. A deletion may also come unasked: a guest in the middle of its boot takes
// a plug for an unplug.
type DeviceDeleted struct{ Device string }

// UnplugRefused is QEMU's event DEVICE_UNPLUG_GUEST_ERROR, or a device_del that
// QEMU refused. The guest is asked again when the timer expires.
type UnplugRefused struct {
	Device string
	Err    error
}

// UnplugTimedOut says that a timer started by StartTimer has expired.
type UnplugTimedOut struct{ Timer Timer }

// Rescan says that the caller is about to plug a device into a port that is not one of
// the slots, or to ask the guest for such a device. The guest then scans the slots as
// well: see the package comment.
type Rescan struct{}

// GuestReset says that the guest was reset and has the same devices. Its containers
// are gone. So the attachments of NICs end: the NICs become warm, also beyond the
// pool's target, and endpoints are unplugged. Volumes and shared memory stay: a Detach
// follows for each that ends with the guest's boot. A VMM
// that resets a guest when it powers it on does no harm: there is no attachment then.
type GuestReset struct{}

// Observed is what is really there after all actions so far have been performed. It
// repairs a state that was lost by a restart of the caller or a broken connection,
// events that were lost, and deletions that failed.
//
// Plugs under way are left alone. Devices and TAPs that no slot accounts for
// are taken over when they have an owner and removed when they do not. A
// foreign device keeps its slot from being used and is never touched.
//
// Read QEMU's devices from QEMU's object tree, not by query-pci: after a reset
// query-pci shows empty slots until the firmware has numbered the buses.
type Observed struct {
	TAPs    []ObservedTAP    // all of the host; those of other guests are ignored
	Devices []ObservedDevice // all in the guest's slots
}

// ObservedTAP is a TAP of the host, or the queue of an endpoint.
type ObservedTAP struct {
	Name string
	Warm bool // the TAP is marked as warm
	// Key and Record are the attachment that the TAP is marked with. Without Key.Owner
	// it has none; the kind tells an endpoint nevertheless.
	Key    attachment.Key
	Record attachment.Record
}

// ObservedDevice is a device of the guest.
type ObservedDevice struct {
	ID   string
	Slot int            // from 1
	Key  attachment.Key // of a volume or memory
}
