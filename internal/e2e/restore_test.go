package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/image"
)

func (n *nodes) snapshots() *guest.Snapshots {
	return &guest.Snapshots{Cache: image.CacheDir(), Progress: func(step string) { n.t.Log(step) }}
}

// clockAhead returns how far the guest's clock is ahead of the host's: of several answers, that
// which took the shortest time.
func (m *node) clockAhead() (ahead, took time.Duration) {
	m.nodes.t.Helper()
	s, err := m.openShell("sh")
	m.nodes.check(err)
	took = time.Hour
	for range 10 {
		asked := time.Now()
		out, err := s.do("date +%s%N")
		answered := time.Since(asked)
		m.nodes.check(err)
		ns, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
		m.nodes.check(err)
		if answered < took {
			took, ahead = answered, time.Unix(0, ns).Sub(asked.Add(answered/2))
		}
	}
	m.nodes.check(s.close())
	return ahead, took
}

// clockTolerance is how far the clock of a restored guest may be from the host's.
const clockTolerance = 100 * time.Millisecond

func (m *node) wantClock() {
	m.nodes.t.Helper()
	if ahead, took := m.clockAhead(); ahead.Abs() > clockTolerance+took/2 {
		m.nodes.t.Errorf("%s: the clock is %v ahead (asked for %v), want at most %v", m.Name, ahead, took, clockTolerance)
	}
}

// identityScript prints what no two guests may have in common, one per line.
const identityScript = `cat /etc/hostname /proc/sys/kernel/random/boot_id /proc/sys/kernel/random/uuid
head -c 16 /dev/urandom | md5sum
sha256sum /etc/dropbear/* /etc/unnest/client.key /etc/unnest/client.crt | cut -d" " -f1
cat /sys/class/net/mgmt/address /sys/class/net/eth0/address
ip -o -4 address show dev mgmt | cut -d" " -f7; ip -o -4 address show dev eth0 | cut -d" " -f7
grep -s . /etc/machine-id /var/lib/dbus/machine-id || echo none $(hostname)
ctr version | sed -n "s/.*UUID: //p"`

// Two guests that are restored from one snapshot have nothing in common that identifies a
// guest, its container engine or a container, their clocks are right, and pods in them get NICs
// and reach each other. Their container engine runs before anybody starts it.
func TestRestoredGuests(t *testing.T) {
	n := newNodes(t, nil)
	all := n.bootAll(2, fleet.Options{Slots: 2, Snapshots: n.snapshots()})
	seen := map[string]string{}
	for _, m := range all {
		if !m.Restored() {
			t.Errorf("%s was not restored: %v", m.Name, m.NotRestored)
		}
		m.wantClock()
		container := strings.TrimSpace(m.run("nerdctl run --detach --net none " + containerImage + " true"))
		lines := append(strings.Split(strings.TrimSpace(m.run(identityScript)), "\n"), container)
		if len(lines) < 14 || lines[0] != m.Name {
			t.Errorf("%s: its identity is %q", m.Name, lines)
		}
		for _, line := range lines {
			if seen[line] != "" {
				t.Errorf("%s and %s have the same %s", m.Name, seen[line], line)
			}
			seen[line] = m.Name
		}
		m.run("[ ! -e /run/unnest.up ] && /etc/unnest/engine && [ -e /run/unnest.up ]")
	}
	address := all[1].pod("p2", nil)[0]
	all[0].pod("p1", nil)
	all[0].wantReach("p1", address, true)
}

// When a command is killed that freezes or restores a guest, its guest ends, or `unnest clean`
// ends it, which also removes the files.
func TestRestoreKilled(t *testing.T) {
	n := newNodes(t, nil) // builds the image
	unnest, cache := filepath.Join(n.binaries, "unnest"), t.TempDir()
	dir := filepath.Dir(n.image.Root)
	n.check(os.Symlink(dir, filepath.Join(cache, filepath.Base(dir))))

	freeze := exec.Command(unnest, "vm", "up", "killed")
	freeze.Env = append(os.Environ(), "UNNEST_CACHE="+cache)
	n.check(freeze.Start())
	n.eventually("a guest is being frozen", func() bool { return len(qemus(t, cache+"/snapshot-")) > 0 })
	n.check(freeze.Process.Kill())
	_ = freeze.Wait()
	n.eventually("the guest ends", func() bool { return len(qemus(t, cache)) == 0 })
	t.Setenv("UNNEST_CACHE", cache)
	mustRun(t, unnest, "clean")
	if left, err := filepath.Glob(filepath.Join(cache, "snapshot-*.part")); err != nil || len(left) > 0 {
		t.Errorf("left is %q (%v)", left, err)
	}
	t.Setenv("UNNEST_CACHE", filepath.Dir(dir))

	m := n.launch(fleet.Options{Name: "first", Snapshots: n.snapshots()}) // makes the snapshot
	n.check(m.Kill())
	restore := exec.Command(unnest, "vm", "up", "killed")
	n.check(restore.Start())
	state := os.Getenv("UNNEST_STATE") + "/vms/"
	n.eventually("a guest is being restored", func() bool { return len(qemus(t, state)) > 0 })
	n.check(restore.Process.Kill())
	_ = restore.Wait()
	if line := qemus(t, state); len(line) != 1 || !strings.Contains(line[0], "-incoming") {
		t.Errorf("QEMU: %q", line)
	}
	mustRun(t, unnest, "clean")
	if line := qemus(t, state); len(line) > 0 {
		t.Errorf("left is %q", line)
	}
}

// qemus returns the command lines of QEMUs that contain text.
func qemus(t *testing.T, text string) (found []string) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if err == nil && bytes.HasPrefix(line, []byte("qemu-system")) && bytes.Contains(line, []byte(text)) {
			found = append(found, string(bytes.ReplaceAll(line, []byte{0}, []byte(" "))))
		}
	}
	return found
}
