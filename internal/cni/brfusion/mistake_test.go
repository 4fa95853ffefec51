package brfusion_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"unnest.io/unnest/internal/cni/cnitest"
)

// A mistake that has come into the configuration after the ADD keeps no pod: DEL gives back the
// NIC, the address and the service path.
func TestDelWithMistake(t *testing.T) {
	newer := map[string]any{"cniVersion": "9.0.0", "interfaces": "many"}
	for _, c := range []struct {
		name string
		edit func(map[string]any)
		left string // in the log, for what a DEL cannot know
	}{
		{"mtu out of range", with("mtu", 20), ""},
		{"mtu of another type", with("mtu", "20"), ""},
		{"prevResult of another type", with("prevResult", "none"), ""},
		{"prevResult of a newer version", with("prevResult", newer), ""},
		{"wait", with("wait", "soon"), ""},
		{"bandwidth", with("bandwidth", map[string]any{"ingressRate": 1}), ""},
		{"services", with("services", []any{"10.96.0.0/12"}), ""},
		{"mode", with("mode", "hotplugg"), ""},
		{"bridge", with("bridge", 7), ""},
		{"capability", with("runtimeConfig", map[string]any{"bandwidth": "much"}), ""},
		{"valid attachments", with("cni.dev/valid-attachments", 1), ""},
		{"IPAM plugin is not installed", ipam("type", "nowhere-local"), `the address of c1 eth0 may stay leased: ipam.type "nowhere-local"`},
		{"IPAM without type", ipam("type", nil), `the address of c1 eth0 may stay leased: `},
		{"IPAM of another type", with("ipam", "host-local"), `the address of c1 eth0 may stay leased: `},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.Add(l.config(with("services", services)))
			a := l.Run("DEL", l.config(with("services", services), c.edit))
			if a.Exit != 0 || !strings.Contains(a.Stderr, c.left) {
				t.Errorf("DEL failed, or does not say %q", c.left)
			}
			if nics, links := l.daemon.all(), l.Links(l.Guest); len(nics) > 0 || len(links) > 0 {
				t.Errorf("left are NICs %v, links %v", nics, links)
			}
			if leases := l.leases(); (len(leases) > 0) != (c.left != "") {
				t.Errorf("leases are %v", leases)
			}
		})
	}
}

// Without the address of the daemon, or with a wrong one, the next command that reaches the daemon
// gives back the NIC.
func TestDelWithMistakeInServer(t *testing.T) {
	for _, server := range []any{"10.200.0.1", 7443, nil} {
		l := newLab(t)
		config := l.config()
		l.Add(config)
		a := l.Run("DEL", l.config(with("server", server)))
		if a.Exit != 0 || !strings.Contains(a.Stderr, "server") || len(l.Pending()) != 1 || len(l.leases()) != 0 {
			t.Errorf("server %v: DEL failed, or does not name the server; pending %v, leases %v", server, l.Pending(), l.leases())
		}
		l.Succeeds("DEL", config, "CNI_CONTAINERID=c2")
		l.wantNothing()
	}
}

// GC collects what it can with a mistake, and says what it cannot.
func TestGCWithMistake(t *testing.T) {
	running := func(c map[string]any) {
		c["cniVersion"], c["ipam"], c["services"] = "1.1.0", map[string]any{"type": "hostd"}, services
	}
	for _, c := range []struct {
		name string
		edit func(map[string]any)
		want string // in the error
		left bool
	}{
		{"mtu", with("mtu", "20"), "", false},
		{"prevResult", with("prevResult", "none"), "", false},
		{"IPAM plugin is not installed", ipam("type", "nowhere-local"), `ipam.type "nowhere-local"`, false},
		{"valid attachments", with("cni.dev/valid-attachments", "all"), "cni.dev/valid-attachments: got a string, want a list", true},
		{"server", with("server", "10.200.0.1"), `server "10.200.0.1": want IP-ADDRESS:PORT`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.Add(l.config(running))
			a := l.Run("GC", l.config(running, cnitest.Valid(), c.edit))
			if (a.Exit == 0) != (c.want == "") || !strings.Contains(a.Message(), c.want) {
				t.Errorf("got exit %d, want %q", a.Exit, c.want)
			}
			if left := len(l.daemon.all()) > 0; left != c.left {
				t.Errorf("the NIC is left: %v, want %v", left, c.left)
			}
		})
	}
}

// STATUS reports the mistake, as no ADD can succeed with it, but does what earlier DELs could not.
func TestStatusWithMistake(t *testing.T) {
	l := newLab(t)
	running := edits(with("cniVersion", "1.1.0"), with("ipam", map[string]any{"type": "hostd"}))
	config := l.config(running)
	l.Add(config)
	l.daemon.stop()
	l.Succeeds("DEL", config)
	l.daemon.start()
	if a := l.Run("STATUS", l.config(running, with("mtu", 20))); a.Code() != 50 || !strings.Contains(a.Message(), "mtu 20") {
		t.Errorf("STATUS: code %d, want 50", a.Code())
	}
	l.wantNothing()
}

// The kernel takes a name with % for a pattern: the pod would get another name.
func TestInterfaceNameThatIsPattern(t *testing.T) {
	l := newLab(t)
	a := l.Run("ADD", l.config(), "CNI_IFNAME=eth%d")
	if a.Code() != 4 || !strings.Contains(a.Message(), `interface name "eth%d"`) || len(l.Links(l.Pod)) > 0 || !slices.Equal(l.leases(), nil) {
		t.Errorf("ADD: code %d, pod has %v", a.Code(), l.Links(l.Pod))
	}
	l.Succeeds("DEL", l.config(), "CNI_IFNAME=eth%d")
	l.wantNothing()
}

// A runtime's GC leaves what another runtime of the guest has made for a network of the same name: the
// NIC, its path to services, and its address. Its own GC collects them, and so does each that is called
// for a NIC of an earlier plugin.
func TestAttackGCOfAnotherRuntime(t *testing.T) {
	l := newLab(t)
	l.plugin("some", `case $CNI_COMMAND in VERSION) echo '{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}';; ADD) echo '{"cniVersion":"1.1.0","ips":[{"address":"10.201.0.9/16"}]}';; esac`)
	edit := func(c map[string]any) {
		c["cniVersion"], c["services"], c["ipam"] = "1.1.0", services, map[string]any{"type": "some"}
	}
	l.Add(l.config(edit))
	if a := l.RunByAnother("GC", l.config(edit, cnitest.Valid())); a.Exit != 0 {
		t.Errorf("GC of the other runtime failed: %s", a.Stdout)
	}
	if len(l.daemon.all()) != 1 || len(l.Links(l.Guest)) != 1 {
		t.Errorf("GC of the other runtime has left NICs %v, links %v", l.daemon.all(), l.Links(l.Guest))
	}
	l.Succeeds("GC", l.config(edit, cnitest.Valid()))
	l.wantNothing()
	l.Add(l.config(edit))
	l.Must(os.RemoveAll(filepath.Join(l.Dir, "run", "runtimes"))) // of an earlier plugin
	l.Succeeds("GC", l.config(edit, cnitest.Valid()))
	l.wantNothing()
}
