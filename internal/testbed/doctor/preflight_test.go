package doctor

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// Before any work, a machine that lacks something gets one line with all of it, and one command
// for the packages.
func TestPreflight(t *testing.T) {
	for _, tt := range []struct {
		name    string
		spoil   func(*Probes)
		purpose Purpose
		want    string
	}{
		{"whole", func(*Probes) {}, ForMeasurements, ""},
		{"ordinary user", func(p *Probes) {
			p.Root = false
			p.Namespace = func(func(Namespace) error) error { return errors.New("operation not permitted") }
			p.LoadProgram = func() error { return errors.New("operation not permitted") }
		}, ForGuests, "this machine cannot run guests: root: running as an ordinary user: run unnest with sudo"},
		{"cleaning", func(p *Probes) { p.Root, p.LookPath = false, lacks("qemu-system-x86_64") }, ForCleaning,
			"this machine cannot remove what runs left: root: running as an ordinary user: run unnest with sudo"},
		{"cleaning as root", func(p *Probes) { p.LookPath = lacks("qemu-system-x86_64") }, ForCleaning, ""},
		{"packages", func(p *Probes) { p.LookPath = lacks("qemu-system-x86_64", "mmdebstrap", "sockperf") }, ForMeasurements,
			"this machine cannot run experiments: no qemu-system-x86_64 in PATH, no mmdebstrap in PATH, no sockperf in PATH: apt-get install mmdebstrap qemu-system-x86 sockperf"},
		{"tools of experiments", func(p *Probes) { p.LookPath = lacks("sockperf", "iperf3", "docker") }, ForGuests, ""},
		{"Ubuntu", func(p *Probes) {
			osReleaseOf("ID=ubuntu\nVERSION_ID=24.04\n", nil)(p)
			p.Stat, p.LookPath = absent(debianKeyring), lacks("gpg", "mmdebstrap")
		}, ForGuests, "this machine cannot run guests: no mmdebstrap in PATH, no debian-archive-keyring.gpg, no gpg in PATH: apt-get install debian-archive-keyring gpg mmdebstrap"},
		{"full disk", func(p *Probes) { p.FreeDisk = func(string) (uint64, error) { return 1 << 30, nil } }, ForGuests,
			"this machine cannot run guests: disk: 1.0 GiB free for /var/cache/unnest, want 4.0 GiB: free some space, or set UNNEST_CACHE to a directory elsewhere"},
		{"comma", func(p *Probes) { p.CacheDir = "/srv/a,b" }, ForGuests,
			"this machine cannot run guests: disk: /srv/a,b has a comma, which guests cannot have in their paths: set UNNEST_CACHE to a directory without one"},
		{"room for snapshots", func(p *Probes) {
			p.FreeDisk, p.HasImage = func(string) (uint64, error) { return 1 << 30, nil }, func() bool { return true }
		}, ForGuests, ""},
		{"two kinds", func(p *Probes) {
			device("/dev/net/tun")(p)
			p.LookPath = lacks("xz")
		}, ForGuests, "this machine cannot run guests: tun: no such file or directory: modprobe tun; start a container with --device /dev/net/tun --cap-add NET_ADMIN; no xz in PATH: apt-get install xz-utils"},
	} {
		p := whole()
		tt.spoil(&p)
		err := Preflight(t.Context(), p, tt.purpose)
		if (err == nil) != (tt.want == "") || err != nil && err.Error() != tt.want {
			t.Errorf("%s: got %v\nwant %s", tt.name, err, tt.want)
		}
	}
	t.Setenv("UNNEST_CACHE_GIB", "x")
	if err := Preflight(t.Context(), whole(), ForGuests); err == nil || !strings.Contains(err.Error(), "disk: UNNEST_CACHE_GIB=x: want a whole number of GiB") {
		t.Errorf("limit of the cache: got %v", err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := Preflight(stopped, whole(), ForGuests); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: got %v", err)
	}
}
