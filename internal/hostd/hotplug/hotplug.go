// Package hotplug decides which device of a guest goes into which slot, in what
// order, and what to undo when a step fails or the guest does not answer
// (BrFusion: Bacou et al. 2019, §3). It is a pure state machine: Step takes a
// state and an event and returns the next state and the actions to perform.
//
// A state has either the guest's slots for NICs or, with Config.Shares, its ports for
// volumes and shared memory. What the machine does depends on the attachment's kind:
//
//   - A NIC of a pod (attachment.NIC) is an attachment's or warm. A warm NIC is plugged
//     in advance and not connected. The next attachment takes it and saves the plug.
//   - An endpoint of a segment belongs to its attachment from the plug on, because its
//     end on the host is a queue of that segment. It never enters the pool: when its
//     attachment ends, it is unplugged. If warm NICs hold all slots, one of them is
//     unplugged to make room, and the attachment waits in a queue.
//   - A volume or shared memory is ready once it is plugged: nothing has to be
//     connected. The host cannot cut it off while the guest keeps it.
//
// A guest with ACPI hot-plug (q35's default) scans all slots at every plug and every
// unplug request. For each device that it has been asked for, it then queues one more
// ejection. It works through the queue one by one, and a late ejection removes
// whatever device is in the slot by then (QEMU, hw/acpi/pcihp.c: the PCID register
// keeps its bits until the eject; Linux, drivers/pci/hotplug/acpiphp_glue.c). So the
// machine asks the guest for one device at a time, unless the guest does not answer.
// A slot for which the guest may have queued two ejections cools down: it stays empty
// until the guest has given up another device that it was asked for later, or until
// Config.Cooldown is over.
//
// Performing actions (VMM, TAP devices, timers), who may ask for a NIC, and the
// contents of a record (networks, addresses) do not belong here; nor does any clock.
//
// The caller feeds the events of one guest one at a time and performs the
// actions of one guest in the order given, one at a time, under these rules:
//
//   - AddTAP, NetdevAdd and DeviceAdd of one occupant are a plug; so is AddShare. After
//     the last one the caller feeds PlugSucceeded. At the first that fails it skips the
//     rest of the plug and feeds PlugFailed. Exactly one of the two follows a plug.
//   - Exactly one of Connected and ConnectFailed follows a Connect. Whatever the TAP
//     was connected to before, it is as Connect says afterwards. The caller writes the
//     alias last, so that the alias never promises more than is there. A Connect that
//     fails leaves a Change as it was before; of a new attachment it may leave parts,
//     which DelTAP removes with the TAP.
//   - NetdevDel, CutTAP, DelTAP, DeleteBackend and Disconnect are performed even when an action
//     before them failed, and succeed when there is nothing to do. The next Observed
//     finds what they leave behind.
//   - DeviceDel of a device that does not exist is a DeviceDeleted event. A DeviceDel
//     that QEMU refuses because an unplug is already pending is a success; any other
//     refusal is an UnplugRefused event.
//   - Events about occupants that have left are harmless, in any number.
package hotplug

import (
	"fmt"
	"slices"
	"time"

	"unnest.io/unnest/internal/hostd/attachment"
)

// Config is what stays the same for one guest.
type Config struct {
	// Slots is the number of the guest's slots, numbered from 1: 1 to 255.
	Slots int
	// Shares says that the slots are ports for volumes and shared memory. Prefix, MAC
	// and Pool are unused then.
	Shares bool
	// Prefix begins the names of the guest's TAPs: 1 to 4 lower-case letters
	// and digits, the first and the last of them a letter. No two guests of a
	// host share it: every TAP so named belongs to this state.
	Prefix string
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
	// Cooldown is how long a slot stays empty at most after the guest may have queued
	// two ejections for it. 0: slots do not cool down.
	Cooldown time.Duration
}

// Validate returns an error that names the first field out of its bounds.
func (c Config) Validate() error {
	switch {
	case !c.Shares && !validPrefix(c.Prefix):
		return fmt.Errorf("TAP prefix %q: want 1 to 4 lower-case letters and digits, a letter first and last", c.Prefix)
	case c.Slots < 1 || c.Slots > 255:
		return fmt.Errorf("%d NIC slots: want 1 to 255", c.Slots)
	case c.Pool < 0 || c.Pool > c.Slots:
		return fmt.Errorf("%d warm NICs: want 0 to %d, the number of slots", c.Pool, c.Slots)
	case c.Shares && c.Pool > 0:
		return fmt.Errorf("%d warm NICs: want 0 in ports for volumes", c.Pool)
	case !c.Shares && c.MAC[0]&3 != 2:
		return fmt.Errorf("MAC prefix %x: want a locally administered unicast one, such as 02:00:01", c.MAC)
	case c.UnplugTimeout <= 0:
		return fmt.Errorf("unplug timeout %v: want more than 0", c.UnplugTimeout)
	case c.UnplugTries < 1:
		return fmt.Errorf("%d unplug tries: want at least 1", c.UnplugTries)
	case c.Cooldown < 0:
		return fmt.Errorf("cooldown of slots %v: want 0 or more", c.Cooldown)
	}
	return nil
}

// State is the slots of one guest. It is a value: Step never changes the state that
// it is given. The zero State has no slots.
type State struct {
	config Config
	slots  []Slot
	next   int    // index where the search for a free slot begins
	turn   uint64 // orders events by age
	known  bool   // an Observed has been applied
	drain  bool   // the pool is being drained

	queue []Attach // waiting for a slot, oldest first
}

// New returns the state of a guest with no device in any slot. For a guest that
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

// Lookup returns the attachment of key, if its device is plugged and connected.
// While its record changes, the attachment has the old one.
func (s State) Lookup(key attachment.Key) (Attachment, bool) {
	for i := range s.slots {
		if s.slots[i].connected() && s.slots[i].Key == key {
			return s.attachment(&s.slots[i]), true
		}
	}
	return Attachment{}, false
}

// Holds reports whether key has a device, or is getting or losing one. The key of a
// quarantined NIC has none.
func (s State) Holds(key attachment.Key) bool { return (&machine{State: s}).holder(key) != nil }

// Waits reports whether an Attach of key waits for a slot.
func (s State) Waits(key attachment.Key) bool {
	return slices.ContainsFunc(s.queue, func(a Attach) bool { return a.Key == key })
}

func (s *State) attachment(slot *Slot) Attachment {
	a := Attachment{Key: slot.Key, Record: slot.Record, Occupant: slot.Occupant}
	if !s.config.Shares {
		a.TAP, a.MAC = a.Occupant.TAP(s.config.Prefix), a.Occupant.MAC(s.config.MAC)
	}
	return a
}

// Status is what a slot is doing.
type Status int

// The statuses of a slot.
const (
	Free        Status = iota // no device: the next attachment may take it
	Plugging                  // a plug is under way, for the pool if there is no key
	Warm                      // the NIC is plugged and belongs to no attachment
	Connecting                // the NIC is plugged, its TAP is being connected or its record changed
	Plugged                   // the device is plugged and belongs to its key
	Unplugging                // the guest has been asked to give the device up
	Quarantined               // the guest did not give the device up: the port is taken, a NIC is cut off
	Cooling                   // no device, but the guest may still eject the next one: see the package comment
	Foreign                   // the port has a device that this machine did not plug, such as a disk of the guest
)

// String gives the status in lower case.
func (s Status) String() string {
	return [...]string{"free", "plugging", "warm", "connecting", "plugged", "unplugging", "quarantined", "cooling", "foreign"}[s]
}

// Slot is one slot of the guest and its occupant.
type Slot struct {
	Occupant // Generation is 0 in an empty slot and for a foreign device
	Status   Status
	Device   string            // ID of the device in the port, "" in an empty slot
	Key      attachment.Key    // zero in an empty slot, for a warm NIC, and for a device of unknown owner
	Record   attachment.Record // the attachment's; while it changes, the old one

	endpoint bool              // the device is an endpoint, also if it has no key any more
	attach   []waiter          // requests to answer when the device is plugged and connected
	detach   []RequestID       // requests to answer when the device is gone
	pending  attachment.Record // while connecting: the record to set; Record itself for a new attachment
	reset    bool              // while connecting, or plugging an endpoint: the guest was reset, the attachment has ended
	since    uint64            // turn in which it became warm, was to be unplugged, or began to cool down
	asked    uint64            // turn of the first DeviceDel
	tries    int               // DeviceDel so far, for this occupant; 0 while another device is asked for
	rescan   bool              // the guest scanned its slots again since it was asked for the device
	refusal  error             // why the guest did not give the device up, if it said so
	last     uint32            // generation of the latest occupant
}

// waiter is an Attach to be answered.
type waiter struct {
	request RequestID
	record  attachment.Record
}

// connected reports whether the slot's device belongs to its key and is not being
// taken away from it.
func (s *Slot) connected() bool {
	return s.Status == Plugged || s.changing() && !s.reset && len(s.detach) == 0
}

// changing reports whether the slot's attachment is getting another record.
func (s *Slot) changing() bool { return s.Status == Connecting && !s.pending.Equal(s.Record) }

// mayWait reports whether an Attach of the slot's key can still succeed.
func (s *Slot) mayWait() bool {
	return s.Status == Plugged || (s.Status == Plugging || s.Status == Connecting) && !s.reset && len(s.detach) == 0
}

// Attachment is one device given to one key. The names of a NIC follow from slot and
// generation alone, so that no later NIC has the names of an earlier one.
type Attachment struct {
	Key    attachment.Key
	Record attachment.Record
	Occupant
	TAP string // the host's end of a NIC
	MAC string // by which the guest finds a NIC
}
