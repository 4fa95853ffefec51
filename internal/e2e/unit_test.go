package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/image"
)

// hostScript installs the daemon with its unit, and makes systemd the first process of the
// guest in place of busybox. Units that only take time are masked.
const hostScript = `
set -e
mkdir /mnt/host
mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288 volumes /mnt/host
cd /mnt/host
install unnest /usr/local/bin/
install -D daemon.test /opt/unnest/daemon.test
install -D -m 0600 hostd.yaml /etc/unnest/hostd.yaml
cd /etc/systemd/system
install -m 0644 /mnt/host/unnest-hostd.service .
ln -s /dev/null timers.target
for u in udevd.service udevd-control.socket udevd-kernel.socket udev-trigger.service update-utmp.service \
	sysusers.service binfmt.service journal-flush.service tmpfiles-setup.service random-seed.service; do
	ln -s /dev/null systemd-$u
done
cat >default.target <<end
[Unit]
Requires=basic.target dropbear.service
end
cat >dropbear.service <<end
[Service]
ExecStart=/usr/sbin/dropbear -F -R -s -B
KillMode=process
end
systemd-machine-id-setup
echo ::restart:/lib/systemd/systemd >>/etc/inittab
kill -HUP 1
sleep 0.5
(sleep 0.5; kill -QUIT 1) >/dev/null 2>&1 </dev/null &
`

// testDropIn runs the daemon of a lab of package daemon in the unit: see unit_test.go
// there. A system call that the unit forbids kills the daemon, so that none is missed.
const testDropIn = `
mkdir -p /run/unnest-test /etc/systemd/system/unnest-hostd.service.d
cat >/etc/systemd/system/unnest-hostd.service.d/test.conf <<end
[Unit]
StartLimitIntervalSec=0
[Service]
EnvironmentFile=/run/unnest-test/env
ExecStart=
ExecStart=/opt/unnest/daemon.test hostd \$LAB \$TIMEOUT
NetworkNamespacePath=/run/unnest-test/netns
StandardOutput=truncate:/run/unnest-test/out
StandardError=truncate:/run/unnest-test/log
Restart=no
SystemCallErrorNumber=kill
end
systemctl daemon-reload
`

// confined is /proc/PID/status of the daemon: DAC_OVERRIDE (bit 1), NET_ADMIN (12), NET_RAW
// (13), SYS_PTRACE (19), PERFMON (38), BPF (39) and a filter of system calls.
const confined = "CapEff:\t000000c000083002\nCapBnd:\t000000c000083002\nNoNewPrivs:\t1\nSeccomp:\t2\n"

// bootHost boots a guest with systemd, the daemon's unit, and the test binary of package
// daemon.
func bootHost(t *testing.T) *node {
	n := newNodes(t, nil)
	n.killDaemon() // it would restrict the export, which passes files to the guest here
	var err error
	n.image, err = (&image.Builder{Cache: image.CacheDir()}).Build(t.Context(), image.HypervisorRecipe())
	n.check(err)
	tests := goBuild(t, "daemon.test", "test", "-trimpath", "-c", "unnest.io/unnest/internal/hostd/daemon")
	shared := filepath.Dir(tests)
	for _, path := range []string{
		filepath.Join(n.binaries, "unnest"), "../../deploy/hostd.yaml",
		"../../deploy/systemd/unnest-hostd.service", "../../deploy/systemd/volumes.conf",
	} {
		content, err := os.ReadFile(path)
		n.check(err)
		n.check(os.WriteFile(filepath.Join(shared, filepath.Base(path)), content, 0o755))
	}
	m := n.boot(fleet.Options{Name: "host", VCPUs: 2, Memory: 2 << 30, Export: shared})
	m.run(hostScript)
	n.eventually("systemd runs", func() bool {
		again, err := n.fleet.Reach(t.Context(), m.Node)
		if err != nil {
			return false
		}
		m.ssh.Close()
		m.ssh = again
		out, err := m.try("cat /proc/1/comm", "")
		return err == nil && strings.TrimSpace(out) == "systemd"
	})
	t.Cleanup(func() { m.ssh.Close() })
	return m
}

// daemonTests runs tests of package daemon, with the daemon in the unit.
func (m *node) daemonTests(t *testing.T, run string) {
	t.Helper()
	out, err := m.try("mkdir -p /var/lib/unnest && cd /var/lib/unnest && TMPDIR=$PWD UNNEST_PRIVILEGED=1 "+
		"UNNEST_TEST_UNIT=unnest-hostd.service /opt/unnest/daemon.test -test.v -test.parallel 1 -test.run '"+run+"'", "")
	want := strings.Count(run, "Test")
	if got := strings.Count(out, "\n--- PASS: "); err != nil || got != want {
		t.Errorf("%d of %d tests pass in the unit, %v:\n%s", got, want, err, out)
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, "--- PASS") {
			t.Log(strings.TrimSpace(line))
		}
	}
}

// property returns a property of the unit.
func (m *node) property(name string) string {
	m.nodes.t.Helper()
	return strings.TrimSpace(m.run("systemctl show --value --property=" + name + " unnest-hostd.service"))
}

// The daemon works with exactly the settings of the shipped unit, under a real systemd:
// NICs, VLANs, segments, shared memory and, with the drop-in for it, volumes; the
// watchdog restarts a daemon that hangs.
func TestUnit(t *testing.T) {
	m := bootHost(t)
	if out := m.run("systemd-analyze verify --recursive-errors=no unnest-hostd.service 2>&1"); out != "" {
		t.Errorf("systemd-analyze verify: %s", out)
	}
	m.run(testDropIn)
	t.Run("networks", func(t *testing.T) {
		m.daemonTests(t, "^TestSegmentThatCannotBeTakenOver$/^without_-sys_ptrace$|"+
			"^TestNICsThatCannotBeTakenOver$/^damaged_record$|^TestSharedMemory$")
	})
	t.Run("volumes", func(t *testing.T) {
		m.run(`mkdir -p /srv/unnest
cd /etc/systemd/system/unnest-hostd.service.d
install -m 0644 /mnt/host/volumes.conf .
sed -i s/=kill/=EPERM/ test.conf # virtiofsd may try calls that it does without
systemctl daemon-reload`)
		m.daemonTests(t, "^TestVolumes$|^TestExport$")
		m.run("rm /etc/systemd/system/unnest-hostd.service.d/volumes.conf")
	})
	t.Run("service", func(t *testing.T) {
		m.run(`cd /etc/systemd/system/unnest-hostd.service.d
printf '[Service]\nWatchdogSec=9s\n' >test.conf
sed -i 's/^listen: .*/listen: 10.201.0.1:7443/' /etc/unnest/hostd.yaml
systemctl daemon-reload; systemctl start unnest-hostd`)
		if out := m.run("ip -brief address show dev br-unnest; cat /proc/sys/net/ipv4/ip_forward"); !strings.Contains(out, "10.201.0.1/16") || !strings.HasSuffix(out, "1\n") {
			t.Errorf("bridge and forwarding are %q", out)
		}
		begin := m.property("WatchdogTimestampMonotonic")
		m.nodes.eventually("the daemon pings", func() bool { return m.property("WatchdogTimestampMonotonic") != begin })
		pid := m.property("MainPID")
		if status := m.run("grep -E 'CapBnd|CapEff|NoNewPrivs|Seccomp:' /proc/" + pid + "/status"); status != confined {
			t.Errorf("the daemon's process has\n%swant\n%s", status, confined)
		}
		if out, err := m.try("nsenter --mount --target "+pid+" touch /etc/x", ""); err == nil {
			t.Errorf("the daemon can write to /etc: %s", out)
		}
		m.run("kill -STOP " + pid)
		m.nodes.eventually("systemd restarts a daemon that hangs", func() bool {
			return m.property("NRestarts") == "1" && m.property("ActiveState") == "active"
		})
		m.run("systemctl stop unnest-hostd")
		if result := m.property("Result"); result != "success" {
			t.Errorf("stop: result is %s\n%s", result, m.run("journalctl -u unnest-hostd"))
		}
	})
	if t.Failed() {
		t.Log(m.run("journalctl -b | tail -60; dmesg | grep -i audit | tail; cat /run/unnest-test/log"))
	}
}
