package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/testbed/fleet"
)

// put copies a binary that `make build` has made into the guest.
func (m *node) put(name string) {
	m.nodes.t.Helper()
	m.putFile(filepath.Join(m.nodes.binaries, name))
}

// putFile copies a program of this machine into the guest, to a directory in its PATH.
func (m *node) putFile(path string) {
	m.nodes.t.Helper()
	f, err := os.Open(path)
	m.nodes.check(err)
	defer f.Close()
	m.nodes.check(m.ssh.Put(m.nodes.t.Context(), "/usr/local/bin/"+filepath.Base(path), 0o755, f))
}

// putJSON writes a value to a file in the guest.
func (m *node) putJSON(path string, v any) {
	m.nodes.t.Helper()
	content, err := json.Marshal(v)
	m.nodes.check(err)
	m.nodes.check(m.ssh.Put(m.nodes.t.Context(), path, 0o600, strings.NewReader(string(content))))
}

// network returns a network configuration list of a plugin and the plugins chained to it.
func network(version string, plugins ...map[string]any) map[string]any {
	return map[string]any{"cniVersion": version, "name": "conformance", "plugins": plugins}
}

func brfusionPlugin(keys map[string]any) map[string]any {
	p := map[string]any{"type": "brfusion", "server": daemonAddress, "ipam": map[string]any{"type": "hostd"}}
	for k, v := range keys {
		p[k] = v
	}
	return p
}

// whatItDoes are the checks of what a plugin does with pods. How it refuses wrong parameters does
// not depend on its configuration, so one configuration is checked for that.
const whatItDoes = "--run '^(add|del|check|parallel|crash|status|gc|chain)(-|$)' "

// silence is more than a case of the checks may take. A guest whose kernel hangs ends none.
const silence = 5 * time.Minute

// Our plugin and the reference plugin pass the same checks in the same guest. Each version of the
// specification is checked once, the newest also on a trunk. The guest has one processor: with two
// emulated ones its kernel once stopped answering in the middle of an unplug, for an unknown
// reason. TestChurn plugs in parallel on two.
func TestConformance(t *testing.T) {
	n := newNodes(t, func(f *fleet.Fleet) { f.Policy.Tenants[0].Limits.RequestsPerSecond = 0 })
	m := n.boot(fleet.Options{Name: "node1", VCPUs: 1, Slots: 24, Pool: 4})
	m.put("unnest-conformance")
	m.run("modprobe -a bridge veth iptable_nat 8021q")
	hostLocal := map[string]any{"type": "host-local", "ranges": [][]map[string]string{{{"subnet": "10.77.0.0/24"}}}, "routes": []map[string]string{{"dst": "0.0.0.0/0"}}}
	inTenant := map[string]any{"type": "host-local", "ranges": [][]map[string]string{{{
		"subnet": "10.201.0.0/16", "rangeStart": "10.201.240.1", "rangeEnd": "10.201.240.200", "gateway": "10.201.0.1",
	}}}}
	for _, c := range []struct {
		name  string
		list  map[string]any
		flags string
	}{
		{"reference bridge", network("1.0.0", map[string]any{"type": "bridge", "bridge": "cni9", "isGateway": true, "ipam": hostLocal}),
			"--spare-links 1 --version 1.0.0 --kills 1"},
		{"brfusion", network("1.1.0", brfusionPlugin(nil)), "--peer 10.201.0.1 --spare-links 4 --kills 2 --version 0.3.1 --version 0.4.0 --version 1.1.0"},
		{"brfusion with host-local", network("1.0.0", brfusionPlugin(map[string]any{"ipam": inTenant})), whatItDoes + "--peer 10.201.0.1 --spare-links 4 --version 1.0.0 --kills 1"},
		{"brfusion on a trunk", network("1.1.0", brfusionPlugin(map[string]any{"mode": "trunk"})), whatItDoes + "--peer 10.201.0.1 --spare-links 5 --version 1.1.0 --kills 2"},
		{"brfusion in a chain", network("1.0.0", brfusionPlugin(nil), map[string]any{"type": "tuning"},
			map[string]any{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}}), whatItDoes + "--peer 10.201.0.1 --spare-links 4 --version 1.0.0 --kills 1"},
	} {
		passed := t.Run(c.name, func(t *testing.T) {
			m.putJSON("/tmp/network.conflist", c.list)
			begin := time.Now()
			out, err := m.whileItPrints(silence, "unnest-conformance --cni-path /usr/lib/cni "+c.flags+" /tmp/network.conflist")
			lines := strings.Split(strings.TrimSpace(out), "\n")
			if err != nil || strings.Count(out, "pass") < 26 {
				failed := slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return !strings.HasPrefix(l, "fail") })
				t.Errorf("%v:\n%s\n%s\nthese failed:\n%s", err, out, m.kernel(), strings.Join(failed, "\n")) // at the end of a long output
			}
			t.Logf("%v: %s", time.Since(begin).Round(time.Second), lines[len(lines)-1])
		})
		if !passed { // the guest is no longer as the next configuration needs it
			return
		}
	}
	if s := n.guestStatus("node1"); s.Attachments != 0 || s.SlotsQuarantined != 0 {
		t.Errorf("after the checks: %d attachments, %d quarantined slots, want none", s.Attachments, s.SlotsQuarantined)
	}
}

// churned is the output of unnest-conformance churn.
type churned struct {
	Adds     int      `json:"adds"`
	Dels     int      `json:"dels"`
	Verified int      `json:"verified"`
	Retries  int      `json:"add_retries"`
	Failures []string `json:"failures"`
}

// churnSize returns the number of pods at the same time and the number of rounds. `make e2e TEST=TestChurn UNNEST_SOAK=1`
// fills a node three times, which takes five minutes.
func churnSize() (pods, rounds int) {
	if os.Getenv("UNNEST_SOAK") == "1" {
		return 110, 3
	}
	return 40, 2
}

// Many pods come and go in random order, eight at a time, while the daemon is killed
// repeatedly.
func TestChurn(t *testing.T) {
	pods, rounds := churnSize() // the first round fills the node
	n := newNodes(t, func(f *fleet.Fleet) { f.Policy.Tenants[0].Cooldown = 10 * time.Second })
	m := n.boot(fleet.Options{Name: "node1", VCPUs: 2, Memory: 2 << 30, Slots: pods + 10, Pool: 4})
	m.put("unnest-conformance")
	m.putJSON("/tmp/network.conflist", network("1.1.0", brfusionPlugin(nil)))
	before := m.run("ls /sys/class/net")

	ctx, stop := context.WithCancel(t.Context())
	killed := make(chan int)
	go func() {
		kills, err := n.killDaemons(func() bool {
			select {
			case <-ctx.Done():
				return false
			case <-time.After(time.Duration(2000+rand.IntN(4000)) * time.Millisecond):
				return true
			}
		})
		if err != nil {
			t.Error(err)
		}
		killed <- kills
	}()
	begin := time.Now()
	out, err := m.try(fmt.Sprintf("unnest-conformance churn --cni-path /usr/lib/cni --retry 3m --pods %d --parallel 8 --rounds %d --peer 10.201.0.1 /tmp/network.conflist 2>/tmp/churn.log",
		pods, rounds-1), "")
	stop()
	kills := <-killed
	var got churned
	if jsonErr := json.Unmarshal([]byte(out), &got); err != nil || jsonErr != nil {
		t.Fatalf("%v, %v: %s\n%s", err, jsonErr, out, m.run("tail -n 20 /tmp/churn.log"))
	}
	t.Logf("%d pods, %d ADDs (%d retried), %d DELs, %d verifications, daemon killed %d times, %v",
		pods, got.Adds, got.Retries, got.Dels, got.Verified, kills, time.Since(begin).Round(time.Second))
	if len(got.Failures) > 0 || got.Adds < pods*rounds || got.Dels < got.Adds || got.Verified < 2*got.Adds || kills < 3 {
		t.Errorf("%+v", got)
	}
	// The daemon may have been dead during the last DELs. The next command finishes them.
	if _, err := m.brfusion("STATUS", "none", nil); err != nil {
		t.Error(err)
	}
	n.eventually("nothing is attached", func() bool { return n.guestStatus("node1").Attachments == 0 })
	if s := n.guestStatus("node1"); s.SlotsQuarantined != 0 || s.SlotsFree+s.Pool < s.Slots {
		n.eventually("all slots are free or in the pool", func() bool {
			s := n.guestStatus("node1")
			return s.SlotsQuarantined == 0 && s.SlotsFree+s.Pool == s.Slots
		})
	}
	for _, tenant := range n.status().Tenants {
		if tenant.AddressesInUse != 0 || tenant.Attachments != 0 {
			t.Errorf("leaked addresses or attachments: %+v", tenant)
		}
	}
	links := mustRun(t, "nsenter", "--net="+n.fleet.Lab.HostNS(), "ip", "-o", "link")
	if strings.Contains(links, "unnest:c") || strings.Count(links, "u1n") > 2*4 {
		t.Errorf("leaked ports:\n%s", links)
	}
	pool := n.guestStatus("node1").Pool
	if after := m.run("ls /sys/class/net"); len(strings.Fields(after)) > len(strings.Fields(before))+pool {
		t.Errorf("links of the guest: %q, before: %q, with %d in the pool", after, before, pool)
	}
}
