package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"unnest.io/unnest/internal/vmm/qmp"
)

func (m *node) bootID() (string, error) { return m.try("cat /proc/sys/kernel/random/boot_id", "") }

// reset resets the guest, as if by its reset button: its kernel ends at once.
func (m *node) reset() error { return errors.Join(m.rebootsInPlace(), m.command("system_reset", nil)) }

// rebootsInPlace makes a reboot reset the guest, in place of ending it.
func (m *node) rebootsInPlace() error {
	return m.command("set-action", map[string]any{"reboot": "reset"})
}

// command executes a command of QEMU. Without arguments they are nil.
func (m *node) command(name string, arguments any) error {
	ctx := m.nodes.t.Context()
	owner, err := qmp.Dial(ctx, filepath.Join(m.Dir, "qmp"))
	if err != nil {
		return err
	}
	defer owner.Close()
	return owner.Execute(ctx, name, arguments, nil)
}

// rebooted waits until the guest has booted again after the boot before, and returns it with a
// new connection.
func (m *node) rebooted(before string) (*node, error) {
	fresh := &node{Node: m.Node, nodes: m.nodes}
	for begin := time.Now(); ; time.Sleep(200 * time.Millisecond) {
		var err error
		if fresh.ssh, err = m.nodes.fleet.Reach(m.nodes.t.Context(), m.Node); err == nil {
			if now, err := fresh.bootID(); err == nil && strings.TrimSpace(now) != "" && now != before {
				m.nodes.t.Cleanup(func() { fresh.ssh.Close() })
				return fresh, nil
			}
			_ = fresh.ssh.Close()
		}
		if time.Since(begin) > bootLimit {
			return nil, fmt.Errorf("%s does not come back after a reset: %w", m.Name, err)
		}
	}
}

// resetWhileWriting resets the guest while it writes files, and waits until it is back. What
// the guest had synchronized is there, and its file system needed no repair.
func (m *node) resetWhileWriting(round int) *node {
	m.nodes.t.Helper()
	m.run(fmt.Sprintf(`mkdir -p /var/lib/written && echo %[1]d >/var/lib/written/%[1]d && sync
		setsid sh -c 'while :; do
			rm -rf /var/lib/written/copy; cp -r /etc /var/lib/written/copy; cp /etc/hosts /etc/hosts.new; mv /etc/hosts.new /etc/hosts; sync -f /var/lib/written/copy
		done' >/dev/null 2>&1 </dev/null &
		sleep 1`, round))
	before, err := m.bootID()
	m.nodes.check(err)
	m.nodes.check(m.reset())
	fresh, err := m.rebooted(before)
	m.nodes.check(err)
	for r := 1; r <= round; r++ {
		if got := fresh.run(fmt.Sprintf("cat /var/lib/written/%d", r)); strings.TrimSpace(got) != fmt.Sprint(r) {
			m.nodes.t.Errorf("after reset %d: the file of round %d has %q", round, r, got)
		}
	}
	if out := fresh.run("dmesg | grep -E 'EXT4-fs.*(error|warning)' || true; rm -rf /var/lib/written/copy; sync; dmesg | grep 'EXT4-fs error' || true"); out != "" {
		m.nodes.t.Errorf("after reset %d: the kernel says: %s", round, out)
	}
	return fresh
}
