package hotplug

import (
	"errors"
	"fmt"
)

// Reasons in the Err of a Reply, to be told apart with errors.Is. Beside them
// there are *NoFreeSlotError, *PlugError and *ConnectError.
var (
	// ErrDetaching refuses an Attach while the same key's NIC is being taken
	// away: try again when that has ended.
	ErrDetaching = errors.New("a detach of it is on its way")
	// ErrDetached ends an Attach that a Detach of the same key overtook.
	ErrDetached = errors.New("detached before it was plugged")
	// ErrGuestReset ends an Attach that a start of the guest overtook.
	ErrGuestReset = errors.New("the guest has started anew")
	// ErrDeviceLost ends an Attach whose NIC the guest gave up at once.
	ErrDeviceLost = errors.New("the guest gave the NIC up at once")
	// ErrQuarantined ends a Detach that the guest did not follow. The NIC is cut
	// off: netdev and TAP are deleted, the key has no attachment any more, only
	// the slot is lost until the guest gives the device up.
	ErrQuarantined = errors.New("the guest did not give the NIC up: it is cut off and its slot quarantined")
)

// NoFreeSlotError refuses an Attach because every slot is taken.
type NoFreeSlotError struct {
	Slots       int // all
	Unplugging  int // may become free soon
	Quarantined int // may become free when the guest gives them up or ends
}

// Error gives the counts and what helps.
func (e *NoFreeSlotError) Error() string {
	return fmt.Sprintf("no free NIC slot of %d (%d unplugging, %d quarantined): detach a NIC or start the guest with more slots",
		e.Slots, e.Unplugging, e.Quarantined)
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
	return fmt.Sprintf("plug NIC in slot %d: %s: %v", e.Occupant.Slot, e.Step, e.Err)
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
