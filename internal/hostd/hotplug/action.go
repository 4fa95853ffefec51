package hotplug

import (
	"fmt"
	"strings"
	"time"
)

// Action is something for the caller to do. String tells what, for logs.
type Action interface {
	fmt.Stringer
	action()
}

// AddTAP creates a TAP, not connected to anything, with an alias. If the alias
// cannot be set, the TAP is deleted again. What serves as the TAP of a bound NIC is
// made for the key and the note, but has no alias yet: it is given up if that
// never comes.
type AddTAP struct {
	Occupant
	Name  string
	Owner string // the alias: WarmOwner; "" of a bound NIC

	// Of a bound NIC alone.
	Bound bool
	Key   Key
	Note  string
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
}

// Connect makes the TAP the attachment's: bridge, filter and what else the note
// says, and the alias last. Its end is Connected or ConnectFailed.
type Connect struct {
	Attachment        // with the note that is to be true
	Owner      string // the alias

	// Change says that the attachment has been connected before, with the note
	// Was. Once the Connect has succeeded, what only Was says is free.
	Change bool
	Was    string
}

// Disconnect makes the TAP nobody's: it takes it off bridge and filter and
// writes the alias. Observed calls for one of every warm NIC, with an empty key: an
// earlier Connect or Disconnect may not have come to its end. A bound NIC is
// disconnected as soon as it is to be unplugged, whether it was connected or not.
type Disconnect struct {
	Attachment        // that has ended
	Owner      string // the alias: WarmOwner; "" of a bound NIC
}

// DeviceDel asks the guest to give a device up. The answer is a later event.
type DeviceDel struct{ ID string }

// NetdevDel deletes a netdev in the VMM, also under a NIC that the guest has not
// given up: that NIC then has its link down.
type NetdevDel struct{ ID string }

// DelTAP deletes a TAP, and what of a Connect would outlive it.
type DelTAP struct{ Name string }

// Adopted says that an attachment was found that this state did not make, with
// the key and the note of its TAP's alias. What is reserved for it is reserved
// anew, and the TAP connected anew if it is not as the note says: the caller that
// made it may have come to its end in the middle of a Connect.
type Adopted struct{ Attachment Attachment }

// Released says that an attachment has nothing on the host any more: all that
// was reserved for its key may go to others. It comes exactly once for every
// attachment that was in a slot, adopted or not, also for one that never was
// connected, and before the answers to those who wait for the end.
type Released struct {
	Key  Key
	Note string // the attachment's; a change of it that was on its way has not come to be
}

// StartTimer asks for UnplugTimedOut after a while. Timers need no stopping.
type StartTimer struct {
	Timer Timer
	After time.Duration
}

// Timer names one try of one unplug, or the rest of an empty slot after its last
// occupant.
type Timer struct {
	Occupant
	Try int // from 1; 0 is the rest
}

// Reply answers a request. To a Detach, no error means that the key has no NIC:
// it is gone from the guest and from the host, or became warm as the guest
// started anew.
type Reply struct {
	Request    RequestID
	Key        Key
	Attachment Attachment // of a successful Attach
	Err        error      // see the package's errors
}

// Lost says that an attachment ended unasked: the guest gave the NIC up or
// started anew, or the TAP was deleted. Its container has no network from now on,
// its key no attachment.
type Lost struct{ Attachment Attachment }

func (AddTAP) action()     {}
func (NetdevAdd) action()  {}
func (DeviceAdd) action()  {}
func (Connect) action()    {}
func (Disconnect) action() {}
func (DeviceDel) action()  {}
func (NetdevDel) action()  {}
func (DelTAP) action()     {}
func (Adopted) action()    {}
func (Released) action()   {}
func (StartTimer) action() {}
func (Reply) action()      {}
func (Lost) action()       {}

func (a AddTAP) String() string {
	if a.Bound {
		return fmt.Sprintf("add TAP %s bound to %s, note %q", a.Name, a.Key, a.Note)
	}
	return fmt.Sprintf("add TAP %s alias %s", a.Name, a.Owner)
}

func (a NetdevAdd) String() string { return fmt.Sprintf("add netdev %s on TAP %s", a.ID, a.TAP) }

func (a DeviceAdd) String() string {
	return fmt.Sprintf("add device %s on netdev %s in slot %d with MAC %s", a.ID, a.Netdev, a.Slot, a.MAC)
}

func (a Connect) String() string {
	if a.Change {
		return fmt.Sprintf("connect TAP %s alias %s, note was %q", a.TAP, a.Owner, a.Was)
	}
	return fmt.Sprintf("connect TAP %s alias %s", a.TAP, a.Owner)
}

func (a Disconnect) String() string {
	return strings.TrimSpace(fmt.Sprintf("disconnect TAP %s alias %s", a.TAP, a.Owner))
}

func (a DeviceDel) String() string { return "delete device " + a.ID }

func (a NetdevDel) String() string { return "delete netdev " + a.ID }

func (a DelTAP) String() string { return "delete TAP " + a.Name }

func (a Adopted) String() string {
	return fmt.Sprintf("adopted: %s has %s, note %q", a.Attachment.Key, a.Attachment.TAP, a.Attachment.Note)
}

func (a Released) String() string {
	return strings.TrimSpace(fmt.Sprintf("released: %s %s", a.Key, a.Note))
}

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
	return fmt.Sprintf("lost: NIC %s of %s ended unasked", a.Attachment.TAP, a.Attachment.Key)
}
