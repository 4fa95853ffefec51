package hotplug

// Event is something that happened to one guest's NICs.
type Event interface {
	apply(*machine)
}

// RequestID names one request. The caller chooses it; the request's Reply
// brings it back, exactly once.
type RequestID uint64

// Attach asks for a NIC. A key that has one, or is getting one, gets the same.
// Else it gets the oldest warm NIC, or one plugged in a free slot.
//
// A key's several Attaches take effect in the order in which they came: each is
// answered when its note is true.
type Attach struct {
	Request RequestID
	Key     Key
	// Note goes into the alias beside the key: printable ASCII without blank. All
	// of the alias has at most 255 bytes. Empty: the attachment's note stays.
	Note string
	// Cold wants a NIC plugged anew, unless no slot is free.
	Cold bool
	// Bound wants a bound NIC, see the package. All Attaches of a key say the
	// same, and it has a note.
	Bound bool
}

// Detach asks that key's NIC be taken away. A key without NIC is no error. The
// NIC does not come into the pool.
type Detach struct {
	Request RequestID
	Key     Key
}

// PlugSucceeded ends a plug: the VMM has accepted the device.
type PlugSucceeded struct{ Occupant }

// PlugFailed ends a plug: Step failed, later steps were not tried.
type PlugFailed struct {
	Occupant
	Step      PlugStep
	Err       error
	Uncertain bool // no answer came: the step may have taken effect all the same
}

// PlugStep is a part of a plug.
type PlugStep int

// The steps of a plug, in their order.
const (
	StepTAP PlugStep = iota
	StepNetdev
	StepDevice
)

// String tells what the step does.
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
// wanted. Nobody is told how that ends but the caller, who feeds it.
type Refill struct{}

// Drain gives the pool up: every warm NIC is unplugged, and there will be no
// other, until the state is made anew. State.Draining tells when that has ended.
type Drain struct{}

// DeviceDeleted is QEMU's event DEVICE_DELETED, or that QEMU knows no such
// device. Deletions may also come unasked, when the guest gives a NIC up by
// itself: a guest in the middle of its boot takes a plug for an unplug.
type DeviceDeleted struct{ Device string }

// UnplugRefused is QEMU's event DEVICE_UNPLUG_GUEST_ERROR, or a device_del that
// QEMU refused. The guest is asked again when the timer expires.
type UnplugRefused struct {
	Device string
	Err    error
}

// UnplugTimedOut says that a timer started by StartTimer has expired.
type UnplugTimedOut struct{ Timer Timer }

// Crowded says that the caller is about to plug another device of the guest than a
// NIC, or to ask for one, in a port that is none of the slots. The guest then looks at
// the slots as well: see the package.
type Crowded struct{}

// GuestReset says that the guest starts anew, with the same devices. Its
// containers are gone, and their attachments with them: the NICs become warm,
// also beyond the pool's target; bound ones are unplugged. A VMM that resets a guest as it powers it on
// does no harm: there is no attachment then.
type GuestReset struct{}

// Observed is what is really there, seen when all actions so far had been
// performed: for state lost by a restart of the caller, a connection that was
// down, events lost, and from time to time for leftovers of deletions that
// failed.
//
// Plugs on their way are left alone. Devices and TAPs that no slot accounts for
// are taken over when they have an owner and removed when they do not. A
// foreign device in a slot quarantines that and is never touched.
//
// Take QEMU's devices from QEMU's object tree, not from query-pci: the latter
// shows the slots empty after a reset, until the firmware has numbered the
// buses.
type Observed struct {
	TAPs    []ObservedTAP    // all of the host; others than the guest's are ignored
	Devices []ObservedDevice // all in the guest's slots
}

// ObservedTAP is a TAP of the host.
type ObservedTAP struct {
	Name  string
	Owner string // its alias, as Owner writes it, or WarmOwner
	Bound bool   // it was made for a bound NIC; without an owner that is given up
}

// ObservedDevice is a device of the guest.
type ObservedDevice struct {
	ID   string
	Slot int // from 1
}
