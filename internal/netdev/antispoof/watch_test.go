package antispoof

import (
	"context"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"unnest.io/unnest/internal/netdev/nft"
)

// watch watches the table until the test ends, and counts restores after that at its start.
func (n *network) watch(table *Table) *atomic.Int32 {
	n.t.Helper()
	n.nft("insert rule bridge "+tableName+` guard accept comment "start"`, "-f", "-") // for a start that shows
	ctx, stop := context.WithCancel(context.Background())
	ended, restores := make(chan error), &atomic.Int32{}
	go func() {
		ended <- table.Watch(ctx, func(g nft.Generation, err error) {
			if g.Process != "nft" || g.PID == 0 || err != nil {
				n.t.Errorf("restored after a change by %q (%d): %v", g.Process, g.PID, err)
			}
			restores.Add(1)
		})
	}()
	n.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			n.t.Error(err)
		}
	})
	for begin := time.Now(); strings.Contains(n.nft("", "list", "table", "bridge", tableName), `comment "start"`); {
		if time.Since(begin) > patience {
			n.t.Fatal("the watch does not begin") // frames do not tell: on a busy machine they may be late
		}
	}
	n.blocked("at its start")
	return restores
}

// blocked waits until forged frames are dropped.
func (n *network) blocked(what string) {
	n.t.Helper()
	begin := time.Now()
	for {
		if sent := n.send("g1", forged1); !n.arrives("g2", sent, 50*time.Millisecond) {
			break
		}
		if time.Since(begin) > patience {
			n.t.Errorf("%s: forged frames arrive after %v", what, time.Since(begin))
			return
		}
	}
	n.t.Logf("%s: blocked after %v", what, time.Since(begin))
}

// Whatever others do to the filter, it is back, with its ports. Package nft tests how soon. Changes
// of our own, and of other tables, restore nothing.
func TestWatch(t *testing.T) {
	inNetwork(t, func(n *network) {
		port := Port{"p1", mac1, addrs("10.0.0.1"), false, 0}
		table := open(n)
		n.check(table.Set(port))
		saved := n.save()
		restores := n.watch(table)
		rule := func(chain, text string) string {
			rules := n.nft("", "-a", "list", "chain", "bridge", tableName, chain)
			found := regexp.MustCompile(regexp.QuoteMeta(text) + `.*# handle (\d+)`).FindStringSubmatch(rules)
			if found == nil {
				t.Fatalf("no rule %q in\n%s", text, rules)
			}
			return found[1]
		}
		changes := map[string]func(){
			"flush ruleset": func() { n.nft("flush ruleset", "-f", "-") },
			"delete table":  func() { n.nft("delete table bridge "+tableName, "-f", "-") },
			"flush table":   func() { n.nft("flush table bridge "+tableName, "-f", "-") },
			"flush chain":   func() { n.nft("flush chain bridge "+tableName+" prerouting", "-f", "-") },
			"delete rule": func() {
				n.nft("delete rule bridge "+tableName+" check-ipv4 handle "+rule("check-ipv4", `"drop-ipv4"`), "-f", "-")
			},
			"insert rule":       func() { n.nft("insert rule bridge "+tableName+" guard accept", "-f", "-") },
			"delete element":    func() { n.nft("delete element bridge "+tableName+` ports { "p1" }`, "-f", "-") },
			"add element":       func() { n.nft("add element bridge "+tableName+` v4 { "p1" . 10.0.0.9 }`, "-f", "-") },
			"dormant":           func() { n.nft("add table bridge "+tableName+" { flags dormant; }", "-f", "-") },
			"restore":           func() { n.restore(saved) },
			"restore of others": func() { n.restore(`table inet mine { chain c { type filter hook input priority 0; }; }`) },
		}
		for what, change := range changes {
			before := restores.Load()
			change()
			n.blocked(what)
			for end := time.Now().Add(patience); restores.Load() == before && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			if got := restores.Load() - before; got != 1 {
				t.Errorf("%s: restored %d times, want once", what, got)
			}
			n.passes(what, true)
			wantPorts(n, table, []Port{port})
		}
		before := restores.Load()
		for range 10 {
			n.check(table.Set(Port{"p3", mac2, addrs("10.0.0.3"), false, 0}))
			n.check(table.Remove("p3"))
			n.nft(`table inet mine { chain c { type filter hook input priority 0; }; }; delete table inet mine`, "-f", "-")
		}
		n.check(table.Reset([]Port{port}))
		time.Sleep(time.Second) // longer than the watch takes, unless the machine is busy
		if got := restores.Load() - before; got != 0 {
			t.Errorf("restored %d times after changes of our own", got)
		}
	})
}

// A port is not known as guarded while the watch cannot restore the filter, or does not run.
func TestPortNotRestored(t *testing.T) {
	inNetwork(t, func(n *network) {
		port := Port{"p1", mac1, addrs("10.0.0.1"), false, 0}
		table := open(n)
		n.check(table.Set(port))
		watch := func(p Port) error {
			table.ports = map[string]Port{"p1": p}
			return table.Watch(context.Background(), nil)
		}
		long := port
		long.MAC = make([]byte, 20) // the kernel refuses it
		if err := watch(long); err == nil {
			t.Fatal("the watch begins: the test shows nothing")
		}
		if got, err := table.Port("p1"); err == nil {
			t.Errorf("not restored: got %v", got)
		}
		n.check(table.Reset([]Port{port}))
		if _, err := table.Port("p1"); err != nil {
			t.Errorf("set again: %v", err)
		}
		n.check(table.ns.Close())
		if err := watch(port); err == nil {
			t.Fatal("the watch begins: the test shows nothing")
		}
		if got, err := table.Port("p1"); err == nil {
			t.Errorf("not watched: got %v", got)
		}
	})
}
