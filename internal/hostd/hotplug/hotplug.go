// Package hotplug decides which NIC of a guest goes into which slot, in what
// order, and what to undo when a step fails or the guest does not answer
// (BrFusion: Bacou et al. 2019, §3). It is a pure state machine: Step takes a
// state and an event and returns the next state and the actions to perform.
//
// Each NIC that the guest has is an attachment's or warm: plugged in advance,
// unconnected, and given to the next who asks. A warm NIC spares its taker the
// plug and leaves the connect.
//
// A bound NIC is its attachment's from the plug on, because its end on the host is:
// a queue of what several guests share, say. It comes out of no pool and into none:
// when its attachment ends, it is unplugged. Where warm NICs hold all slots, one of
// them goes to make room, and the attachment waits for that.
//
// A guest with ACPI hot-plug (q35's default) looks at all its slots at every plug
// and every request to unplug, and notes for each NIC that is being asked for that
// it is to go, once more. It works on its notes one by one, and a late one takes
// whatever NIC is in the slot by then (QEMU, hw/acpi/pcihp.c, whose PCID register
// keeps its bits until the eject; Linux, drivers/pci/hotplug/acpiphp_glue.c). So the
// guest is asked for one NIC at a time, unless it lets one wait; and a slot whose
// NIC it may have noted twice rests, until the guest has given up another that it
// was asked for later, or for a while.
//
// Performing actions (the VMM, TAP devices, timers), who may ask for a NIC, and
// what a note says (networks, addresses) do not belong here; nor does any clock.
//
// The caller feeds the events of one guest one at a time and performs the
// actions of one guest in the order given, one at a time, under these rules:
//
//   - AddTAP, NetdevAdd and DeviceAdd of one occupant are a plug. After the last
//     one the caller feeds PlugSucceeded; at the first that fails it skips the
//     rest of the plug and feeds PlugFailed. One of both always comes.
//   - After Connect the caller feeds Connected or ConnectFailed, one of both and
//     once. Whatever the TAP was connected to before, it is as Connect says
//     afterwards. The alias is written last, so that it never promises more than
//     there is. A Connect that fails leaves a Change as it was before; of a new
//     attachment it may leave parts, DelTAP removes them with the TAP.
//   - NetdevDel, DelTAP and Disconnect are performed even when one before them
//     failed, and succeed when there is nothing to do. What they leave behind none
//     the less is found by the next Observed.
//   - DeviceDel that finds no device is a DeviceDeleted event; one that QEMU
//     refuses because an unplug is already pending is a success; any other
//     refusal is an UnplugRefused event.
//   - Events about occupants that have left are harmless, in any number.
package hotplug

import (
	"fmt"
	"slices"
	"time"
)

// Config is what stays the same for one guest.
type Config struct {
	// Prefix begins the names of the guest's TAPs: 1 to 4 lower-case letters
	// and digits, the first and the last of them a letter. No two guests of a
	// host share it: every TAP so named belongs to this state.
	Prefix string
	// Slots is the number of the guest's slots, numbered from 1: 1 to 255.
	Slots int
	// Pool is how many warm NICs are wanted: 0 to Slots.
	Pool int
	// MAC begins the NICs' addresses. It is locally administered and unicast
	// (02:…) and no two guests of a network share it.
	MAC [3]byte
	// UnplugTimeout is how long the guest has to answer one request to unplug.
	// Linux takes 0.01 to 0.4 s with ACPI hot-plug (q35's default), 6 to 7 s
	// with native PCIe hot-plug (5 s of them are the attention button's).
	UnplugTimeout time.Duration
	// UnplugTries is how often the guest is asked before the slot is
	// quarantined, at least 1.
	UnplugTries int
	// Rest is how long a slot stays empty at most after the guest may have been
	// asked twice for what was in it. 0: slots need no rest.
	Rest time.Duration
}

// Validate returns an error that names the first field out of its bounds.
func (c Config) Validate() error {
	switch {
	case !validPrefix(c.Prefix):
		return fmt.Errorf("TAP prefix %q: want 1 to 4 lower-case letters and digits, a letter first and last", c.Prefix)
	case c.Slots < 1 || c.Slots > 255:
		return fmt.Errorf("%d NIC slots: want 1 to 255", c.Slots)
	case c.Pool < 0 || c.Pool > c.Slots:
		return fmt.Errorf("%d warm NICs: want 0 to %d, the number of slots", c.Pool, c.Slots)
	case c.MAC[0]&3 != 2:
		return fmt.Errorf("MAC prefix %x: want a locally administered unicast one, such as 02:00:01", c.MAC)
	case c.UnplugTimeout <= 0:
		return fmt.Errorf("unplug timeout %v: want more than 0", c.UnplugTimeout)
	case c.UnplugTries < 1:
		return fmt.Errorf("%d unplug tries: want at least 1", c.UnplugTries)
	case c.Rest < 0:
		return fmt.Errorf("rest of slots %v: want 0 or more", c.Rest)
	}
	return nil
}

// State is the NIC slots of one guest. It is a value: Step never changes the
// state that it is given. The zero State has no slots.
type State struct {
	config Config
	slots  []Slot
	next   int    // index where the search for a free slot begins
	turn   uint64 // counts what has an age
	known  bool   // what is there has been observed
	drain  bool   // the pool is given up

	queue []Attach // of bound NICs, for which a slot is being made free
}

// New returns the state of a guest with no NIC in any slot. For a guest that
// already runs, feed Observed first.
func New(c Config) (State, error) {
	if err := c.Validate(); err != nil {
		return State{}, err
	}
	s := State{config: c, slots: make([]Slot, c.Slots)}
	for i := range s.slots {
		s.slots[i].Slot = i + 1
	}
	return s, nil
}

// Slots returns all slots in the order of their numbers.
func (s State) Slots() []Slot { return slices.Clone(s.slots) }

// Lookup returns the attachment of key, if its NIC is plugged and connected.
// While its note changes, the attachment has the old one.
func (s State) Lookup(key Key) (Attachment, bool) {
	for i := range s.slots {
		if s.slots[i].connected() && s.slots[i].Key == key {
			return s.attachment(&s.slots[i]), true
		}
	}
	return Attachment{}, false
}

func (s *State) attachment(slot *Slot) Attachment {
	o := slot.Occupant
	return Attachment{Key: slot.Key, Note: slot.Note, Occupant: o, TAP: o.TAP(s.config.Prefix), MAC: o.MAC(s.config.MAC)}
}

// Status is what a slot is doing.
type Status int

// The statuses of a slot.
const (
	Free        Status = iota // no device: the next attachment may take it
	Plugging                  // a plug is on its way, for the pool if there is no key
	Warm                      // the NIC is there, given to nobody
	Connecting                // the NIC is there, its TAP is being connected or its note changed
	Plugged                   // the NIC is there and its key's
	Unplugging                // the guest has been asked to give the NIC up
	Quarantined               // the guest did not give it up: the port is taken, the NIC has no TAP
	Resting                   // no device, but the guest may still take away what comes: see the package
)

// String gives the status in lower case.
func (s Status) String() string {
	return [...]string{"free", "plugging", "warm", "connecting", "plugged", "unplugging", "quarantined", "resting"}[s]
}

// Slot is one slot of the guest and what is in it.
type Slot struct {
	Occupant        // Generation is 0 in an empty slot and beside a foreign device
	Status   Status //
	Device   string // ID of the device in the port, "" in an empty slot
	Key      Key    // zero in an empty slot, for a warm NIC, and for a device whose owner is not known
	Note     string // the attachment's; while it changes, the old one

	attach  []waiter    // to be answered when the NIC is plugged and connected as they want
	detach  []RequestID // to be answered when the NIC is taken away
	pending string      // while connecting: the note being made true; Note itself for a new attachment
	bound   bool        // the NIC's end on the host is made for the key
	reset   bool        // while connecting, or plugging a bound NIC: the guest has started anew, the attachment has ended
	since   uint64      // turn in which it became warm, was to be unplugged, or began to rest
	asked   uint64      // turn of the first DeviceDel
	tries   int         // DeviceDel so far, for this occupant; 0 while another NIC is asked for
	crowded bool        // there was another plug or request since it was asked for
	refusal error       // why the guest did not give the NIC up, if it said so
	last    uint32      // generation of the latest occupant
}

// waiter is an Attach to be answered.
type waiter struct {
	request RequestID
	note    string
}

// connected reports whether the slot's NIC is given to its key, and not being
// taken away from it.
func (s *Slot) connected() bool {
	return s.Status == Plugged || s.changing() && !s.reset && len(s.detach) == 0
}

// changing reports whether the slot's attachment is getting another note.
func (s *Slot) changing() bool { return s.Status == Connecting && s.pending != s.Note }

// mayWait reports whether an Attach of the slot's key can be answered in the end.
func (s *Slot) mayWait() bool {
	return s.Status == Plugged || (s.Status == Plugging || s.Status == Connecting) && !s.reset && len(s.detach) == 0
}

// Attachment is one NIC given to one container's interface. Its names follow
// from slot and generation alone, so that they are never an earlier NIC's.
type Attachment struct {
	Key
	Note string
	Occupant
	TAP string // the host's end
	MAC string // by which the guest finds its end
}
