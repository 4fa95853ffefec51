package hotplug

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestNames(t *testing.T) {
	for _, tt := range []struct {
		o                        Occupant
		device, netdev, tap, mac string
	}{
		{Occupant{1, 1}, "nic1-1", "net1-1", "g1n1-1", "02:00:07:01:00:01"},
		{Occupant{3, 35}, "nic3-z", "net3-z", "g1n3-z", "02:00:07:03:00:23"},
		{Occupant{110, 65537}, "nic110-1ekh", "net110-1ekh", "g1n110-1ekh", "02:00:07:6e:00:01"},
		{Occupant{255, math.MaxUint32}, "nic255-1z141z3", "net255-1z141z3", "g1n255-1z141z3", "02:00:07:ff:ff:ff"},
	} {
		if got := tt.o.DeviceID(); got != tt.device {
			t.Errorf("device ID is %s, want %s", got, tt.device)
		}
		if got := tt.o.NetdevID(); got != tt.netdev {
			t.Errorf("netdev ID is %s, want %s", got, tt.netdev)
		}
		if got := tt.o.TAP("g1n"); got != tt.tap || len(tt.o.TAP("g12n")) > 15 {
			t.Errorf("TAP is %s, want %s, and at most 15 characters", got, tt.tap)
		}
		if got := tt.o.MAC([3]byte{2, 0, 7}); got != tt.mac {
			t.Errorf("MAC is %s, want %s", got, tt.mac)
		}
		if got, ok := parseOccupant(tt.tap, "g1n"); !ok || got != tt.o {
			t.Errorf("TAP %s is of %v, ours %t, want %v", tt.tap, got, ok, tt.o)
		}
	}
	if g := following(math.MaxUint32); g != 1 {
		t.Errorf("generation after the last is %d, want 1", g)
	}
}

// The text of another guest's TAP is never read as one of ours.
func TestForeignNames(t *testing.T) {
	for _, name := range []string{"", "g1n", "g1n1", "g1n1-", "g1n-1", "g1n1-0", "g1n0-1", "g1n01-1", "g1n1-01", "g1n1-A", "g1n+1-1", "g1n-1-1", "g1n1-1-1", "g1n1-1z141z4", "g1nn1-1", "g1m1-1", "G1n1-1"} {
		if o, ok := parseOccupant(name, "g1n"); ok {
			t.Errorf("TAP %q taken for %v", name, o)
		}
	}
}

func TestKeyValidate(t *testing.T) {
	for _, tt := range []struct {
		key Key
		ok  bool
	}{
		{Key{"c1", "eth0"}, true},
		{Key{strings.Repeat("a", 64), "abcdefghijklmno"}, true},
		{Key{strings.Repeat("a", 243), "eth0"}, true},
		{Key{strings.Repeat("a", 244), "eth0"}, false},
		{Key{"", "eth0"}, false},
		{Key{"c1", ""}, false},
		{Key{"c/1", "eth0"}, false},
		{Key{"c1", "eth/0"}, false},
		{Key{"c 1", "eth0"}, false},
		{Key{"c1", "eth0\n"}, false},
		{Key{"c1", "ethä"}, false},
		{Key{"@trunk", "eth0"}, true},
	} {
		if err := tt.key.Validate(); (err == nil) != tt.ok {
			t.Errorf("key %q: got error %v, want valid %t", tt.key, err, tt.ok)
		}
		if got, note, ok := ParseOwner(Owner(tt.key, "")); ok != tt.ok || ok && (got != tt.key || note != "") {
			t.Errorf("owner %q read back as %q, note %q, valid %t", Owner(tt.key, ""), got, note, ok)
		}
	}
}

// What an alias cannot hold is refused before anything is done.
func TestNotes(t *testing.T) {
	s, err := New(Config{Prefix: "g1n", Slots: 1, MAC: [3]byte{2, 0, 1}, UnplugTimeout: time.Second, UnplugTries: 1})
	if err != nil {
		t.Fatal(err)
	}
	key := Key{"c1", "eth0"}
	for note, want := range map[string]string{
		"":                       "unnest:c1/eth0",
		"net=a,ip=10.0.0.2/24":   "unnest:c1/eth0 net=a,ip=10.0.0.2/24",
		strings.Repeat("n", 240): "unnest:c1/eth0 " + strings.Repeat("n", 240),
		strings.Repeat("n", 241): "",
		"a b":                    "",
		"a\n":                    "",
		" ":                      "",
		"ä":                      "",
	} {
		alias := Owner(key, note)
		gotKey, gotNote, ok := ParseOwner(alias)
		if ok != (want != "") || ok && (alias != want || gotKey != key || gotNote != note) {
			t.Errorf("note %q gives alias %q, read back as %s, %q, valid %t", note, alias, gotKey, gotNote, ok)
		}
		next, actions := Step(s, Attach{Request: 1, Key: key, Note: note})
		reply, refused := actions[0].(Reply)
		if refused != (want == "") || refused && (reply.Err == nil || next.Slots()[0].Status != Free) {
			t.Errorf("attach with note %q: %v", note, actions)
		}
	}
	for _, alias := range []string{WarmOwner, "", "c1/eth0", "unnest:c1/eth0 ", "unnest: c1/eth0", "unnest:c1 /eth0", "unnest:c1/eth0  a"} {
		if k, note, ok := ParseOwner(alias); ok {
			t.Errorf("alias %q read as %s with note %q", alias, k, note)
		}
	}
}

func TestConfigValidate(t *testing.T) {
	good := Config{Prefix: "g1n", Slots: 8, MAC: [3]byte{2, 0, 1}, UnplugTimeout: time.Second, UnplugTries: 3}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Config){
		`TAP prefix ""`:      func(c *Config) { c.Prefix = "" },
		`TAP prefix "g1"`:    func(c *Config) { c.Prefix = "g1" },
		`TAP prefix "1g"`:    func(c *Config) { c.Prefix = "1g" },
		`TAP prefix "g-n"`:   func(c *Config) { c.Prefix = "g-n" },
		`TAP prefix "guest"`: func(c *Config) { c.Prefix = "guest" },
		"0 NIC slots":        func(c *Config) { c.Slots = 0 },
		"256 NIC slots":      func(c *Config) { c.Slots = 256 },
		"-1 warm NICs":       func(c *Config) { c.Pool = -1 },
		"9 warm NICs":        func(c *Config) { c.Pool = 9 },
		"MAC prefix 030001":  func(c *Config) { c.MAC[0] = 3 },
		"MAC prefix 000001":  func(c *Config) { c.MAC[0] = 0 },
		"unplug timeout 0s":  func(c *Config) { c.UnplugTimeout = 0 },
		"0 unplug tries":     func(c *Config) { c.UnplugTries = 0 },
	} {
		c := good
		spoil(&c)
		if _, err := New(c); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
}

func FuzzParseOwner(f *testing.F) {
	for _, seed := range []string{"", "unnest:", "unnest:c1/eth0", "unnest:c1/eth0 a/b", "unnest:c1/eth0 ", "unnest:/eth0", "unnest:c1/", "unnest:c1/a/b", "other:c1/eth0", "unnest:\x00/\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, alias string) {
		if k, note, ok := ParseOwner(alias); ok && (Owner(k, note) != alias || k.Validate() != nil) {
			t.Errorf("alias %q read as %q with note %q, which is written %q", alias, k, note, Owner(k, note))
		}
	})
}

func FuzzParseOccupant(f *testing.F) {
	for _, seed := range []string{"g1n1-1", "g1n255-1z141z3", "g1n01-1", "g1n1-+1", "g1n1_0-1", "g1n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if o, ok := parseOccupant(name, "g1n"); ok && (o.TAP("g1n") != name || o.Slot < 1 || o.Generation < 1) {
			t.Errorf("name %q read as %+v, which is written %q", name, o, o.TAP("g1n"))
		}
	})
}
