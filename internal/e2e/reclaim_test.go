package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/guest"
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

// lostPods is how many pods TestLostDELs starts, and lostReport the file for its page.
var (
	lostPods   = flag.Int("lost-pods", 64, "number of pods that TestLostDELs starts, of which a fifth lose their DEL")
	lostReport = flag.String("lost-report", "", "file for the page of TestLostDELs, in Markdown")
)

// lossy starts and ends pods, up to 40 at the same time, and loses every fifth DEL.
type lossy struct {
	*node
	t       *testing.T
	longest time.Duration  // from the last end of a pod until nothing was left
	kills   map[string]int // by what was killed
}

// killed is what the rounds kill, one of them each.
var killed = []string{"nothing", "the host daemon", "unnest-reclaim", "commands of the plugin"}

// TestLostDELs starts pods, loses the DEL of every fifth, and kills in turn nothing, the daemon, the program of unnest-reclaim.service and
// commands of the plugin. A minute after each round nothing is left. `make soak-lost-del` does so with 10,000 pods.
func TestLostDELs(t *testing.T) {
	pods := max(5, min(40, *lostPods/len(killed)))
	n := newNodes(t, func(f *fleet.Fleet) { f.Policy.Tenants[0].Cooldown = 10 * time.Second })
	l := &lossy{node: n.boot(fleet.Options{Name: "node1", VCPUs: 2, Memory: 2 << 30, Slots: pods + 10, Pool: 4}), t: t, kills: map[string]int{}}
	l.reclaim()
	config, err := json.Marshal(map[string]any{
		"cniVersion": "1.1.0", "name": "lossy", "type": "brfusion", "server": daemonAddress, "ipam": map[string]any{"type": "hostd"},
	})
	n.check(err)
	// As a runtime: what has failed is deleted, and done again with the same name.
	l.run("cat >/tmp/lossy.json <<'END'\n" + string(config) + "\nEND\n" + `cat >/tmp/lossy <<'END'
		call() { CNI_COMMAND=$1 CNI_CONTAINERID=$2 CNI_NETNS=/run/netns/$2 CNI_IFNAME=eth0 CNI_PATH=/usr/lib/cni /usr/lib/cni/brfusion </tmp/lossy.json; }
		pod=lossy$2
		case $1 in
		add) ip netns add $pod; until call ADD $pod >/tmp/$pod.out; do call DEL $pod >>/tmp/$pod.out; sleep 1; done ;;
		del) if [ $(($2 % 5)) != 0 ]; then call DEL $pod >>/tmp/$pod.out; fi; ip netns del $pod ;;
		esac` + "\nEND")
	begin, rounds := time.Now(), *lostPods/pods
	for round := range rounds {
		l.round(round, pods)
		if t.Failed() {
			return
		}
	}
	for _, victim := range killed[1:] {
		if l.kills[victim] == 0 && rounds >= len(killed) {
			t.Errorf("%s were never killed", victim)
		}
	}
	if *lostReport != "" {
		page := l.page(rounds*pods, rounds*pods/5, pods, time.Since(begin))
		n.check(os.WriteFile(filepath.Clean(*lostReport), []byte(page), 0o644))
	}
}

// round adds pods and ends them, while it kills what it is the turn of, and wants that nothing is left.
func (l *lossy) round(round, pods int) {
	l.t.Helper()
	n, victim := l.nodes, killed[round%len(killed)]
	each := func(what string) {
		ctx, stop := context.WithCancel(l.t.Context())
		ended := make(chan error, 1)
		go func() {
			defer close(ended)
			ended <- l.kill(ctx, victim)
		}()
		l.run(fmt.Sprintf("seq %d | xargs -P 8 -n 1 sh /tmp/lossy %s", pods, what))
		stop()
		n.check(<-ended)
	}
	gave := func() (n int) {
		n, _ = strconv.Atoi(strings.TrimSpace(l.run("grep -c 'gave back the NIC' /tmp/reclaim.log || true")))
		return n
	}
	before, begin := gave(), time.Now()
	each("add")
	added := time.Now()
	if got := n.guestStatus("node1").Attachments; got != pods {
		l.t.Errorf("%d pods have NICs, want %d", got, pods)
	}
	each("del")
	deleted := time.Now()
	what := ""
	for what = l.left(); what != "" && time.Since(deleted) < time.Minute; what = l.left() {
		time.Sleep(100 * time.Millisecond)
	}
	if what != "" {
		l.t.Errorf("round %d, with kills of %s, a minute after the last pod's end: %s\n%s", round+1, victim, what, l.run("tail -n 20 /tmp/reclaim.log"))
	}
	if got := gave() - before; victim == killed[0] && got != pods/5 {
		l.t.Errorf("round %d: unnest-reclaim gave %d NICs back, want %d", round+1, got, pods/5)
	}
	l.longest = max(l.longest, time.Since(deleted))
	l.t.Logf("round %d, %d pods, kills of %s: %v to add them, %v to end them with %d DELs lost, %v until nothing was left", round+1, pods, victim,
		added.Sub(begin).Round(time.Second), deleted.Sub(added).Round(time.Second), pods/5, time.Since(deleted).Round(10*time.Millisecond))
}

// kill kills a victim again and again, until ctx ends.
func (l *lossy) kill(ctx context.Context, victim string) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Duration(1000+rand.IntN(4000)) * time.Millisecond):
		}
		switch victim {
		case killed[0]:
			continue
		case killed[1]:
			once := true
			if _, err := l.nodes.killDaemons(func() bool { defer func() { once = false }(); return once }); err != nil {
				return err
			}
		case killed[2]:
			if _, err := l.try("kill -9 $(cat /tmp/reclaim.pid)", ""); err != nil {
				return err
			}
			l.reclaim()
		case killed[3]:
			if _, err := l.try("pkill -9 -f ^/usr/lib/cni/brfusion$", ""); err != nil { // none ran; the program that gives back has arguments
				continue
			}
		}
		l.kills[victim]++
	}
}

// podAddress is one that the daemon gives to pods: the guests' own have a 0 in place of the third number.
var podAddress = regexp.MustCompile(`10\.201\.[1-9]\d*\.\d+`)

// left says what pods that have ended still have: attachments, slots, addresses, TAPs and rules on the host, files in the guest.
func (l *lossy) left() string {
	s := l.nodes.guestStatus("node1")
	host := func(args ...string) string {
		return mustRun(l.t, append([]string{"nsenter", "--net=" + l.nodes.fleet.Lab.HostNS()}, args...)...)
	}
	links := host("ip", "-o", "link")
	var all []string
	want := func(what string, got, want any) {
		if got, want := fmt.Sprint(got), fmt.Sprint(want); got != want {
			all = append(all, fmt.Sprintf("%s %s, want %s", got, what, want))
		}
	}
	want("attachments", s.Attachments, 0)
	want("quarantined slots", s.SlotsQuarantined, 0)
	want("slots that are free or in the pool", s.SlotsFree+s.Pool, s.Slots)
	want("addresses in use", l.nodes.addressesInUse(), 0)
	want("TAPs", strings.Count(links, "alias unnest:"), s.Pool)
	want("TAPs of pods", strings.Count(links, "alias unnest:lossy"), 0)
	want("addresses of pods in the packet filter", len(podAddress.FindAllString(host("nft", "list", "set", "bridge", "unnest-antispoof", "v4"), -1)), 0)
	want("files of attachments", strings.TrimSpace(l.run("ls /run/unnest/runtimes/NIC | wc -l")), 0)
	return strings.Join(all, "; ")
}

func (l *lossy) page(pods, lost, together int, took time.Duration) string {
	host, err := machine.DescribeHost(l.t.Context())
	l.nodes.check(err)
	accel, err := guest.ChooseAccel("")
	l.nodes.check(err)
	return fmt.Sprintf(`# Pods whose DEL is lost

**Result.** %d pods started and ended, of which %d lost their DEL. A minute after the last of each %d pods had ended, nothing of them was left. The longest wait was %d ms.

For readers of [brfusion.md](../brfusion.md#when-a-del-is-lost) who want to know whether NICs and addresses leak. `+"`make soak-lost-del`"+` measures again and writes this page.

| killed with SIGKILL while pods start and end, in a quarter of the rounds each | times |
|---|---:|
| the host daemon | %d |
| unnest-reclaim, the program that gives NICs back | %d |
| commands of the CNI plugin | %d |

- %d pods run at the same time on one node. Eight start, or end, at once. A script calls the CNI plugin as a container runtime does: what fails is deleted and done
  again. For every fifth pod it calls no DEL, and nobody calls GC. A DEL that fails, or is killed, is not called again.
- After each round the test counts attachments, slots, addresses, TAPs, the addresses in the host's packet filter and the files of the guest. Only the NICs of the
  pool may be there.
- The run took %v. `+"`make soak-lost-del`"+` has 10,000 pods.

%s, accelerator %s, %s, %d processors, Linux %s.
`, pods, lost, together, l.longest.Milliseconds(), l.kills[killed[1]], l.kills[killed[2]], l.kills[killed[3]], together, took.Round(time.Second), time.Now().UTC().Format(time.DateOnly),
		accel.Accel, host.CPU, host.VCPUs, host.Kernel)
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
