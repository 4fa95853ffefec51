package hotplug

import (
	"errors"
	"io"
	"testing"
	"time"

	"unnest.io/unnest/internal/hostd/attachment"
)

// Callers tell the reasons of a refusal apart.
func TestReplyErrors(t *testing.T) {
	s, err := New(Config{Prefix: "g1n", Slots: 1, MAC: [3]byte{2, 0, 1}, UnplugTimeout: time.Second, UnplugTries: 1})
	if err != nil {
		t.Fatal(err)
	}
	s, _ = Step(s, Attach{Request: 1, Key: attachment.Key{Owner: "c1", Name: "eth0"}})
	_, full := Step(s, Attach{Request: 2, Key: attachment.Key{Owner: "c2", Name: "eth0"}})
	noSlot, ok := errors.AsType[*NoFreeSlotError](full[0].(Reply).Err)
	if want := (NoFreeSlotError{Slots: 1}); !ok || *noSlot != want {
		t.Errorf("got error %v, want %+v", full[0], want)
	}
	_, failed := Step(s, PlugFailed{Occupant: Occupant{1, 1}, Step: StepNetdev, Err: io.EOF})
	reply := failed[len(failed)-1].(Reply)
	if e, ok := errors.AsType[*PlugError](reply.Err); !ok || e.Step != StepNetdev || !errors.Is(reply.Err, io.EOF) {
		t.Errorf("got error %v, want a PlugError at netdev wrapping EOF", reply.Err)
	}
	s, _ = Step(s, PlugSucceeded{Occupant{1, 1}})
	_, failed = Step(s, ConnectFailed{Occupant: Occupant{1, 1}, Err: io.EOF})
	reply = failed[0].(Reply)
	if e, ok := errors.AsType[*ConnectError](reply.Err); !ok || e.Occupant.Slot != 1 || !errors.Is(reply.Err, io.EOF) {
		t.Errorf("got error %v, want a ConnectError of slot 1 wrapping EOF", reply.Err)
	}
}

// Events about slots that do not exist are ignored.
func TestUnknownSlot(t *testing.T) {
	s, err := New(Config{Prefix: "g1n", Slots: 1, MAC: [3]byte{2, 0, 1}, UnplugTimeout: time.Second, UnplugTries: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, slot := range []int{-1, 0, 2} {
		o := Occupant{Slot: slot, Generation: 1}
		for _, e := range []Event{PlugSucceeded{o}, PlugFailed{Occupant: o}, Connected{o}, ConnectFailed{Occupant: o}, UnplugTimedOut{Timer{o, 1}}} {
			if _, actions := Step(s, e); len(actions) > 0 {
				t.Errorf("%T of slot %d calls for %v", e, slot, actions)
			}
		}
	}
}
