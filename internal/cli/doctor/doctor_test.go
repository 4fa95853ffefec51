package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/docs/schemas"
	"unnest.io/unnest/internal/cli/terminal"
	"unnest.io/unnest/internal/netdev/share"
	"unnest.io/unnest/internal/testbed/doctor"
	"unnest.io/unnest/internal/testbed/guest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// rich returns the probes of a machine with everything but KVM and a running
// container engine.
func rich() doctor.Probes {
	return doctor.Probes{
		Root: true, Arch: "amd64", CPUs: 2, CacheDir: "/root/.cache/unnest",
		Accel: func() (guest.Choice, error) { return guest.Choice{Accel: guest.TCG, Reason: "no /dev/kvm"}, nil },
		ReadFile: func(path string) (string, error) {
			switch path {
			case "/etc/os-release":
				return "ID=debian\nVERSION_ID=\"12\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n", nil
			case "/proc/sys/kernel/osrelease":
				return "6.1.0-30-amd64\n", nil
			}
			return "MemAvailable: 8388608 kB\n", nil
		},
		Stat:        func(string) error { return nil },
		OpenDevice:  func(string) error { return nil },
		LookPath:    func(program string) (string, error) { return "/usr/bin/" + program, nil },
		Output:      func(context.Context, string, ...string) (string, error) { return "version 7.2.22", nil },
		Dial:        func(string) error { return errors.New("connect: no such file or directory") },
		FreeDisk:    func(string) (uint64, error) { return 100 << 30, nil },
		Namespace:   func(try func(doctor.Namespace) error) error { return try(network{}) },
		LoadProgram: func() error { return nil },

		VolumeServer: func() (share.Program, error) {
			return share.Program{Path: "/usr/lib/qemu/virtiofsd", HostLocks: true}, nil
		},
	}
}

type network struct{}

func (network) AddLink(string) error { return nil }
func (network) Masquerade() error    { return nil }

// poor returns the probes of a machine that an ordinary user finds.
func poor() doctor.Probes {
	refused := errors.New("operation not permitted")
	p := rich()
	p.Root, p.CPUs = false, 1
	p.LookPath = func(string) (string, error) { return "", errors.New("not found") }
	p.OpenDevice = func(string) error { return refused }
	p.Namespace = func(func(doctor.Namespace) error) error { return errors.Join(refused, errors.New("on line two")) }
	p.LoadProgram = func() error { return refused }
	return p
}

func TestRun(t *testing.T) {
	const lacks = "this machine lacks what the quick start requires: root, qemu, tun, network namespaces, bridge, veth, nftables, ebpf, mmdebstrap, mkfs.ext4, xz, dpkg-deb, modprobe, ip, sockperf, iperf3"
	tests := []struct {
		name   string
		probes doctor.Probes
		colour bool
		err    string
	}{
		{"rich", rich(), false, ""},
		{"poor", poor(), false, lacks},
		{"poor-colour", poor(), true, lacks},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			err := Run(t.Context(), Options{Streams: terminal.Streams{Out: &out, Colour: tt.colour}, Probes: tt.probes})
			if got := text(err); got != tt.err {
				t.Errorf("error %q, want %q", got, tt.err)
			}
			golden := filepath.Join("testdata", tt.name+".golden")
			if *update {
				if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), out.String()); diff != "" {
				t.Errorf("output differs (-want +got):\n%s", diff)
			}
			for line := range strings.Lines(out.String()) {
				if line = strings.TrimSpace(line); !tt.colour && utf8.RuneCountInString(line) > 80 {
					t.Errorf("more than 80 columns: %s", line)
				}
			}
		})
	}
}

func TestRunJSON(t *testing.T) {
	var out bytes.Buffer
	opts := Options{Streams: terminal.Streams{Out: &out, Colour: true}, Probes: poor(), JSON: true}
	if err := Run(t.Context(), opts); err == nil {
		t.Error("poor machine: got no error")
	}
	o := schemas.Output{Name: "doctor", Title: "unnest doctor --json", Value: []doctor.Check{}}
	if err := o.Test("../../..", *update, out.Bytes()); err != nil {
		t.Error(err)
	}
	var got []map[string]any
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"name": "root", "state": "missing", "found": "running as an ordinary user", "remedy": "run unnest with sudo", "required": true}
	if diff := cmp.Diff(want, got[0]); diff != "" {
		t.Errorf("first check differs (-want +got):\n%s", diff)
	}
	if checks := doctor.Examine(t.Context(), poor()); len(got) != len(checks) {
		t.Errorf("%d checks printed of %d", len(got), len(checks))
	}
}

// Interrupted, the command prints no half truth.
func TestRunInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	err := Run(ctx, Options{Streams: terminal.Streams{Out: &out}, Probes: rich()})
	if !errors.Is(err, context.Canceled) || out.Len() > 0 {
		t.Errorf("got %v and\n%s", err, out.String())
	}
}

func TestNewCmd(t *testing.T) {
	t.Setenv("UNNEST_CACHE", "/cache")
	for _, tt := range []struct {
		args  []string
		json  bool
		noise time.Duration
	}{{nil, false, 0}, {[]string{"--json"}, true, 0}, {[]string{"--noise", "--json"}, true, time.Minute}} {
		var got Options
		cmd := NewCmd(terminal.Streams{}, func(_ context.Context, o Options) error { got = o; return nil })
		cmd.SetArgs(append([]string{}, tt.args...))
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got.JSON != tt.json || got.Noise != tt.noise || got.Probes.CacheDir != "/cache" {
			t.Errorf("%v: JSON %v, noise %v, cache %q", tt.args, got.JSON, got.Noise, got.Probes.CacheDir)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
