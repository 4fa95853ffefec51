package brfusion_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/cni/cnitest"
)

// A mistake that has come into the configuration after the ADD keeps no pod: DEL gives back the
// NIC, the address and the service path.
func TestDelWithMistake(t *testing.T) {
	newer := map[string]any{"cniVersion": "9.0.0", "interfaces": "many"}
	for _, c := range []struct {
		name string
		edit func(map[string]any)
	}{
		{"mtu out of range", with("mtu", 20)},
		{"mtu of another type", with("mtu", "20")},
		{"prevResult of another type", with("prevResult", "none")},
		{"prevResult of a newer version", with("prevResult", newer)},
		{"wait", with("wait", "soon")},
		{"bandwidth", with("bandwidth", map[string]any{"ingressRate": 1})},
		{"services", with("services", []any{"10.96.0.0/12"})},
		{"mode", with("mode", "hotplugg")},
		{"bridge", with("bridge", 7)},
		{"capability", with("runtimeConfig", map[string]any{"bandwidth": "much"})},
		{"valid attachments", with("cni.dev/valid-attachments", 1)},
		{"IPAM plugin is not installed", ipam("type", "nowhere-local")},
		{"IPAM without type", ipam("type", nil)},
		{"IPAM of another type", with("ipam", "host-local")},
		{"range of the IPAM plugin", ipam("ranges", wrongRange)},
		{"ranges of another type", ipam("ranges", "10.0.0.0/8")},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.Add(l.config(with("services", services)))
			l.Succeeds("DEL", l.config(with("services", services), c.edit))
			if links := l.Links(l.Guest); len(links) > 0 {
				t.Errorf("left are links %v", links)
			}
			l.wantNothing()
		})
	}
}

var wrongRange = []any{[]any{map[string]any{"subnet": "10.0.0.0/99"}}}

// A DEL that cannot know with which configuration the address was leased, as after a boot of the guest, keeps no pod if the plugin says
// that the configuration is wrong. Otherwise, and if the plugin fails with the configuration of the ADD, the DEL fails, and the next one succeeds.
func TestDelWithIPAMThatFails(t *testing.T) {
	const stays = "the address of c1 eth0 may stay leased: "
	for _, c := range []struct {
		name    string
		code    string // of the plugin
		noted   bool
		edit    func(map[string]any)
		success bool
		want    string
	}{
		{"not installed, not noted", "0", false, ipam("type", "nowhere-local"), true, stays + `ipam.type "nowhere-local"`},
		{"without type, not noted", "0", false, ipam("type", nil), true, stays},
		{"wrong range, not noted", "0", false, edits(ipam("type", "host-local"), ipam("ranges", wrongRange)), false, "/99"},
		{"says that it cannot decode, not noted", "6", false, with("log", false), true, stays},
		{"says that it is invalid", "7", true, with("log", false), true, stays},
		{"says to try again", "11", true, with("log", false), false, "not now"},
		{"says an error of its own", "100", true, with("log", false), false, "not now"},
		{"says an internal error", "999", true, with("log", false), false, "not now"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			script := fmt.Sprintf("#!/bin/sh\n[ $CNI_COMMAND = DEL ] && [ ! -e %s/well ] || exec %s/host-local\n", l.Dir, cnitest.PluginDir)
			script += fmt.Sprintf(`echo '{"cniVersion": "1.0.0", "code": %s, "msg": "not now"}'; exit 1`, c.code)
			l.Must(os.WriteFile(filepath.Join(l.Dir, "sometimes"), []byte(script), 0o755))
			sometimes := ipam("type", "sometimes")
			l.Add(l.config(sometimes))
			if !c.noted {
				l.Must(os.RemoveAll(filepath.Join(l.Dir, "run", "runtimes")))
			}
			a := l.Run("DEL", l.config(sometimes, c.edit))
			if (a.Exit == 0) != c.success || !strings.Contains(a.Stderr+a.Stdout, c.want) {
				t.Errorf("DEL: exit %d, want %q", a.Exit, c.want)
			}
			if nics := l.daemon.all(); len(nics) > 0 || len(l.leases()) != 1 {
				t.Errorf("left are NICs %v, leases %v", nics, l.leases())
			}
			l.Must(os.WriteFile(filepath.Join(l.Dir, "well"), nil, 0o644))
			l.Succeeds("DEL", l.config(sometimes))
			l.wantNothing()
		})
	}
}

// A DEL releases the address by the configuration that can: that of the ADD, if the DEL's has another plugin or none. It is repeated if one
// of them may succeed later.
func TestDelByTwoConfigurations(t *testing.T) {
	const both = "IgnoreUnknown=1\nIgnoreUnknown=1\n"
	for _, c := range []struct {
		name    string
		edit    func(map[string]any)
		calls   string // the arguments of each failed call
		success bool
		left    int
	}{
		{"not now, and then a mistake", with("log", false), both, false, 1},
		{"a mistake by both", with("mtu", 1300), both, true, 1},
		{"the same configuration", with("prevResult", map[string]any{"cniVersion": "1.0.0"}), "IgnoreUnknown=1\n", true, 1},
		{"the daemon's addresses", with("ipam", map[string]any{"type": "hostd"}), "", true, 0},
		{"another plugin", ipam("type", "none"), "", true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			l.plugin("none", "exit 0")
			l.Must(os.WriteFile(filepath.Join(l.Dir, "sometimes"), fmt.Appendf(nil, `#!/bin/sh
config=$(cat)
case $CNI_COMMAND:$config in DEL:*'"well":true'*) ;; DEL:*) echo $CNI_ARGS >>%[1]s/calls; code=7
case $config in *'"log":false'*) code=11; esac
echo '{"cniVersion": "1.0.0", "code": '$code', "msg": "not now"}'; exit 1; esac
printf %%s "$config" | exec %[2]s/host-local`, l.Dir, cnitest.PluginDir), 0o755))
			config := edits(ipam("type", "sometimes"), ipam("well", c.left == 0))
			l.Add(l.config(config), "CNI_ARGS=IgnoreUnknown=1")
			a := l.Run("DEL", l.config(config, c.edit), "CNI_ARGS=IgnoreUnknown=1")
			calls, _ := os.ReadFile(filepath.Join(l.Dir, "calls"))
			if (a.Exit == 0) != c.success || string(calls) != c.calls || len(l.leases()) != c.left {
				t.Errorf("DEL: exit %d, failed calls %q, left are %v", a.Exit, calls, l.leases())
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

// An ADD of another runtime that is called while a GC works keeps its NIC and its path to services: it waits.
func TestAttackGCDuringADDOfAnotherRuntime(t *testing.T) {
	l := newLab(t)
	edit := func(c map[string]any) {
		c["cniVersion"], c["services"], c["ipam"] = "1.1.0", services, map[string]any{"type": "hostd"}
	}
	added := make(chan cnitest.Answer, 1)
	l.daemon.collects = func() {
		go func() { added <- l.RunByAnother("ADD", l.config(edit)) }()
		for begin := time.Now(); len(added) == 0 && l.waiting("turns") == 0; time.Sleep(10 * time.Millisecond) {
			if time.Since(begin) > time.Minute {
				t.Error("ADD neither ends nor waits within a minute")
				return
			}
		}
	}
	l.Succeeds("GC", l.config(edit, cnitest.Valid()))
	if a := <-added; a.Exit != 0 || len(l.daemon.all()) != 1 || len(l.Links(l.Guest)) != 1 {
		t.Errorf("ADD: %s%s, NICs %v, links %v", a.Stdout, a.Stderr, l.daemon.all(), l.Links(l.Guest))
	}
	l.Succeeds("DEL", l.config(edit))
	l.wantNothing()
}
