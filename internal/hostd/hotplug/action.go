package hotplug

import (
	"fmt"
	"time"

	"unnest.io/unnest/internal/hostd/attachment"
)

// Action is something for the caller to do. String describes it in logs.
type Action = fmt.Stringer

// AddTAP creates a TAP that is connected to nothing and marked as warm. If it cannot
// be marked, it is deleted again. The TAP of an endpoint is a queue of its segment.
// It gets no owner yet: the next daemon removes it if Connect never marks it.
type AddTAP struct {
	Occupant
	TAP    string            // its name
	Key    attachment.Key    // of an endpoint
	Record attachment.Record // of an endpoint
}

// NetdevAdd creates the netdev on the TAP, in the VMM.
type NetdevAdd struct {
	Occupant
	ID  string
	TAP string
}

// DeviceAdd plugs the NIC in its slot. A slot in use is refused.
type DeviceAdd struct {
	Occupant
	ID     string
	Netdev string
	MAC    string
	Record attachment.Record // of an endpoint
}

// AddShare plugs a volume or shared memory into the occupant's port, under the key's
// ID.
type AddShare struct {
	Occupant
	Key attachment.Key
}

// Connect gives the TAP to the attachment: bridge, filter and the rest of the record.
// Marking the TAP with the attachment comes last. Connected or ConnectFailed follows.
type Connect struct {
	Attachment // with the new record

	// Change says that the attachment has been connected before, with the record
	// Was. After the Connect has succeeded, what only Was names is free.
	Change bool
	Was    attachment.Record
}

// Disconnect takes the TAP off bridge and filter and marks it as warm; an endpoint
// loses its owner. Observed disconnects every warm NIC, with an empty key: an earlier
// Connect or Disconnect may not have finished. An endpoint is disconnected as soon
// as it is to be unplugged, whether it was connected or not.
type Disconnect struct {
	Attachment // that has ended
}

// DeviceDel asks the guest to give a device up. The answer is a later event.
type DeviceDel struct{ ID string }

// NetdevDel deletes a netdev in the VMM, also under a NIC that the guest has not
// given up: that NIC then has its link down. The VMM may keep the TAP until that NIC is gone.
type NetdevDel struct{ ID string }

// CutTAP takes the TAP or the queue of a NIC off the network, with what a Connect has added. The VMM may
// still have the NIC. No frame passes any more, whatever guest and VMM do. A TAP that the VMM
// keeps stays, marked so that no state takes it over; DelTAP follows when the NIC is gone.
type CutTAP struct{ TAP string }

// DelTAP deletes a TAP that no NIC has, and what of a Connect would outlive it.
type DelTAP struct{ TAP string }

// DeleteBackend deletes what was behind a volume or shared memory whose device is gone.
type DeleteBackend struct{ Key attachment.Key }

// Adopted says that an attachment was found that this state did not make. The caller
// reserves its addresses again, and connects the TAP again if it is not as the record
// says: the daemon that made it may have died in the middle of a Connect.
type Adopted struct{ Attachment Attachment }

// Released says that an attachment has nothing on the host any more: all that
// was reserved for its key may go to others. It comes exactly once for every
// attachment that was in a slot, adopted or not, also for one that never was
// connected, and before the replies to those who wait for the end.
type Released struct {
	Key    attachment.Key
	Record attachment.Record // the attachment's, without a change that was under way
}

// StartTimer asks for UnplugTimedOut after a while. Timers need no stopping.
type StartTimer struct {
	Timer Timer
	After time.Duration
}

// Timer names one try of one unplug, or the cooldown of an empty slot after its last
// occupant.
type Timer struct {
	Occupant
	Try int // from 1; 0 is the cooldown
}

// Reply answers a request. To a Detach, no error means that the key has no device:
// the device is gone from the guest and from the host, or became warm when the guest
// was reset.
type Reply struct {
	Request    RequestID
	Key        attachment.Key
	Attachment Attachment // of a successful Attach
	Err        error      // see the package's errors
}

// Lost says that an attachment ended unasked: the guest gave the device up or
// was reset, or the TAP was deleted. Its container has no network from now on.
type Lost struct {
	Attachment Attachment
	Reset      bool // the guest was reset, which ends its containers too
}

// named writes a key with its record, if it has one.
func named(k attachment.Key, r attachment.Record) string {
	if r.IsZero() {
		return k.String()
	}
	return k.String() + " " + r.String()
}

func (a AddTAP) String() string {
	if a.Key != (attachment.Key{}) {
		return fmt.Sprintf("add TAP %s for %s", a.TAP, named(a.Key, a.Record))
	}
	return "add TAP " + a.TAP
}

func (a NetdevAdd) String() string { return fmt.Sprintf("add netdev %s on TAP %s", a.ID, a.TAP) }

func (a DeviceAdd) String() string {
	return fmt.Sprintf("add device %s on netdev %s in slot %d with MAC %s", a.ID, a.Netdev, a.Slot, a.MAC)
}

func (a AddShare) String() string { return fmt.Sprintf("add share %s in port %d", a.Key, a.Slot) }

func (a Connect) String() string {
	text := fmt.Sprintf("connect TAP %s for %s", a.TAP, named(a.Key, a.Record))
	if a.Change {
		text += fmt.Sprintf(", was %q", a.Was.String())
	}
	return text
}

func (a Disconnect) String() string { return "disconnect TAP " + a.TAP }

func (a DeviceDel) String() string { return "delete device " + a.ID }

func (a NetdevDel) String() string { return "delete netdev " + a.ID }

func (a CutTAP) String() string { return "cut TAP " + a.TAP }

func (a DelTAP) String() string { return "delete TAP " + a.TAP }

func (a DeleteBackend) String() string { return "delete backend of " + a.Key.String() }

func (a Adopted) String() string {
	return fmt.Sprintf("adopted: %s has slot %d", named(a.Attachment.Key, a.Attachment.Record), a.Attachment.Slot)
}

func (a Released) String() string { return "released: " + named(a.Key, a.Record) }

func (a StartTimer) String() string {
	return fmt.Sprintf("start timer %s try %d: %v", a.Timer.Occupant, a.Timer.Try, a.After)
}

func (a Reply) String() string {
	switch {
	case a.Err != nil:
		return fmt.Sprintf("reply to %d: %v", a.Request, a.Err)
	case a.Attachment.TAP != "":
		return fmt.Sprintf("reply to %d: %s has %s, %s", a.Request, a.Key, a.Attachment.TAP, a.Attachment.MAC)
	case a.Attachment.Slot > 0:
		return fmt.Sprintf("reply to %d: %s has port %d", a.Request, a.Key, a.Attachment.Slot)
	}
	return fmt.Sprintf("reply to %d: %s is detached", a.Request, a.Key)
}

func (a Lost) String() string {
	if a.Reset {
		return fmt.Sprintf("lost: %s in slot %d ended with a reset", a.Attachment.Key, a.Attachment.Slot)
	}
	return fmt.Sprintf("lost: %s in slot %d ended unasked", a.Attachment.Key, a.Attachment.Slot)
}
