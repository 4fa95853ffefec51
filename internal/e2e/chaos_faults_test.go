//go:build chaos

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/hostd/ipam"
)

// fault is something that fails. weight is how often it is chosen, relative to the others.
type fault struct {
	name   string
	weight int
	do     func(*chaos)
}

var chaosFaults = []fault{
	{"the daemon is killed", 8, func(c *chaos) { c.restartDaemon(unix.SIGKILL, nil) }},
	{"the daemon is stopped by SIGTERM", 4, func(c *chaos) { c.restartDaemon(unix.SIGTERM, nil) }},
	{"the daemon hangs", 4, func(c *chaos) { c.freeze(c.daemonPID()) }},
	{"a VMM hangs", 4, func(c *chaos) { c.freeze(c.anyGuest().node.PID) }},
	{"a guest is reset", 1, (*chaos).resetGuest},
	{"a VMM is killed", 1, (*chaos).replaceGuest},
	{"a TAP is deleted", 3, (*chaos).deleteTAP},
	{"a TAP is renamed", 4, (*chaos).renameTAP},
	{"rules are flushed", 4, (*chaos).flushRules},
	{"the disk is full", 3, (*chaos).fillDisk},
	{"the clock has moved", 3, (*chaos).moveClock},
	{"a bridge is down", 2, (*chaos).downBridge},
}

// fault makes one thing fail and, if nothing else would do that, repairs it.
func (c *chaos) fault() {
	c.t.Helper()
	all := 0
	for _, f := range chaosFaults {
		all += f.weight
	}
	if len(c.first) > 0 {
		c.cause(chaosFaults[c.first[0]])
		c.first = c.first[1:]
		return
	}
	at := c.faults.IntN(all)
	for _, f := range chaosFaults {
		if at -= f.weight; at < 0 {
			c.cause(f)
			return
		}
	}
}

func (c *chaos) cause(f fault) {
	c.t.Helper()
	c.t.Logf("%s: %s", time.Now().Format(time.TimeOnly), f.name)
	f.do(c)
	c.count("fault: " + f.name)
}

func (c *chaos) anyGuest() *chaosGuest { return c.guests[c.faults.IntN(len(c.guests))] }

// pause waits for a random time of up to most.
func (c *chaos) pause(most time.Duration) { time.Sleep(time.Duration(c.faults.Int64N(int64(most)))) }

// restartDaemon ends the daemon by a signal and starts another one. Meanwhile it calls change.
func (c *chaos) restartDaemon(s unix.Signal, change func()) {
	c.t.Helper()
	pid := c.daemonPID()
	c.check(unix.Kill(pid, s))
	c.eventually("the daemon has ended", func() bool { return ended(pid) })
	if change != nil {
		change()
	}
	c.pause(1500 * time.Millisecond)
	c.startDaemon()
}

func (c *chaos) freeze(pid int) {
	c.t.Helper()
	c.check(unix.Kill(pid, unix.SIGSTOP))
	c.pause(4 * time.Second)
	c.check(unix.Kill(pid, unix.SIGCONT))
}

// resetGuest resets a guest. Its pods are gone.
func (c *chaos) resetGuest() {
	c.t.Helper()
	g := c.anyGuest()
	m := g.node
	before, err := m.bootID()
	c.check(err)
	g.begin()
	c.check(m.reset())
	fresh, err := m.rebooted(before)
	c.check(err)
	fresh.put("unnest-volume")
	fresh.reclaim()
	g.end(fresh)
}

// replaceGuest kills a guest's VMM, and launches a guest of the same name.
func (c *chaos) replaceGuest() {
	c.t.Helper()
	g := c.anyGuest()
	g.begin()
	c.check(g.node.Kill())
	c.pause(3 * time.Second)
	c.check(c.fleet.Lab.RemoveGuest(g.options.Name))
	m := c.launch(g.options)
	c.prepare(m)
	g.end(m)
}

// inHost runs a command in the network namespace of the lab's host.
func (c *chaos) inHost(args ...string) (string, error) {
	var complaint bytes.Buffer // ip warns here of links that change while it lists them
	cmd := exec.Command("nsenter", append([]string{"--net=" + c.fleet.Lab.HostNS()}, args...)...)
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s%s", strings.Join(args, " "), err, out, &complaint)
	}
	return string(out), err
}

// taps lists the TAPs of pods by name, with their aliases.
func (c *chaos) taps() (all [][2]string) {
	c.t.Helper()
	out, err := c.inHost("ip", "-json", "link")
	c.check(err)
	var links []struct {
		Name  string `json:"ifname"`
		Alias string `json:"ifalias"`
	}
	c.check(json.Unmarshal([]byte(out), &links))
	for _, l := range links {
		if strings.Contains(l.Alias, "chaos-") {
			all = append(all, [2]string{l.Name, l.Alias})
		}
	}
	return all
}

// podOf returns the name of the pod in the alias of a TAP.
func podOf(alias string) string {
	_, rest, _ := strings.Cut(alias, "chaos-")
	digits := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if digits >= 0 {
		rest = rest[:digits]
	}
	return "chaos-" + rest
}

// deleteTAP deletes the TAP of a pod. Nothing can repair that: the pod is recreated later.
func (c *chaos) deleteTAP() {
	c.t.Helper()
	if taps := c.taps(); len(taps) > 0 {
		tap := taps[c.faults.IntN(len(taps))]
		c.damage(podOf(tap[1]))
		_, _ = c.inHost("ip", "link", "del", tap[0]) // its pod may have ended meanwhile
	}
}

func (c *chaos) damage(pod string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.damaged[pod] = true
}

// renameTAP renames the TAP of a pod, and gives it its name back.
func (c *chaos) renameTAP() {
	c.t.Helper()
	taps := c.taps()
	if len(taps) == 0 {
		return
	}
	tap := taps[c.faults.IntN(len(taps))]
	rename := func(from, to string) {
		for _, args := range [][]string{{"down"}, {"name", to}} {
			if _, err := c.inHost(append([]string{"ip", "link", "set", from}, args...)...); err != nil {
				return // its pod has ended meanwhile
			}
		}
		_, _ = c.inHost("ip", "link", "set", to, "up")
	}
	rename(tap[0], "renamed0")
	c.pause(2 * time.Second)
	rename("renamed0", tap[0])
}

// tables lists the daemon's tables of nftables.
func (c *chaos) tables() string {
	c.t.Helper()
	out, err := c.inHost("nft", "list", "tables")
	c.check(err)
	var all []string
	for line := range strings.Lines(out) {
		if strings.Contains(line, "unnest-") && !strings.Contains(line, "unnest-lab") {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return strings.Join(all, "\n")
}

// flushRules flushes the ruleset of the lab's host, as nftables.service does at its start. The
// daemon restores its tables.
func (c *chaos) flushRules() {
	c.t.Helper()
	before := c.tables()
	others, err := c.inHost("sh", "-c", "nft list ruleset | awk '/^table/ { skip = /unnest-/ && !/unnest-lab/ } !skip'")
	c.check(err)
	_, err = c.inHost("nft", "flush", "ruleset")
	c.check(err)
	begin := time.Now()
	restore := exec.Command("nsenter", "--net="+c.fleet.Lab.HostNS(), "nft", "-f", "-") // tables of the lab itself
	restore.Stdin = bytes.NewReader([]byte(others))
	if out, err := restore.CombinedOutput(); err != nil {
		c.fail("restore the lab's own rules: %v: %s", err, out)
	}
	for c.tables() != before {
		if time.Since(begin) > 10*time.Second {
			c.fail("rules are not back 10 s after a flush: have %q, want %q", c.tables(), before)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	c.slowest = max(c.slowest, time.Since(begin))
}

// fillDisk fills the file system of the daemon's state files for a while.
func (c *chaos) fillDisk() {
	c.t.Helper()
	path := filepath.Join(c.fleet.Lab.Dir, "cooling", "filler")
	f, err := os.Create(path)
	c.check(err)
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	c.check(f.Close())
	time.Sleep(2 * time.Second)
	c.pause(3 * time.Second)
	c.check(os.Remove(path))
}

// moveClock makes the state files look as if the clock had been moved by hours while the
// daemon was stopped: a clock cannot be moved for one process.
func (c *chaos) moveClock() {
	c.t.Helper()
	by := time.Duration(c.faults.IntN(49)-24) * time.Hour
	c.restartDaemon(unix.SIGTERM, func() {
		files, err := filepath.Glob(filepath.Join(c.fleet.Lab.Dir, "cooling", "*.json"))
		c.check(err)
		for _, path := range files {
			content, err := os.ReadFile(path)
			c.check(err)
			var cooling []ipam.Cooling
			c.check(json.Unmarshal(content, &cooling))
			for i := range cooling {
				cooling[i].Until = cooling[i].Until.Add(by)
			}
			content, err = json.Marshal(cooling)
			c.check(err)
			c.check(os.WriteFile(path, content, 0o600))
		}
	})
}

func (c *chaos) downBridge() {
	c.t.Helper()
	name := c.fleet.Policy.Tenants[c.faults.IntN(2)].Bridge
	_, err := c.inHost("ip", "link", "set", name, "down")
	c.check(err)
	c.pause(2 * time.Second)
	_, err = c.inHost("ip", "link", "set", name, "up")
	c.check(err)
}
