package hotplug

// Event is something that happened to one guest's NICs.
type Event interface {
	apply(*machine)
}

// RequestID names one request. The caller chooses it; the request's Reply
// brings it back, exactly once.
type RequestID uint64

// Attach asks for a NIC. A key that has one, or is getting one, gets the same.
type Attach struct {
	Request RequestID
	Key     Key
}

// Detach asks that key's NIC be taken away. A key without NIC is no error.
type Detach struct {
	Request RequestID
	Key     Key
}

// PlugSucceeded ends a plug: QEMU has accepted the device.
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

// GuestReset says that the guest starts anew, with the same devices.
type GuestReset struct{}

// GuestGone says that QEMU has ended, and its devices with it. Until the next
// Observed every Attach is refused.
type GuestGone struct{}

// Observed is what is really there, seen when all actions so far had been
// performed: for state lost by a restart of the caller, a connection that was
// down, events lost, and from time to time for leftovers of deletions that
// failed.
//
// Plugs on their way are left alone. Devices and TAPs that no slot accounts for
// are taken over when they have an owner and removed when they do not. A
// foreign device on a port quarantines the slot and is never touched.
//
// Take the devices from QEMU's object tree, not from query-pci: the latter
// shows the ports empty after a reset, until the firmware has numbered the
// buses.
type Observed struct {
	TAPs    []ObservedTAP    // all of the host; others than the guest's are ignored
	Devices []ObservedDevice // all of the guest; those on other buses are ignored
}

// ObservedTAP is a TAP of the host.
type ObservedTAP struct {
	Name  string
	Owner string // its alias, as Owner writes it
}

// ObservedDevice is a device of the guest.
type ObservedDevice struct {
	ID  string
	Bus string // the bus that it is plugged in: "rp3"
}
