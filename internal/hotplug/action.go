package hotplug

import (
	"fmt"
	"time"
)

// Action is something for the caller to do. String tells what, for logs.
type Action interface {
	fmt.Stringer
	action()
}

// AddTAP creates a TAP with an alias. If the alias cannot be set, the TAP is
// deleted again.
type AddTAP struct {
	Occupant
	Name  string
	Owner string // the alias
}

// NetdevAdd creates the netdev on the TAP, in QEMU.
type NetdevAdd struct {
	Occupant
	ID  string
	TAP string
}

// DeviceAdd plugs the NIC in the slot's root port.
//
// QEMU silently accepts a second device on an occupied root port, where the
// guest never sees it, unless addr=0 is given: then it refuses. Arguments gives
// it.
type DeviceAdd struct {
	Occupant
	ID     string
	Netdev string
	Bus    string
	MAC    string
}

// Arguments are those of the QMP command device_add. The empty romfile keeps
// the network boot ROM out, which the guest would only have to load.
func (a DeviceAdd) Arguments() map[string]any {
	return map[string]any{
		"driver":  "virtio-net-pci",
		"id":      a.ID,
		"netdev":  a.Netdev,
		"bus":     a.Bus,
		"addr":    "0",
		"mac":     a.MAC,
		"romfile": "",
	}
}

// DeviceDel asks the guest to give a device up. The answer is a later event.
type DeviceDel struct{ ID string }

// NetdevDel deletes a netdev in QEMU, also under a NIC that the guest has not
// given up: that NIC then has its link down.
type NetdevDel struct{ ID string }

// DelTAP deletes a TAP.
type DelTAP struct{ Name string }

// StartTimer asks for UnplugTimedOut after a while. Timers need no stopping.
type StartTimer struct {
	Timer Timer
	After time.Duration
}

// Timer names one try of one unplug.
type Timer struct {
	Occupant
	Try int // from 1
}

// Reply answers a request. To a Detach, no error means that the NIC is gone
// from the guest and from the host.
type Reply struct {
	Request    RequestID
	Key        Key
	Attachment Attachment // of a successful Attach
	Err        error      // see the package's errors
}

// Lost says that a NIC went away unasked: the guest gave it up, or its TAP was
// deleted. Its container has no network from now on, its key no attachment.
type Lost struct{ Attachment Attachment }

func (AddTAP) action()     {}
func (NetdevAdd) action()  {}
func (DeviceAdd) action()  {}
func (DeviceDel) action()  {}
func (NetdevDel) action()  {}
func (DelTAP) action()     {}
func (StartTimer) action() {}
func (Reply) action()      {}
func (Lost) action()       {}

func (a AddTAP) String() string { return fmt.Sprintf("add TAP %s alias %s", a.Name, a.Owner) }

func (a NetdevAdd) String() string { return fmt.Sprintf("add netdev %s on TAP %s", a.ID, a.TAP) }

func (a DeviceAdd) String() string {
	return fmt.Sprintf("add device %s on netdev %s in %s with MAC %s", a.ID, a.Netdev, a.Bus, a.MAC)
}

func (a DeviceDel) String() string { return "delete device " + a.ID }

func (a NetdevDel) String() string { return "delete netdev " + a.ID }

func (a DelTAP) String() string { return "delete TAP " + a.Name }

func (a StartTimer) String() string {
	return fmt.Sprintf("start timer %s try %d: %v", a.Timer.Occupant, a.Timer.Try, a.After)
}

func (a Reply) String() string {
	switch {
	case a.Err != nil:
		return fmt.Sprintf("reply to %d: %v", a.Request, a.Err)
	case a.Attachment != Attachment{}:
		return fmt.Sprintf("reply to %d: %s has %s, %s", a.Request, a.Key, a.Attachment.TAP, a.Attachment.MAC)
	}
	return fmt.Sprintf("reply to %d: %s is detached", a.Request, a.Key)
}

func (a Lost) String() string {
	return fmt.Sprintf("lost: NIC %s of %s went away unasked", a.Attachment.TAP, a.Attachment.Key)
}
