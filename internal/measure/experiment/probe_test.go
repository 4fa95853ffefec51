package experiment

import (
	"strings"
	"testing"
	"time"
)

const probed = `name: x
suite: startup
configurations: [{name: NAT, stack: vm/containerd, network: nat}]
cases:
  - {name: start, title: Start, probe: start, timeout: 90s}
  - {name: b, probe: boot}
`

func TestProbes(t *testing.T) {
	s, err := Parse("x.yaml", []byte(probed))
	if err != nil {
		t.Fatal(err)
	}
	start, boot := s.Cases[0], s.Cases[1]
	if start.Probe != Start || start.Suite != "startup" || start.Group != "start" || start.Title != "Start" || start.Tool != "nerdctl" ||
		start.Primary != "start" || len(start.Metrics) != 3 || start.Timeout != 90*time.Second || start.Wall != 6*time.Second {
		t.Errorf("start is %+v", start)
	}
	if boot.Probe != Boot || boot.Title != "b" || boot.Primary != "total" || boot.Timeout != defaultTimeout || s.Profile != "" {
		t.Errorf("boot is %+v, profile %q", boot, s.Profile)
	}
	start.Metrics[0].Name = "changed"
	if again, _ := Parse("x.yaml", []byte(probed)); again.Cases[0].Metrics[0].Name != "start" {
		t.Error("experiments share their metrics")
	}
}

func TestProbeErrors(t *testing.T) {
	for _, tt := range []struct{ old, new, want string }{
		{"probe: boot", "probe: shutdown", `x.yaml:6: cases[1].probe: unknown probe "shutdown": want add, boot, ready, ready-four, start`},
		{"probe: boot", "probe: boot, duration: 1s", "cases[1].duration: a probe has no such key"},
		{"{name: b, probe: boot}", "{probe: boot}", "cases[1]: key name is missing"},
		{"timeout: 90s", "timeout: 1s", "cases[0].timeout: want more than the 6s"},
		{"name: b", "name: start", `"start" is already the name of cases[0]`},
		{"probe: boot", "suite: disk, probe: boot", "cases[1]"},
		{"suite: startup\n", "", "key suite is missing"},
	} {
		_, err := Parse("x.yaml", []byte(strings.Replace(probed, tt.old, tt.new, 1)))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.new, err, tt.want)
		}
	}
}
