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

// The name of another guest's TAP is never parsed as one of ours.
func TestForeignNames(t *testing.T) {
	for _, name := range []string{"", "g1n", "g1n1", "g1n1-", "g1n-1", "g1n1-0", "g1n0-1", "g1n01-1", "g1n1-01", "g1n1-A", "g1n+1-1", "g1n-1-1", "g1n1-1-1", "g1n1-1z141z4", "g1nn1-1", "g1m1-1", "G1n1-1"} {
		if o, ok := parseOccupant(name, "g1n"); ok {
			t.Errorf("TAP %q taken for %v", name, o)
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
		"cooldown of slots":  func(c *Config) { c.Cooldown = -1 },
		"1 warm NICs":        func(c *Config) { c.Shares, c.Pool = true, 1 },
	} {
		c := good
		spoil(&c)
		if _, err := New(c); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got error %v, want %s", err, want)
		}
	}
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
