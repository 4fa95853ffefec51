package hotplug

import (
	"errors"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What QEMU is told: with addr=0, or it would accept a second device on the
// port.
func TestDeviceAddArguments(t *testing.T) {
	a := DeviceAdd{ID: "nic3-1", Netdev: "net3-1", Bus: "rp3", MAC: "02:00:01:03:00:01"}
	want := map[string]any{
		"driver": "virtio-net-pci", "id": "nic3-1", "netdev": "net3-1",
		"bus": "rp3", "addr": "0", "mac": "02:00:01:03:00:01", "romfile": "",
	}
	if diff := cmp.Diff(want, a.Arguments()); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
}

// Callers tell the reasons of a refusal apart.
func TestReplyErrors(t *testing.T) {
	s, err := New(Config{Prefix: "g1n", Slots: 1, MAC: [3]byte{2, 0, 1}, UnplugTimeout: time.Second, UnplugTries: 1})
	if err != nil {
		t.Fatal(err)
	}
	s, _ = Step(s, Attach{Request: 1, Key: Key{"c1", "eth0"}})
	_, full := Step(s, Attach{Request: 2, Key: Key{"c2", "eth0"}})
	noSlot, ok := errors.AsType[*NoFreeSlotError](full[0].(Reply).Err)
	if want := (NoFreeSlotError{Slots: 1}); !ok || *noSlot != want {
		t.Errorf("got error %v, want %+v", full[0], want)
	}
	_, failed := Step(s, PlugFailed{Occupant: Occupant{1, 1}, Step: StepNetdev, Err: io.EOF})
	reply := failed[len(failed)-1].(Reply)
	if e, ok := errors.AsType[*PlugError](reply.Err); !ok || e.Step != StepNetdev || !errors.Is(reply.Err, io.EOF) {
		t.Errorf("got error %v, want a PlugError at netdev wrapping EOF", reply.Err)
	}
}

// News of slots that do not exist are as harmless as any other.
func TestUnknownSlot(t *testing.T) {
	s, err := New(Config{Prefix: "g1n", Slots: 1, MAC: [3]byte{2, 0, 1}, UnplugTimeout: time.Second, UnplugTries: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, slot := range []int{-1, 0, 2} {
		o := Occupant{Slot: slot, Generation: 1}
		for _, e := range []Event{PlugSucceeded{o}, PlugFailed{Occupant: o}, UnplugTimedOut{Timer{o, 1}}} {
			if _, actions := Step(s, e); len(actions) > 0 {
				t.Errorf("%T of slot %d calls for %v", e, slot, actions)
			}
		}
	}
}
