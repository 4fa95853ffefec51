package hotplug

import (
	"maps"
	"slices"
	"testing"

	"unnest/internal/hostd/attachment"
)

// Random lives of a guest, each with its seed. What must hold after every step
// is checked in world; this checks what must hold in the end.
func TestModel(t *testing.T) {
	worlds, moves := 2000, 300
	if testing.Short() {
		worlds = 300
	}
	for seed := range worlds {
		w := newWorld(t, uint64(seed))
		for range moves {
			w.move()
		}
		w.finish()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// finish detaches all and checks that nothing is left, whatever the guest does.
func (w *world) finish() {
	w.settle()
	w.checkAnswered() // nothing is on its way: nobody may wait for anything
	if !w.up {
		w.observe()
		w.settle()
	}
	w.fillPool()
	for _, key := range keys {
		r := RequestID(len(w.requests) + 1)
		w.requests[r] = &request{}
		w.feed(Detach{Request: r, Key: key})
	}
	w.drained = true
	w.feed(Drain{})
	w.settle()
	if w.state.Draining() {
		w.failf("the drain has not ended")
	}
	w.checkAnswered()
	for i := 0; w.weather != calm && i < 20 && len(w.taps) > 1; i++ {
		w.observe() // deletions that failed: the next looks find them
		w.settle()
	}
	if len(w.taps) != 1 || len(w.netdevs) != 0 || len(w.linked) != 0 {
		w.failf("left over: TAPs %v, netdevs %v, connected %v", w.taps, w.netdevs, w.linked)
	}
	for _, s := range w.state.Slots() {
		if s.Status != Free && s.Status != Quarantined {
			w.failf("slot %d is %s in the end", s.Slot, s.Status)
		}
	}
	w.lateAnswers()
}

// fillPool refills until nothing is wanted, and checks that the pool has what it
// is to have and that nobody is connected to it.
func (w *world) fillPool() {
	for i := 0; i < 100 && w.state.Deficit() > 0; i++ {
		w.feed(Refill{})
		w.settle()
	}
	for i := 0; w.weather == crashes && i < 20; i++ {
		w.observe() // disconnects that failed
		w.settle()
	}
	if free, warm := w.count(w.state, Free), w.count(w.state, Warm); !w.drained && free > 0 && warm < w.config.Pool {
		w.failf("%d NICs are warm and %d slots free, want %d warm", warm, free, w.config.Pool)
	}
	for _, s := range w.state.Slots() {
		tap := s.TAP(w.config.Prefix)
		if s.Status == Warm && w.weather != vandals && (w.linked[tap] != "" || !w.taps[tap].warm) {
			w.failf("TAP %s of a warm NIC is connected for %q, it is marked %+v", tap, w.linked[tap], w.taps[tap])
		}
	}
}

func (w *world) checkAnswered() {
	for r, asked := range w.requests {
		if !asked.answered {
			w.failf("request %d was never answered", r)
		}
	}
}

// lateAnswers has the guest give up everything in the end: every slot is free,
// but for a foreign device's.
func (w *world) lateAnswers() {
	_, foreign := w.devices["usb1"]
	for _, id := range slices.Sorted(maps.Keys(w.devices)) {
		if id != "usb1" {
			w.giveUp(id)
		}
	}
	w.settle()
	taken := 0
	for _, s := range w.state.Slots() {
		if s.Status != Free {
			taken++
			if s.Device != "usb1" {
				w.failf("slot %d is %s by %s, which is gone", s.Slot, s.Status, s.Device)
			}
		}
	}
	if foreign != (taken == 1) || taken > 1 {
		w.failf("%d slots taken, foreign device there %t", taken, foreign)
	}
}

// Two futures of one state do not disturb each other.
func TestStepIsPersistent(t *testing.T) {
	state, err := New(Config{Prefix: "g1n", Slots: 1, MAC: [3]byte{2, 0, 1}, UnplugTimeout: 1, UnplugTries: 1})
	if err != nil {
		t.Fatal(err)
	}
	key := attachment.Key{Owner: "c1", Name: "eth0"}
	for r := range RequestID(5) { // room for more behind the fifth
		state, _ = Step(state, Attach{Request: r, Key: key})
	}
	var futures []State
	for r := range RequestID(2) {
		s, _ := Step(state, Attach{Request: 100 + r, Key: key})
		futures = append(futures, s)
	}
	for i, s := range futures {
		s, _ = Step(s, PlugSucceeded{Occupant{1, 1}})
		_, actions := Step(s, Connected{Occupant{1, 1}})
		if len(actions) != 6 {
			t.Fatalf("%d actions, want 6 replies", len(actions))
		}
		if got := actions[5].(Reply).Request; got != 100+RequestID(i) {
			t.Errorf("future %d answers request %d", i, got)
		}
	}
}
