package hotplug

import (
	"maps"
	"slices"
	"testing"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/seedtest"
)

// Random sequences of events, each with its seed. The world checks what must hold after
// every step; this test checks what must hold at the end.
func TestModel(t *testing.T) {
	seedtest.Each(t, 2000, func(t *testing.T, seed uint64) int {
		w := newWorld(t, seed)
		for range 300 {
			w.move()
		}
		w.finish()
		return w.steps
	})
}

// finish detaches everything and checks that nothing is left.
func (w *world) finish() {
	w.finishPending()
	w.checkAnswered() // nothing is pending, so no request may wait
	if !w.up {
		w.observe()
		w.finishPending()
	}
	w.fillPool()
	for _, key := range keys {
		r := RequestID(len(w.requests) + 1)
		w.requests[r] = &request{}
		w.feed(Detach{Request: r, Key: key})
	}
	w.drained = true
	w.feed(Drain{})
	w.finishPending()
	if w.state.Draining() {
		w.failf("the drain has not ended")
	}
	w.checkAnswered()
	w.checkLeftovers()
	for _, s := range w.state.Slots() {
		if s.Status != Free && s.Status != Quarantined && (s.Status != Foreign || s.Device != "usb1") {
			w.failf("slot %d is %s in the end", s.Slot, s.Status)
		}
	}
	w.giveUpAll()
}

// checkLeftovers checks that nothing is left but the TAPs that QEMU keeps for devices which
// the guest has not given up.
func (w *world) checkLeftovers() {
	left := func() map[string]mark {
		all := maps.Clone(w.taps)
		maps.DeleteFunc(all, func(name string, m mark) bool {
			o, _ := parseOccupant(name, w.config.Prefix)
			_, kept := w.devices[o.DeviceID()]
			return name == "tap0" || m.ended && kept
		})
		return all
	}
	for i := 0; w.faults != none && i < 20 && len(left()) > 0; i++ {
		w.observe() // deletions that failed: the next looks find them
		w.finishPending()
	}
	if len(left()) != 0 || len(w.netdevs) != 0 || len(w.linked) != 0 {
		w.failf("left over: TAPs %v, netdevs %v, connected %v", left(), w.netdevs, w.linked)
	}
}

// fillPool refills until no NIC is wanted, and checks that the pool is full and that its
// NICs are not connected.
func (w *world) fillPool() {
	for i := 0; i < 100 && w.state.Deficit() > 0; i++ {
		w.feed(Refill{})
		w.finishPending()
	}
	for i := 0; w.faults == crashes && i < 20; i++ {
		w.observe() // disconnects that failed
		w.finishPending()
	}
	if free, warm := w.count(w.state, Free), w.count(w.state, Warm); !w.drained && free > 0 && warm < w.config.Pool {
		w.failf("%d NICs are warm and %d slots free, want %d warm", warm, free, w.config.Pool)
	}
	for _, s := range w.state.Slots() {
		tap := s.TAP(w.config.Prefix)
		if s.Status == Warm && w.faults != deletions && (w.linked[tap] != "" || !w.taps[tap].warm) {
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

// giveUpAll makes the guest give up all devices. After that every slot is free, except that
// of a foreign device.
func (w *world) giveUpAll() {
	_, foreign := w.devices["usb1"]
	for _, id := range slices.Sorted(maps.Keys(w.devices)) {
		if id != "usb1" {
			w.giveUp(id)
		}
	}
	w.finishPending()
	w.checkLeftovers()
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

// Two steps from the same state are independent.
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
