package guestrun

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"unnest.io/unnest/internal/hostd/attachment"
	"unnest.io/unnest/internal/hostd/hotplug"
	"unnest.io/unnest/internal/hostd/record"
)

// Which boots are served and kept, and which are refused. daemon.TestGuestBootedAgain has those that end attachments.
func TestBooted(t *testing.T) { synctest.Test(t, testBooted) }

func testBooted(t *testing.T) {
	const first, second = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"
	now := time.Now()
	for _, c := range []struct {
		name string
		kept record.Boot
		id   string
		want error
		then record.Boot // without its time
	}{
		{"of a client that is too old", record.Boot{ID: first, Since: now}, "", nil, record.Boot{ID: first}},
		{"the first", record.Boot{}, first, nil, record.Boot{ID: first}},
		{"the same", record.Boot{ID: first, Since: now}, first, nil, record.Boot{ID: first}},
		{"another at once", record.Boot{ID: first, Since: now}, second, ErrManyBoot, record.Boot{ID: first}},
		{"another, in the future", record.Boot{ID: first, Since: now.Add(100 * time.Millisecond)}, second, ErrManyBoot, record.Boot{ID: first}},
	} {
		g, _ := fakeGuest(t)
		g.host.StateDir = t.TempDir()
		if c.kept != (record.Boot{}) {
			if err := record.WriteBoot(g.host.StateDir, g.Record.Name, c.kept); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := g.booted(t.Context(), c.id, false); !errors.Is(err, c.want) {
				t.Errorf("%s: got %v, want %v", c.name, err, c.want)
			}
		}
		then, err := record.ReadBoot(g.host.StateDir, g.Record.Name)
		if then.Since = (time.Time{}); err != nil || then != c.then {
			t.Errorf("%s: %v is kept, error %v; want %v", c.name, then, err, c.then)
		}
	}
}

// After a reset, late requests of the boots before are refused, and end nothing of the boot that has begun.
func TestBootsOfResets(t *testing.T) {
	g, _ := fakeGuest(t)
	g.host.StateDir = t.TempDir()
	ids := []string{"00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002", "00000000-0000-0000-0000-000000000003"}
	for _, id := range ids {
		if err := g.booted(t.Context(), id, false); err != nil {
			t.Fatal(err)
		}
		if id != ids[2] {
			g.endBoot()
		}
	}
	g.ended[ids[0]] = time.Now().Add(-time.Minute) // still refused
	for _, id := range ids[:2] {
		if err := g.booted(t.Context(), id, false); !errors.Is(err, ErrOldBoot) {
			t.Errorf("boot %s: got %v", id, err)
		}
	}
	if err := g.booted(t.Context(), ids[2], false); err != nil || g.boot.ID != ids[2] {
		t.Errorf("got %v, boot %v", err, g.boot)
	}
	if err := g.booted(t.Context(), "", true); err != nil || g.boot.ID != "" {
		t.Errorf("got %v; boot %v is kept, which would end what a client that is too old attaches", err, g.boot)
	}
}

// A boot that cannot be kept may attach nothing, because the next daemon would end that. A file that cannot be read is replaced.
func TestBootIsNotKept(t *testing.T) {
	const id = "00000000-0000-0000-0000-000000000001"
	g, _ := fakeGuest(t)
	g.host.StateDir = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(g.host.StateDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for attaches, want := range map[bool]bool{false: true, true: false} {
		if err := g.booted(t.Context(), id, attaches); (err == nil) != want || g.boot.ID == id {
			t.Errorf("attaches: %v: got %v, boot %v; want it served: %v", attaches, err, g.boot, want)
		}
	}
	g.host.StateDir = t.TempDir()
	path := record.BootPath(g.host.StateDir, g.Record.Name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := g.booted(t.Context(), id, false); err != nil || g.boot.ID != id {
		t.Errorf("got %v, boot %v; want %s", err, g.boot, id)
	}
}

// A NIC that is named by its MAC is detached only if the attachment still has it.
func TestCheckMAC(t *testing.T) {
	g, _ := fakeGuest(t)
	key := attachment.Key{Owner: "c1", Name: "eth0"}
	g.nics.trunk.ports[key] = vlanPort{id: 5}
	mac := g.nics.trunk.mac(5)
	for _, c := range []struct {
		key  attachment.Key
		mac  string
		want bool // refused
	}{
		{key, "", false}, {key, mac, false}, {key, strings.Replace(mac, "0a", "0e", 1), true},
		{attachment.Key{Owner: "c2", Name: "eth0"}, mac, false},
		{attachment.Key{Kind: attachment.Endpoint, Owner: "c1", Name: "eth0"}, "02:00:00:00:00:01", false},
	} {
		if err := g.nics.checkMAC(c.key, c.mac); errors.Is(err, ErrOtherNIC) != c.want {
			t.Errorf("%v with %q: got %v, want an error: %v", c.key, c.mac, err, c.want)
		}
	}
	// The guest keeps the NIC of an attachment that has ended. The next NIC of the same attachment is another one.
	kept, first := attachment.Key{Owner: "c3", Name: "eth0"}, hotplug.Occupant{Slot: 1, Generation: 1}
	state, err := hotplug.New(hotplug.Config{Prefix: "u1n", Slots: 1, MAC: g.Record.MACPrefix(), UnplugTimeout: time.Second, UnplugTries: 1})
	for _, e := range []hotplug.Event{
		hotplug.Attach{Request: 1, Key: kept}, hotplug.PlugSucceeded{Occupant: first}, hotplug.Connected{Occupant: first},
		hotplug.Detach{Request: 2, Key: kept}, hotplug.UnplugTimedOut{Timer: hotplug.Timer{Occupant: first, Try: 1}},
	} {
		state, _ = hotplug.Step(state, e)
	}
	if g.nics.state = state; err != nil || state.Slots()[0].Status != hotplug.Quarantined {
		t.Fatalf("the NIC is %+v, error %v; want it quarantined", state.Slots(), err)
	}
	if err := g.nics.checkMAC(kept, "0a:00:01:02:00:01"); err != nil {
		t.Errorf("another NIC than the quarantined one: %v", err)
	}
}

// The record of a boot that has ended stays if the directory cannot be written. Then the guest is not reset again, and late requests of
// that boot are refused.
func TestBootWhoseRecordStays(t *testing.T) {
	const before, id = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000002"
	g, _ := fakeGuest(t)
	g.host.StateDir = t.TempDir()
	kept := record.Boot{ID: before, Since: time.Now().Add(-time.Hour)}
	if err := record.WriteBoot(g.host.StateDir, g.Record.Name, kept); err != nil {
		t.Fatal(err)
	}
	var err error
	if g.shares, err = newShareSlots(g); err != nil {
		t.Fatal(err)
	}
	g.boot, g.ended = kept, map[string]time.Time{before: time.Now()}
	key := attachment.Key{Owner: "c1", Name: "eth0"}
	g.nics.trunk.ports[key] = vlanPort{}
	if err := g.booted(t.Context(), before, false); !errors.Is(err, ErrOldBoot) {
		t.Errorf("a late request: got %v", err)
	}
	if err := g.booted(t.Context(), id, false); err != nil || len(g.nics.trunk.ports) != 1 {
		t.Errorf("got %v, and the guest has %v; want its VLAN", err, g.nics.trunk.ports)
	}
}
