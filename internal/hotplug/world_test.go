package hotplug

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// weather is what can go wrong in a world beside failing plugs and an unhelpful
// guest.
type weather int

const (
	calm    weather = iota // nothing: whatever is left over is the state machine's fault
	crashes                // the caller and QEMU crash, TAPs refuse to be deleted
	vandals                // others delete TAPs
)

// world is a host with one guest, played at random: what is really there,
// beside what the state machine believes. It performs the actions in their
// order, but later than they come out, and feeds what follows in any order.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	weather weather
	config  Config
	state   State
	up      bool // QEMU runs
	actions []Action
	events  []Event // not yet fed
	timers  []Timer // running

	taps    map[string]string // name -> alias
	netdevs map[string]string // ID -> TAP
	devices map[string]string // ID -> port
	pending map[string]bool   // devices that the guest has been asked for
	used    map[string]bool   // IDs and names used since the caller started

	requests map[RequestID]bool // true: answered
	skip     *Occupant          // the rest of its plug is skipped
	told     bool               // that the guest is gone
	log      []string
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), weather: weather(seed % 3),
		config: Config{Prefix: "g1n", Slots: 3, MAC: [3]byte{2, 0, 1}, UnplugTimeout: time.Second, UnplugTries: 2},
		taps:   map[string]string{"tap0": ""}, netdevs: map[string]string{}, devices: map[string]string{},
		pending: map[string]bool{}, requests: map[RequestID]bool{},
	}
	if w.chance(10) {
		w.devices["usb1"] = Port(1 + w.rng.IntN(3))
	}
	w.restart()
	return w
}

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

func (w *world) failf(format string, args ...any) {
	w.t.Helper()
	for _, line := range w.log {
		w.t.Log(line)
	}
	w.t.Fatalf(format, args...)
}

// restart is a caller that crashed, or comes for the first time: all that it
// knew is lost.
func (w *world) restart() {
	w.log = append(w.log, "-- restart of the caller")
	w.actions, w.events, w.timers, w.skip = nil, nil, nil, nil
	w.requests, w.used = map[RequestID]bool{}, map[string]bool{}
	var err error
	if w.state, err = New(w.config); err != nil {
		w.failf("new state: %v", err)
	}
	w.observe()
}

// observe feeds what is there, in a new QEMU if there was none. All actions have
// been performed.
func (w *world) observe() {
	w.up, w.told = true, false
	var o Observed
	for _, name := range slices.Sorted(maps.Keys(w.taps)) {
		o.TAPs = append(o.TAPs, ObservedTAP{Name: name, Owner: w.taps[name]})
	}
	for _, id := range slices.Sorted(maps.Keys(w.devices)) {
		o.Devices = append(o.Devices, ObservedDevice{ID: id, Bus: w.devices[id]})
	}
	w.feed(o)
}

// feed makes a step and checks what must hold after every step.
func (w *world) feed(e Event) {
	before, beforeText := w.state, fmt.Sprintf("%+v", w.state)
	next, actions := Step(before, e)
	if after := fmt.Sprintf("%+v", before); after != beforeText {
		w.failf("step changed the state that it was given from %s to %s", beforeText, after)
	}
	w.state = next
	w.log = append(w.log, fmt.Sprintf("%T%+v: %v %s", e, e, actions, describe(next)))
	w.actions = append(w.actions, actions...)
	w.checkSlots()
	for _, a := range actions {
		w.checkAction(a)
	}
	if timeout, ok := e.(UnplugTimedOut); ok && describe(before) != describe(next) && timeout.Timer.Try != w.config.UnplugTries {
		w.failf("quarantined after try %d", timeout.Timer.Try)
	}
}

// checkAction checks an action against the state that it comes out with.
func (w *world) checkAction(a Action) {
	switch a := a.(type) {
	case StartTimer:
		if a.Timer.Try < 1 || a.Timer.Try > w.config.UnplugTries || a.After != w.config.UnplugTimeout {
			w.failf("timer of try %d after %v", a.Timer.Try, a.After)
		}
	case DelTAP:
		if _, ok := parseOccupant(a.Name, w.config.Prefix); !ok {
			w.failf("TAP %q deleted, which is no NIC's", a.Name)
		}
	case Reply:
		w.checkReply(a)
	}
}

// checkReply checks that what is promised is so.
func (w *world) checkReply(a Reply) {
	got, plugged := w.state.Lookup(a.Key)
	switch {
	case errors.Is(a.Err, ErrGuestGone):
		if !w.told {
			w.failf("request %d got %v, but nobody said so", a.Request, a.Err)
		}
	case a.Err != nil:
	case a.Attachment != Attachment{}:
		detaching := slices.ContainsFunc(w.state.slots, func(s Slot) bool { return s.Key == a.Key && s.Status == Unplugging })
		if !(plugged && got == a.Attachment) || detaching {
			w.failf("request %d got %+v, the slots are %s", a.Request, a.Attachment, describe(w.state))
		}
	default:
		if (&machine{State: w.state}).holder(a.Key) != nil {
			w.failf("request %d: %s is detached, but the slots are %s", a.Request, a.Key, describe(w.state))
		}
	}
}

// checkSlots: no key has two NICs, no slot or MAC two keys.
func (w *world) checkSlots() {
	keys, macs := map[Key]bool{}, map[string]bool{}
	for i, s := range w.state.Slots() {
		if s.Slot != i+1 || (s.Status == Free) != (s.Device == "") {
			w.failf("slot %d is %+v", i+1, s)
		}
		if s.Status != Plugging && s.Status != Plugged {
			continue
		}
		mac := s.MAC(w.config.MAC)
		if keys[s.Key] || macs[mac] {
			w.failf("two NICs with key %s or MAC %s", s.Key, mac)
		}
		keys[s.Key], macs[mac] = true, true
	}
}

// live returns the status of the slot whose present device or TAP is named.
func (w *world) live(name string) Status {
	for _, s := range w.state.Slots() {
		if s.Status != Free && (s.Device == name || s.TAP(w.config.Prefix) == name || s.NetdevID() == name) {
			return s.Status
		}
	}
	return Free
}

// perform performs the oldest action.
func (w *world) perform() {
	a := w.actions[0]
	w.actions = w.actions[1:]
	switch a := a.(type) {
	case AddTAP:
		w.plugStep(a.Occupant, StepTAP, func() { w.create(w.taps, a.Name, a.Owner) })
	case NetdevAdd:
		w.plugStep(a.Occupant, StepNetdev, func() { w.create(w.netdevs, a.ID, a.TAP) })
	case DeviceAdd:
		w.plugStep(a.Occupant, StepDevice, func() { w.addDevice(a) })
	case DeviceDel:
		w.delDevice(a.ID)
	case NetdevDel:
		if s := w.live(a.ID); s == Plugged || s == Plugging {
			w.failf("netdev %s deleted in a slot that is %s", a.ID, s)
		}
		if w.up {
			delete(w.netdevs, a.ID)
		}
	case DelTAP:
		if s := w.live(a.Name); s == Plugged || s == Plugging {
			w.failf("TAP %s deleted in a slot that is %s", a.Name, s)
		}
		if w.weather != crashes || w.chance(90) { // else it could not be deleted
			delete(w.taps, a.Name)
		}
	case StartTimer:
		w.timers = append(w.timers, a.Timer)
	case Reply:
		w.answer(a)
	}
}

// create makes something with a name that must never have been used.
func (w *world) create(in map[string]string, name, value string) {
	if _, exists := in[name]; exists || w.used[name] {
		w.failf("%s is created, exists %t, has been used %t", name, exists, w.used[name])
	}
	w.used[name] = true
	in[name] = value
}

func (w *world) addDevice(a DeviceAdd) {
	for id, port := range w.devices {
		if port == a.Bus {
			w.failf("device %s plugged in %s beside %s", a.ID, a.Bus, id)
		}
	}
	if _, ok := w.netdevs[a.Netdev]; !ok {
		w.failf("device %s plugged on netdev %s, which is not there", a.ID, a.Netdev)
	}
	w.create(w.devices, a.ID, a.Bus)
}

// plugStep performs one step of a plug, or fails, or leaves it in doubt.
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
		w.events = append(w.events, PlugFailed{Occupant: o, Step: step, Err: errors.New("no luck"), Uncertain: uncertain})
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
	w.events = append(w.events, DeviceDeleted{Device: ""}, DeviceDeleted{Device: id})
}

func (w *world) answer(a Reply) {
	answered, asked := w.requests[a.Request]
	if !asked || answered {
		w.failf("request %d asked %t, answered before %t", a.Request, asked, answered)
	}
	w.requests[a.Request] = true
}

// gone is the end of QEMU.
func (w *world) gone() {
	w.up = false
	w.netdevs, w.pending = map[string]string{}, map[string]bool{}
	w.devices = map[string]string{}
	w.events = slices.DeleteFunc(w.events, func(e Event) bool { return w.chance(50) && isDeletion(e) })
	w.told = true
	w.feed(GuestGone{})
}

func isDeletion(e Event) bool {
	_, ok := e.(DeviceDeleted)
	return ok
}

// request asks for something, in the name of a new request.
func (w *world) request(make func(RequestID, Key) Event) {
	r := RequestID(len(w.requests) + 1)
	w.requests[r] = false
	w.feed(make(r, Key{fmt.Sprintf("c%d", w.rng.IntN(5)), "eth0"}))
}

func attach(r RequestID, k Key) Event { return Attach{r, k} }
func detach(r RequestID, k Key) Event { return Detach{r, k} }

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
	case n < 12:
		w.request(attach)
	case n < 22:
		w.request(detach)
	case n < 62 && len(w.actions) > 0:
		w.perform()
	case n < 82 && len(w.events) > 0:
		e := anyOf(w, &w.events)
		w.feed(e)
		if w.chance(5) {
			w.events = append(w.events, e) // told twice
		}
	case n < 90 && len(w.timers) > 0:
		timer := anyOf(w, &w.timers)
		w.feed(UnplugTimedOut{timer})
		if w.chance(10) {
			w.timers = append(w.timers, timer) // expires twice
		}
	case n < 96:
		w.guestMoves()
	default:
		w.misfortune(n)
	}
}

// misfortune is what the weather brings.
func (w *world) misfortune(n int) {
	switch {
	case w.weather == calm:
	case n < 98 && len(w.actions) == 0:
		w.observe()
	case w.weather == crashes && n == 98 && w.chance(30):
		w.gone()
	case w.weather == crashes && w.chance(30):
		w.restart()
	case w.weather == vandals && w.chance(30):
		names := slices.Sorted(maps.Keys(w.taps))
		if name := names[w.rng.IntN(len(names))]; name != "tap0" {
			delete(w.taps, name)
		}
	}
}

// guestMoves is what the guest does by itself: a late answer, a reset, a NIC
// given up unasked.
func (w *world) guestMoves() {
	late := slices.Sorted(maps.Keys(w.pending))
	all := slices.Sorted(maps.Keys(w.devices))
	switch {
	case !w.up:
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

// settle lets everything that is on its way happen, and all timers expire.
func (w *world) settle() {
	for len(w.actions)+len(w.events)+len(w.timers) > 0 {
		switch {
		case len(w.actions) > 0:
			w.perform()
		case len(w.events) > 0:
			w.feed(anyOf(w, &w.events))
		default:
			w.feed(UnplugTimedOut{anyOf(w, &w.timers)})
		}
	}
}
