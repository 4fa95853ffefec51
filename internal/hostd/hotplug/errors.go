package hotplug

import (
	"errors"
	"fmt"
)

// Reasons in the Err of a Reply, to be told apart with errors.Is. The others are
// *NoFreeSlotError, *PlugError and *ConnectError.
var (
	// ErrDetaching refuses an Attach while the same key's device is being taken
	// away: try again when that has ended.
	ErrDetaching = errors.New("it is being detached")
	// ErrDetached ends an Attach when a Detach of the same key comes before its end.
	ErrDetached = errors.New("detached before it was plugged")
	// ErrGuestReset ends an Attach when the guest is reset.
	ErrGuestReset = errors.New("the guest was reset")
	// ErrDeviceLost ends an Attach whose device the guest gave up at once.
	ErrDeviceLost = errors.New("the guest gave the device up at once")
	// ErrQuarantined ends the Detach of a NIC that the guest did not give up. The NIC
	// is cut off: its TAP is off the network, and the key has no attachment any more.
	// Only the slot is lost until the guest gives the device up.
	ErrQuarantined = errors.New("the guest did not give the NIC up: it is cut off and its slot quarantined")
	// ErrKept ends the Detach of a volume or memory that the guest did not give up. The
	// guest can still use it, and the key keeps it.
	ErrKept = errors.New("the guest did not give it up: end the processes that use it and detach it again")
)

// NoFreeSlotError refuses an Attach because every slot is taken.
type NoFreeSlotError struct {
	Slots       int  // all
	Unplugging  int  // may become free soon
	Quarantined int  // may become free when the guest gives them up or ends
	Foreign     int  // have devices that this machine did not plug
	Shares      bool // the slots are ports for volumes and shared memory
}

// Error returns the counts and what helps.
func (e *NoFreeSlotError) Error() string {
	slot, fix := "NIC slot", `delete a pod, have the host's operator take back a NIC that no pod uses ("unnest hostd status", "unnest hostd detach"),`
	if e.Shares {
		slot, fix = "port for volumes and shared memory", "detach a volume"
	}
	return fmt.Sprintf("no free %s of %d (%d with other devices, %d unplugging, %d quarantined): %s or start the guest with more root ports",
		slot, e.Slots, e.Foreign, e.Unplugging, e.Quarantined, fix)
}

// PlugError ends an Attach because a step of the plug failed. The steps before
// it are undone.
type PlugError struct {
	Occupant Occupant
	Step     PlugStep
	Err      error
}

// Error names slot and step.
func (e *PlugError) Error() string {
	return fmt.Sprintf("plug slot %d: %s: %v", e.Occupant.Slot, e.Step, e.Err)
}

// Unwrap returns the step's error.
func (e *PlugError) Unwrap() error { return e.Err }

// ConnectError ends an Attach because the TAP could not be connected. An
// attachment that was there before is as it was.
type ConnectError struct {
	Occupant Occupant
	Err      error
}

// Error names the slot.
func (e *ConnectError) Error() string {
	return fmt.Sprintf("connect NIC in slot %d: %v", e.Occupant.Slot, e.Err)
}

// Unwrap returns the connect's error.
func (e *ConnectError) Unwrap() error { return e.Err }
