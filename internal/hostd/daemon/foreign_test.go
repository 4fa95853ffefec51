package daemon

import (
	"reflect"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostd/status"
)

// guest is a guest in the status of the daemon.
func (l *lab) guest(name string) (found status.Guest) {
	l.t.Helper()
	l.eventually("the daemon serves "+name, func() bool {
		s, err := status.Ask(l.t.Context(), l.dir)
		l.check(err)
		for _, g := range s.Guests {
			if g.Name == name && g.Error == "" {
				found = g
				return true
			}
		}
		return false
	})
	return found
}

func (l *lab) wantSlots(name string, free, foreign int) {
	l.t.Helper()
	g := l.guest(name)
	if g.SlotsFree != free || g.SlotsForeign != foreign || g.SlotsQuarantined != 0 {
		l.t.Errorf("%s has %d slots free, %d with other devices, %d quarantined: want %d, %d, 0", name, g.SlotsFree, g.SlotsForeign, g.SlotsQuarantined, free, foreign)
	}
}

// wantNoSlot checks that the guest gets no NIC, for a reason with the words.
func (m *machine) wantNoSlot(words string) {
	m.lab.t.Helper()
	if _, err := m.attach("more"); grpcstatus.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), words) {
		m.lab.t.Errorf("attach without a free slot: got %v, want ResourceExhausted with %q", err, words)
	}
}

// A named root port may have a device of the guest, from its start or plugged in by
// others. The daemon counts it, does not use it, and uses it when the device has gone.
func TestForeignDevicesOfQEMU(t *testing.T) {
	l := newLab(t)
	m := l.boot(1, 3, "-device", "virtio-rng-pci,bus=rp1,addr=0,id=rng1")
	m.record.Pool = 3
	m.write()
	l.serve(patience)
	l.wantSlots("node1", 2, 1)
	if g := l.guest("node1"); g.PoolTarget != 2 || len(g.NICs) != 1 || !reflect.DeepEqual(g.NICs[0], status.NIC{Slot: 1, State: "foreign", Device: "rng1"}) {
		t.Errorf("status is %+v, want rng1 in slot 1 and a pool of 2", g)
	}
	m.record.Pool = 0
	m.write()
	if free := m.free(); free != 2 { // asked for after the daemon has read the record again
		t.Errorf("%d slots are free, want 2", free)
	}
	l.check(m.owner.DeviceAdd(t.Context(), map[string]any{"driver": "virtio-rng-pci", "bus": "rp2", "addr": "0", "id": "rng2"}))
	if _, err := m.attach("c1"); err == nil {
		t.Error("a NIC was plugged into a port with another device")
	}
	l.eventually("the daemon has seen the other device", func() bool { return l.guest("node1").SlotsForeign == 2 })
	if nic := m.mustAttach("c1"); nic.GetSlot() != 3 {
		t.Errorf("the NIC is %v, want it in slot 3", nic)
	}
	m.wantNoSlot("no free NIC slot of 3 (2 with other devices, 0 unplugging, 0 quarantined)")
	l.check(m.owner.DeviceDel(t.Context(), "rng2"))
	m.reset()
	l.eventually("slot 2 is free", func() bool { return l.guest("node1").SlotsForeign == 1 && l.guest("node1").SlotsFree == 1 })
	m.wantNICs("3  warm " + m.property("nic3-1", "mac"))
}
