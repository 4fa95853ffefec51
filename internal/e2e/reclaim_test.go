package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// reclaim starts the program of the unit that gives NICs of ended pods back. It ends with the test, unless the guest ends before.
func (m *node) reclaim() {
	m.nodes.t.Helper()
	unit, err := os.ReadFile("../../deploy/systemd/unnest-reclaim.service")
	m.nodes.check(err)
	_, program, _ := strings.Cut(string(unit), "ExecStart=")
	program, _, _ = strings.Cut(program, "\n")
	m.run("setsid " + strings.Replace(program, "10.201.0.1:7443", daemonAddress, 1) + " >>/tmp/reclaim.log 2>&1 </dev/null & echo $! >/tmp/reclaim.pid")
	m.nodes.t.Cleanup(func() { _, _ = m.try("kill $(cat /tmp/reclaim.pid)", "") })
}

// addressesInUse are those of all tenants.
func (n *nodes) addressesInUse() (count int) {
	n.t.Helper()
	for _, t := range n.status().Tenants {
		count += t.AddressesInUse
	}
	return count
}

// lostDEL ends pods without a DEL: their NIC, VLAN or endpoint of a segment is given back within seconds. A network namespace that
// a process or a mount holds keeps them until that ends, too.
func lostDEL(t *testing.T, m *node) {
	n := m.nodes
	m.reclaim()
	trunk := map[string]any{"mode": "trunk"}
	m.pod("lost", nil)
	m.pod("lost-vlan", trunk)
	m.pod("by-mount", nil)
	m.pod("by-process", trunk)
	m.pod("lives", nil)
	m.fraction("lost-fraction", podSegment)
	m.run(`touch /tmp/held && mount --bind /run/netns/by-mount /tmp/held && ip netns del by-mount
		setsid ip netns exec by-process sleep 3600 >/dev/null 2>&1 </dev/null & echo $! >/tmp/holder
		until [ "$(readlink /proc/$(cat /tmp/holder)/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.1; done
		ip netns del by-process`)
	lose := func(want int, script string) {
		t.Helper()
		begin := time.Now()
		m.run(script)
		n.within(time.Minute, fmt.Sprintf("%d attachments are left after %s", want, script), func() bool { return n.guestStatus("node1").Attachments == want })
		t.Logf("%d attachments are left %v after %s", want, time.Since(begin).Round(10*time.Millisecond), script)
	}
	lose(5, "ip netns del lost")
	lose(4, "ip netns del lost-vlan")
	lose(3, "ip netns del lost-fraction")
	if s := n.status().Segments; len(s) != 0 {
		t.Errorf("segments are left: %+v", s)
	}
	if _, err := m.brfusion("DEL", "lost", nil); err != nil { // it comes late
		t.Error(err)
	}
	if s := n.guestStatus("node1"); s.Attachments != 3 {
		t.Errorf("%d attachments, want those of the pod that lives and of the held ones", s.Attachments)
	}
	m.wantReach("lives", gateway, true)
	lose(2, "kill $(cat /tmp/holder)") // first: it has a copy of the mount
	lose(1, "umount /tmp/held")

	m.pod("without-daemon", nil)
	n.killDaemon()
	m.run("ip netns del without-daemon")
	n.startDaemon()
	lose(1, "true")
	n.eventually("only the ports of the pool, of the trunk, and of the pod that lives are left", func() bool {
		links := mustRun(t, "nsenter", "--net="+n.fleet.Lab.HostNS(), "ip", "-o", "link")
		return strings.Count(links, "alias unnest:lives/") == 1 && strings.Count(links, "alias unnest:") == 2+n.guestStatus("node1").Pool
	})
	if got := n.addressesInUse(); got != 2 {
		t.Errorf("%d addresses in use, want those of the pod that lives", got)
	}
	if left := m.run("ls /run/unnest/runtimes/*; cat /tmp/reclaim.log"); strings.Count(left, ":eth0") != 1 || strings.Count(left, "gave ") != 6 {
		t.Errorf("want one file of an attachment, and six given back:\n%s", left)
	}
	m.removePods(nil, "lives")
}

// loseDELs starts pods, ends each, and loses every fifth DEL. At the end nothing may be left.
func (m *node) loseDELs(t *testing.T, pods int) {
	n := m.nodes
	m.reclaim()
	config, err := json.Marshal(map[string]any{
		"cniVersion": "1.1.0", "name": "lossy", "type": "brfusion", "server": daemonAddress, "ipam": map[string]any{"type": "hostd"},
	})
	n.check(err)
	m.run("cat >/tmp/lossy.json <<'END'\n" + string(config) + "\nEND\n" + `cat >/tmp/lossy <<'END'
		call() { CNI_COMMAND=$1 CNI_CONTAINERID=$2 CNI_NETNS=/run/netns/$2 CNI_IFNAME=eth0 CNI_PATH=/usr/lib/cni /usr/lib/cni/brfusion </tmp/lossy.json; }
		pod=lossy$2
		case $1 in
		add) ip netns add $pod; until call ADD $pod >/tmp/$pod.out; do sleep 1; done ;;
		del) if [ $(($2 % 5)) != 0 ]; then call DEL $pod >>/tmp/$pod.out; fi; ip netns del $pod ;;
		esac` + "\nEND")
	each := func(what string) { m.run(fmt.Sprintf("seq %d | xargs -P 8 -n 1 sh /tmp/lossy %s", pods, what)) }
	rounds, err := strconv.Atoi(cmp.Or(os.Getenv("UNNEST_ROUNDS"), "1"))
	n.check(err)
	for round := range rounds {
		begin := time.Now()
		each("add")
		added := time.Now()
		if got := n.guestStatus("node1").Attachments; got != pods {
			t.Errorf("%d pods have NICs, want %d", got, pods)
		}
		each("del")
		deleted := time.Now()
		n.within(time.Minute, "all slots are free or in the pool", func() bool {
			s := n.guestStatus("node1")
			return s.Attachments == 0 && s.SlotsQuarantined == 0 && s.SlotsFree+s.Pool == s.Slots
		})
		t.Logf("round %d, %d pods: %v to add them, %v to end them with %d DELs lost, %v until nothing was left", round+1, pods,
			added.Sub(begin).Round(time.Second), deleted.Sub(added).Round(time.Second), pods/5, time.Since(deleted).Round(10*time.Millisecond))
		if got := n.addressesInUse(); got != 0 {
			t.Errorf("%d addresses are still in use", got)
		}
		want := fmt.Sprintf("0\n%d", (round+1)*(pods/5))
		if got := strings.TrimSpace(m.run("ls /run/unnest/runtimes/NIC | wc -l; grep -c 'gave back the NIC' /tmp/reclaim.log")); got != want {
			t.Errorf("files of attachments, and NICs given back: %q, want %q", got, want)
		}
	}
	m.run("kill $(cat /tmp/reclaim.pid)")
}

// A guest that is reset while there is no daemon tells the next one that it has booted: what its pods had is free.
func (m *node) resetWithoutDaemon(t *testing.T) *node {
	n := m.nodes
	m.pod("before", nil)
	m.pod("before-vlan", map[string]any{"mode": "trunk"})
	boot, err := m.bootID()
	n.check(err)
	n.killDaemon()
	n.check(m.reset())
	m, err = m.rebooted(boot)
	n.check(err)
	n.startDaemon()
	n.eventually("the next daemon has taken the NICs over", func() bool { return n.guestStatus("node1").Attachments == 2 })
	begin := time.Now()
	m.reclaim()
	n.within(time.Minute, "the attachments are gone", func() bool { return n.guestStatus("node1").Attachments == 0 && n.addressesInUse() == 0 })
	t.Logf("free %v after the guest's process has started", time.Since(begin).Round(10*time.Millisecond))
	return m
}
