package hotplug

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/hostd/attachment"
)

// faults says what can go wrong in a world, in addition to plugs that fail and a guest
// that does not answer.
type faults int

const (
	none      faults = iota // nothing: whatever is left over is the state machine's mistake
	crashes                 // the caller and QEMU crash, TAPs cannot be deleted or disconnected
	deletions               // others delete TAPs
	acpi                    // nothing, and the guest queues ejections as with ACPI hot-plug
	faultKinds
)

// world simulates a host with one guest at random: what is really there, next to the
// state of the machine. It performs the actions in their order, but later than Step
// returns them, and feeds the events that follow in any order.
type world struct {
	steps   int // made
	t       *testing.T
	rng     *rand.Rand
	faults  faults
	config  Config
	state   State
	up      bool // QEMU runs
	keeps   bool // QEMU has a TAP open until the NIC is gone, as QEMU 10
	actions []Action
	events  []Event // not yet fed
	timers  []Timer // running

	taps      map[string]mark   // by name
	queues    map[string]bool   // TAPs that were made for endpoints
	linked    map[string]string // TAP -> the attachment that its bridge and filter are for
	netdevs   map[string]string // ID -> TAP
	open      map[string]string // TAP that QEMU has -> device that keeps it, if any
	devices   map[string]int    // ID -> slot
	pending   map[string]bool   // devices that the guest has been asked for
	ejections []int             // slots that the guest will empty, with the faults acpi
	used      map[string]bool   // IDs and names used since the caller started

	requests map[RequestID]*request
	skip     *Occupant         // the rest of its plug is skipped
	drained  bool              // the pool is given up
	ending   map[Occupant]bool // was being connected when the guest was reset
	log      []func() string   // formatted when the test fails
}

// mark is what is written on a TAP.
type mark struct {
	warm   bool
	ended  bool
	key    attachment.Key
	record string
}

// record reads what attachment.Record.String writes.
func record(text string) attachment.Record {
	_, r, _ := attachment.ParseAlias("unnest:c/i " + text)
	return r
}

// request is an attach or detach that was fed.
type request struct {
	record   attachment.Record
	answered bool
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), faults: faults(seed % uint64(faultKinds)),
		config: Config{Prefix: "g1n", Slots: 3, MAC: [3]byte{2, 0, 1}, UnplugTimeout: time.Second, UnplugTries: 2, Cooldown: 2 * time.Second},
		taps:   map[string]mark{"tap0": {}}, queues: map[string]bool{}, linked: map[string]string{}, netdevs: map[string]string{}, open: map[string]string{},
		devices: map[string]int{}, pending: map[string]bool{}, requests: map[RequestID]*request{},
	}
	w.config.Pool = w.rng.IntN(4)
	w.keeps = w.chance(50)
	if w.chance(10) {
		w.devices["usb1"] = 1 + w.rng.IntN(3)
	}
	w.restart()
	return w
}

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

func (w *world) failf(format string, args ...any) {
	w.t.Helper()
	for _, line := range w.log {
		w.t.Log(line())
	}
	w.t.Fatalf(format, args...)
}

// restart is a caller that starts, for the first time or after a crash. It has no state.
func (w *world) restart() {
	w.log = append(w.log, func() string { return "-- restart of the caller" })
	w.actions, w.events, w.timers, w.skip, w.drained = nil, nil, nil, nil, false
	w.requests, w.used, w.ending = map[RequestID]*request{}, map[string]bool{}, map[Occupant]bool{}
	var err error
	if w.state, err = New(w.config); err != nil {
		w.failf("new state: %v", err)
	}
	w.observe()
}

// observe feeds what is there. All actions have been performed. If QEMU has ended, a new
// one starts, and the caller with it.
func (w *world) observe() {
	if !w.up {
		w.up = true
		w.restart()
		return
	}
	var o Observed
	for _, name := range slices.Sorted(maps.Keys(w.taps)) {
		t := ObservedTAP{Name: name, Warm: w.taps[name].warm, Key: w.taps[name].key, Record: record(w.taps[name].record)}
		if w.queues[name] {
			t.Key.Kind = attachment.Endpoint
		}
		o.TAPs = append(o.TAPs, t)
	}
	for _, id := range slices.Sorted(maps.Keys(w.devices)) {
		o.Devices = append(o.Devices, ObservedDevice{ID: id, Slot: w.devices[id]})
	}
	w.feed(o)
}

// feed makes a step and checks what must hold after every step.
func (w *world) feed(e Event) {
	before, snapshot := w.state, deepCopy(w.state)
	next, actions := Step(before, e)
	w.steps++
	if !reflect.DeepEqual(before, snapshot) {
		w.failf("step changed the state that it was given from %+v to %+v", snapshot, before)
	}
	w.state = next
	w.log = append(w.log, func() string { return fmt.Sprintf("%T%+v: %v %s", e, e, actions, describe(next)) })
	w.actions = append(w.actions, actions...)
	w.checkSlots()
	w.checkReleased(before, actions)
	w.checkAdopted(before, e, actions)
	w.checkLost(before, e, actions)
	w.checkPool(before, e, actions)
	for _, a := range actions {
		w.checkAction(a)
	}
	w.checkEnding(e)
	if timeout, ok := e.(UnplugTimedOut); ok && timeout.Timer.Try != cooldownTimer && describe(before) != describe(next) && timeout.Timer.Try != w.config.UnplugTries {
		w.failf("quarantined after try %d", timeout.Timer.Try)
	}
}

// deepCopy returns a state that shares nothing with s.
func deepCopy(s State) State {
	s.slots, s.queue = slices.Clone(s.slots), slices.Clone(s.queue)
	for i := range s.slots {
		slot := &s.slots[i]
		slot.attach, slot.detach = slices.Clone(slot.attach), slices.Clone(slot.detach)
	}
	return s
}

// checkAction checks an action against the state that it comes out with.
func (w *world) checkAction(a Action) {
	switch a := a.(type) {
	case StartTimer:
		if a.Timer.Try == cooldownTimer {
			if a.After != w.config.Cooldown {
				w.failf("cooldown of %v", a.After)
			}
			return
		}
		if a.Timer.Try < 1 || a.Timer.Try > w.config.UnplugTries || a.After != w.config.UnplugTimeout {
			w.failf("timer of try %d after %v", a.Timer.Try, a.After)
		}
	case DelTAP:
		if _, ok := parseOccupant(a.TAP, w.config.Prefix); !ok {
			w.failf("TAP %q deleted, which is not a NIC's", a.TAP)
		}
	case AddTAP:
		if (a.Key.Kind == attachment.Endpoint) == (a.Key == attachment.Key{}) {
			w.failf("%s, for %v", a, a.Key)
		}
	case Connect:
		if a.Change && a.Was.Equal(a.Record) {
			w.failf("connect is %+v", a)
		}
	case Lost:
		if w.ending[a.Attachment.Occupant] {
			w.failf("%s, for the second time", a)
		}
	case Reply:
		w.checkReply(a)
	}
}

// checkReply checks that a reply is true.
func (w *world) checkReply(a Reply) {
	got, plugged := w.state.Lookup(a.Key)
	switch {
	case a.Err != nil:
	case a.Attachment.Slot > 0:
		if want := w.requests[a.Request].record; !want.IsZero() && !want.Equal(a.Attachment.Record) {
			w.failf("request %d wants record %q, got %q", a.Request, want, a.Attachment.Record)
		}
		detaching := slices.ContainsFunc(w.state.slots, func(s Slot) bool { return s.Key == a.Key && s.Status == Unplugging })
		if !(plugged && reflect.DeepEqual(got, a.Attachment)) || detaching {
			w.failf("request %d got %+v, the slots are %s", a.Request, a.Attachment, describe(w.state))
		}
	default:
		if (&machine{State: w.state}).holder(a.Key) != nil {
			w.failf("request %d: %s is detached, but the slots are %s", a.Request, a.Key, describe(w.state))
		}
	}
}

// attachments returns those that a state has, also those not connected or about to
// end, with what may be released when they end.
func attachments(s State) map[Occupant]map[string]bool {
	all := map[Occupant]map[string]bool{}
	for _, slot := range s.Slots() {
		if slot.Device == "" || slot.Status == Quarantined || slot.Key == (attachment.Key{}) {
			continue
		}
		all[slot.Occupant] = map[string]bool{named(slot.Key, slot.Record): true}
		if slot.Status == Connecting {
			all[slot.Occupant][named(slot.Key, slot.pending)] = true
		}
	}
	return all
}

// checkReleased checks that exactly the attachments that the step ended are released, once.
func (w *world) checkReleased(before State, actions []Action) {
	left := attachments(w.state)
	var ended []map[string]bool
	for o, may := range attachments(before) {
		if _, there := left[o]; !there {
			ended = append(ended, may)
		}
	}
	for _, a := range actions {
		r, ok := a.(Released)
		if !ok {
			continue
		}
		i := slices.IndexFunc(ended, func(may map[string]bool) bool { return may[named(r.Key, r.Record)] })
		if i < 0 {
			w.failf("%s, but it has not ended, or twice", r)
		}
		ended = slices.Delete(ended, i, i+1)
	}
	if len(ended) > 0 {
		w.failf("ended, but not released: %v", ended)
	}
}

// checkAdopted checks that exactly the attachments that were found are adopted, once.
func (w *world) checkAdopted(before State, e Event, actions []Action) {
	told, had := map[Occupant]bool{}, attachments(before)
	for _, a := range actions {
		if a, ok := a.(Adopted); ok {
			if got, ok := w.state.Lookup(a.Attachment.Key); !ok || !reflect.DeepEqual(got, a.Attachment) || told[got.Occupant] {
				w.failf("%s, but it is not there, or twice", a)
			}
			told[a.Attachment.Occupant] = true
		}
	}
	_, observed := e.(Observed)
	for o := range attachments(w.state) {
		found := observed && had[o] == nil && w.state.Slots()[o.Slot-1].Status != Plugging // else it had waited for a slot
		if found != told[o] {
			w.failf("attachment in %s is found %t, told %t", o, found, told[o])
		}
	}
}

// checkLost checks that exactly the attachments that ended unasked are reported as lost, once.
func (w *world) checkLost(before State, e Event, actions []Action) {
	lost := map[Occupant]int{}
	for _, a := range actions {
		if l, ok := a.(Lost); ok {
			lost[l.Attachment.Occupant]++
		}
	}
	detach, _ := e.(Detach)
	for i := range before.slots {
		was, is := &before.slots[i], &w.state.slots[i]
		want := 0
		if was.connected() && (!is.connected() || is.Occupant != was.Occupant) && was.Key != detach.Key {
			want = 1
		}
		if lost[was.Occupant] != want {
			w.failf("the attachment in %s is reported as lost %d times, want %d", was.Occupant, lost[was.Occupant], want)
		}
	}
}

// checkEnding checks that an attachment that was being connected when the guest was reset
// ends with the connect.
func (w *world) checkEnding(e Event) {
	var o Occupant
	switch e := e.(type) {
	case GuestReset:
		for _, s := range w.state.Slots() {
			if s.Status == Connecting {
				w.ending[s.Occupant] = true
			}
		}
		return
	case Connected:
		o = e.Occupant
	case ConnectFailed:
		o = e.Occupant
	}
	if !w.ending[o] {
		return
	}
	delete(w.ending, o)
	if s := w.state.Slots()[o.Slot-1]; s.Occupant == o && s.Status != Warm && s.Status != Unplugging {
		w.failf("slot %d is %s, but its guest was reset", o.Slot, s.Status)
	}
}

// checkPool checks that the pool takes the slots that it should, and none from attachments.
func (w *world) checkPool(before State, e Event, actions []Action) {
	counts := map[string]int{}
	for _, a := range actions {
		counts[fmt.Sprintf("%T", a)]++
	}
	plugs := counts["hotplug.AddTAP"]
	switch e := e.(type) {
	case Refill:
		if plugs != min(1, before.Deficit()) || w.drained && plugs > 0 {
			w.failf("refill plugs %d NICs of %d wanted", plugs, before.Deficit())
		}
	case Attach:
		bound := e.Key.Kind == attachment.Endpoint
		warm, free := w.count(before, Warm), w.count(before, Free)
		fresh := (&machine{State: before}).holder(e.Key) == nil
		if fresh && warm+free > 0 && counts["hotplug.Reply"] > 0 && (!bound || len(before.queue) == 0) {
			w.failf("refused with %d slots free and %d warm", free, warm)
		}
		if bound {
			w.checkEndpointAttach(fresh, plugs, free, warm-w.count(w.state, Warm))
			break
		}
		if cold := e.Cold && free > 0; fresh && warm > 0 && (plugs == 0) == cold {
			w.failf("%d plugs with %d warm NICs", plugs, warm)
		}
	case GuestReset:
		if w.count(w.state, Plugged) > 0 {
			w.failf("attachments outlive the guest")
		}
	default:
		if plugs > len(before.queue)-len(w.state.queue) {
			w.failf("plug without a request")
		}
	}
	w.checkQueue()
	if n := w.state.Deficit(); n < 0 || n > w.count(w.state, Free) || n > w.config.Pool {
		w.failf("%d warm NICs wanted", n)
	}
	if w.drained && w.count(w.state, Warm) > 0 {
		w.failf("warm NIC in a pool that is given up")
	}
}

func (w *world) count(s State, status Status) int {
	n := 0
	for _, slot := range s.Slots() {
		if slot.Status == status {
			n++
		}
	}
	return n
}

// checkEndpointAttach checks that an endpoint is plugged if a slot is free, and that
// otherwise a warm NIC makes room.
func (w *world) checkEndpointAttach(fresh bool, plugs, free, evicted int) {
	switch {
	case fresh && free > 0 && (plugs != 1 || evicted != 0):
		w.failf("%d plugs and %d warm NICs gone for an endpoint, with %d slots free", plugs, evicted, free)
	case !fresh && plugs+evicted > 0, plugs > 1, evicted > 1:
		w.failf("%d plugs and %d warm NICs gone for an endpoint", plugs, evicted)
	}
}

// checkQueue checks that a request waits only if no slot is free and one will become free.
func (w *world) checkQueue() {
	waiting := len(w.state.queue)
	if waiting == 0 {
		return
	}
	if w.count(w.state, Free) > 0 {
		w.failf("%d wait with the slots %s", waiting, describe(w.state))
	}
	if coming := (&machine{State: w.state}).coming(); coming < waiting {
		w.failf("%d wait for %d slots: %s", waiting, coming, describe(w.state))
	}
}

// checkSlots checks that no key has two NICs, and no slot or MAC two keys. A warm NIC has
// no key.
func (w *world) checkSlots() {
	keys, macs := map[attachment.Key]bool{}, map[string]bool{}
	for i, s := range w.state.Slots() {
		if s.Slot != i+1 || (s.Status == Free || s.Status == Cooling) != (s.Device == "") {
			w.failf("slot %d is %+v", i+1, s)
		}
		keyless := s.Key == attachment.Key{}
		if keyless && (s.Status == Connecting || s.Status == Plugged) || !keyless && (s.Device == "" || s.Status == Warm) {
			w.failf("slot %d is %s with key %s", s.Slot, s.Status, s.Key)
		}
		if s.endpoint && s.Status == Warm || s.Status != Free && !keyless && s.endpoint != (s.Key.Kind == attachment.Endpoint) {
			w.failf("slot %d is %s, key %s, endpoint %t", s.Slot, s.Status, s.Key, s.endpoint)
		}
		ending := s.Status == Unplugging || s.Status == Quarantined // taken over without an owner
		if keyless && !ending && !s.Record.IsZero() || len(s.attach) > 0 && s.Status != Plugging && s.Status != Connecting {
			w.failf("slot is %+v", s)
		}
		if s.Device == "" || s.Status == Quarantined {
			continue
		}
		mac := s.MAC(w.config.MAC)
		if keys[s.Key] && !keyless || macs[mac] {
			w.failf("two NICs with key %s or MAC %s", s.Key, mac)
		}
		keys[s.Key], macs[mac] = true, true
	}
}

// checkDead checks that a TAP or netdev that is being deleted does not belong to a NIC in
// use.
func (w *world) checkDead(name string) {
	for _, s := range w.state.Slots() {
		inUse := s.Status == Plugging || s.Status == Warm || s.Status == Connecting || s.Status == Plugged
		if inUse && (s.TAP(w.config.Prefix) == name || s.NetdevID() == name) {
			w.failf("%s deleted in a slot that is %s", name, s.Status)
		}
	}
}

// perform performs the oldest action.
func (w *world) perform() {
	a := w.actions[0]
	w.actions = w.actions[1:]
	switch a := a.(type) {
	case AddTAP:
		w.plugStep(a.Occupant, StepTAP, func() {
			endpoint := a.Key.Kind == attachment.Endpoint
			create(w, w.taps, a.TAP, mark{warm: !endpoint})
			w.queues[a.TAP] = endpoint
		})
	case NetdevAdd:
		w.plugStep(a.Occupant, StepNetdev, func() {
			create(w, w.netdevs, a.ID, a.TAP)
			w.open[a.TAP] = ""
		})
	case DeviceAdd:
		w.plugStep(a.Occupant, StepDevice, func() { w.addDevice(a) })
	case DeviceDel:
		w.delDevice(a.ID)
	case Connect:
		w.connect(a)
	case Disconnect:
		if w.faults != crashes || w.chance(90) { // else it could not be disconnected
			w.link(a.Attachment.TAP, "")
			w.rename(a.Attachment.TAP, mark{warm: !w.queues[a.Attachment.TAP]})
		}
	case Adopted:
		w.link(a.Attachment.TAP, named(a.Attachment.Key, a.Attachment.Record))
	case NetdevDel:
		w.checkDead(a.ID)
		if w.up {
			w.deleteNetdev(a.ID)
		}
	case DelTAP:
		w.checkDead(a.TAP)
		if device := w.open[a.TAP]; device != "" && w.devices[device] > 0 {
			w.failf("%s, but QEMU has it for %s", a, device)
		}
		if w.faults != crashes || w.chance(90) { // else it could not be deleted
			w.deleteTAP(a.TAP)
		}
	case CutTAP:
		w.checkDead(a.TAP)
		if w.faults != crashes || w.chance(90) { // else it could not be cut
			w.cutTAP(a.TAP)
		}
	case Released:
		for name, owner := range w.linked {
			if (owner == a.Key.String() || strings.HasPrefix(owner, a.Key.String()+" ")) && w.faults != crashes {
				w.failf("%s, but TAP %s is connected for %s", a, name, owner)
			}
		}
	case StartTimer:
		w.timers = append(w.timers, a.Timer)
	case Reply:
		w.answer(a)
	}
}

// cutTAP takes a TAP off the network. It stays as long as QEMU has it.
func (w *world) cutTAP(name string) {
	delete(w.linked, name)
	if _, open := w.open[name]; open {
		w.rename(name, mark{ended: true})
		return
	}
	w.deleteTAP(name)
}

// deleteNetdev deletes a netdev. QEMU closes its TAP, unless a device keeps it.
func (w *world) deleteNetdev(id string) {
	tap, there := w.netdevs[id]
	delete(w.netdevs, id)
	if there && !(w.keeps && w.open[tap] != "") {
		delete(w.open, tap)
	}
}

func (w *world) deleteTAP(name string) {
	delete(w.taps, name)
	delete(w.queues, name)
	delete(w.linked, name)
}

// link connects a TAP for an owner, or disconnects it. It returns false if there is no
// such TAP.
func (w *world) link(tap, owner string) bool {
	_, there := w.taps[tap]
	if owner == "" || !there {
		delete(w.linked, tap)
		return there
	}
	w.linked[tap] = owner
	return true
}

func (w *world) rename(tap string, m mark) {
	if _, there := w.taps[tap]; there {
		w.taps[tap] = m
	}
}

// connect connects a TAP and marks it, or fails. A change that fails is undone. The caller
// may crash in the middle.
func (w *world) connect(a Connect) {
	tap := a.Attachment.TAP
	was := w.linked[tap]
	if a.Change && w.faults == none && was != named(a.Key, a.Was) {
		w.failf("%s, but it is connected for %q", a, was)
	}
	there := w.link(tap, named(a.Key, a.Record))
	switch {
	case w.faults == crashes && w.chance(3):
		w.restart()
	case !there || w.chance(15):
		if a.Change {
			w.link(tap, was)
		}
		w.events = append(w.events, ConnectFailed{Occupant: a.Occupant, Err: errors.New("injected error")})
	default:
		w.rename(tap, mark{key: a.Key, record: a.Record.String()})
		w.events = append(w.events, Connected{a.Occupant})
	}
}

// create adds something under a name that must never have been used.
func create[T any](w *world, in map[string]T, name string, value T) {
	if _, exists := in[name]; exists || w.used[name] {
		w.failf("%s is created, exists %t, has been used %t", name, exists, w.used[name])
	}
	w.used[name] = true
	in[name] = value
}

func (w *world) addDevice(a DeviceAdd) {
	for id, slot := range w.devices {
		if slot == a.Slot {
			w.failf("device %s plugged in slot %d, which has %s", a.ID, a.Slot, id)
		}
	}
	if _, ok := w.netdevs[a.Netdev]; !ok {
		w.failf("device %s plugged on netdev %s, which is not there", a.ID, a.Netdev)
	}
	create(w, w.devices, a.ID, a.Slot)
	w.open[w.netdevs[a.Netdev]] = a.ID
	w.look()
}

// look is the guest scanning its slots, as it does at every plug and request.
func (w *world) look() {
	if w.faults != acpi {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(w.pending)) {
		w.ejections = append(w.ejections, w.devices[id])
	}
}

// eject is the guest performing its first ejection: whatever is in the slot goes.
func (w *world) eject() {
	slot := w.ejections[0]
	w.ejections = w.ejections[1:]
	for id, at := range w.devices {
		if at == slot && !w.pending[id] {
			w.failf("the guest takes %s away for what was in slot %d before", id, slot)
		}
		if at == slot {
			w.giveUp(id)
			return
		}
	}
}

// plugStep performs one step of a plug, fails, or fails without saying whether it has
// performed the step.
func (w *world) plugStep(o Occupant, step PlugStep, effect func()) {
	if w.skip != nil && *w.skip == o {
		return
	}
	qmp := step != StepTAP
	fails, uncertain := w.chance(10), qmp && w.chance(50)
	if qmp && !w.up {
		fails, uncertain = true, true
	} else if !fails || uncertain && w.chance(50) {
		effect()
	}
	switch {
	case fails:
		w.skip = &o
		w.events = append(w.events, PlugFailed{Occupant: o, Step: step, Err: errors.New("injected error"), Uncertain: uncertain})
	case step == StepDevice:
		w.events = append(w.events, PlugSucceeded{o})
	}
}

func (w *world) delDevice(id string) {
	if id == "usb1" {
		w.failf("foreign device deleted")
	}
	_, exists := w.devices[id]
	switch {
	case !w.up:
	case !exists:
		w.events = append(w.events, DeviceDeleted{Device: id})
	case w.faults == acpi:
		w.pending[id] = true
		w.look()
	case w.chance(40):
		w.giveUp(id)
	case w.chance(30):
		w.events = append(w.events, UnplugRefused{Device: id, Err: errors.New("busy")})
	default:
		w.pending[id] = true
	}
}

// giveUp is the guest giving up a device.
func (w *world) giveUp(id string) {
	delete(w.devices, id)
	delete(w.pending, id)
	for tap, device := range w.open {
		switch {
		case device != id:
		case slices.Contains(slices.Collect(maps.Values(w.netdevs)), tap):
			w.open[tap] = ""
		default:
			delete(w.open, tap)
		}
	}
	w.events = append(w.events, DeviceDeleted{Device: ""}, DeviceDeleted{Device: id})
}

func (w *world) answer(a Reply) {
	r := w.requests[a.Request]
	if r == nil || r.answered {
		w.failf("request %d is %+v and answered", a.Request, r)
	}
	r.answered = true
	if a.Attachment.Slot == 0 || w.faults == deletions {
		return
	}
	owner := named(a.Attachment.Key, a.Attachment.Record)
	if tap := a.Attachment.TAP; w.linked[tap] != owner || named(w.taps[tap].key, record(w.taps[tap].record)) != owner {
		w.failf("%s, but its TAP is connected for %q and marked %+v", a, w.linked[tap], w.taps[tap])
	}
}

// gone is the end of QEMU, until the caller sees a new one.
func (w *world) gone() {
	w.up = false
	w.netdevs, w.pending, w.ejections = map[string]string{}, map[string]bool{}, nil
	w.devices, w.open = map[string]int{}, map[string]string{}
	w.events = slices.DeleteFunc(w.events, func(e Event) bool { return w.chance(50) && isDeletion(e) })
}

func isDeletion(e Event) bool {
	_, ok := e.(DeviceDeleted)
	return ok
}

// request feeds a new request.
func (w *world) request(make func(RequestID, attachment.Key) Event) {
	r := RequestID(len(w.requests) + 1)
	w.requests[r] = &request{}
	w.feed(make(r, keys[w.rng.IntN(len(keys))]))
}

// keys are those of five NICs and three endpoints. One container has both.
var keys = func() (all []attachment.Key) {
	for i := range 5 {
		all = append(all, attachment.Key{Owner: fmt.Sprint("c", i), Name: "eth0"})
	}
	for i := range 3 {
		all = append(all, attachment.Key{Kind: attachment.Endpoint, Owner: fmt.Sprint("c", i), Name: "eth0"})
	}
	return all
}()

func (w *world) attach(r RequestID, k attachment.Key) Event {
	e := Attach{Request: r, Key: k, Record: record([]string{"", "n=a", "n=b"}[w.rng.IntN(3)]), Cold: w.chance(20)}
	if k.Kind == attachment.Endpoint {
		e.Record, e.Cold = record("s="+k.Owner), false
	}
	w.requests[r].record = e.Record
	return e
}

func (w *world) detach(r RequestID, k attachment.Key) Event { return Detach{Request: r, Key: k} }

// anyOf takes one element out of list at random.
func anyOf[T any](w *world, list *[]T) T {
	i := w.rng.IntN(len(*list))
	v := (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return v
}

// move makes one thing happen.
func (w *world) move() {
	switch n := w.rng.IntN(100); {
	case n < 13:
		w.request(w.attach)
	case n < 20:
		w.request(w.detach)
	case n < 24:
		w.feed(Refill{})
	case n < 62 && len(w.actions) > 0:
		w.perform()
	case n < 82 && len(w.events) > 0:
		e := anyOf(w, &w.events)
		w.feed(e)
		if w.chance(5) && !endsConnect(e) {
			w.events = append(w.events, e) // fed twice
		}
	case n < 90 && len(w.timers) > 0:
		timer := anyOf(w, &w.timers)
		if timer.Try == cooldownTimer && len(w.ejections) > 0 { // it is long enough
			w.timers = append(w.timers, timer)
			return
		}
		w.feed(UnplugTimedOut{timer})
		if w.chance(10) {
			w.timers = append(w.timers, timer) // expires twice
		}
	case n < 96:
		w.guestMoves()
	default:
		w.injectFault(n)
	}
}

// endsConnect reports whether the caller feeds e only once.
func endsConnect(e Event) bool {
	switch e.(type) {
	case Connected, ConnectFailed:
		return true
	}
	return false
}

// injectFault makes a fault happen.
func (w *world) injectFault(n int) {
	switch {
	case n == 96 && w.chance(5):
		w.drained = true
		w.feed(Drain{})
	case w.faults == none || w.faults == acpi:
	case n < 98 && len(w.actions) == 0:
		w.observe()
	case w.faults == crashes && n == 98 && w.chance(30):
		w.gone()
	case w.faults == crashes && w.chance(30):
		w.restart()
	case w.faults == deletions && w.chance(30):
		names := slices.Sorted(maps.Keys(w.taps))
		if name := names[w.rng.IntN(len(names))]; name != "tap0" {
			w.deleteTAP(name)
		}
	}
}

// guestMoves is the guest's own action: a late answer, a reset, or giving up a NIC
// without a request.
func (w *world) guestMoves() {
	late := slices.Sorted(maps.Keys(w.pending))
	all := slices.Sorted(maps.Keys(w.devices))
	switch {
	case !w.up:
	case w.faults == acpi:
		if len(w.ejections) > 0 {
			w.eject()
		}
	case w.chance(60) && len(late) > 0:
		w.giveUp(late[w.rng.IntN(len(late))])
	case w.chance(20):
		for _, id := range late {
			w.giveUp(id)
		}
		w.events = append(w.events, GuestReset{})
	case w.chance(10) && len(all) > 0:
		w.giveUp(all[w.rng.IntN(len(all))])
	}
}

// finishPending performs all actions, feeds all events, and lets all timers expire.
func (w *world) finishPending() {
	for len(w.actions)+len(w.events)+len(w.timers)+len(w.ejections) > 0 {
		switch {
		case len(w.actions) > 0:
			w.perform()
		case len(w.events) > 0:
			w.feed(anyOf(w, &w.events))
		case len(w.ejections) > 0:
			w.eject()
		default:
			w.feed(UnplugTimedOut{anyOf(w, &w.timers)})
		}
	}
}
