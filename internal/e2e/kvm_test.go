//go:build kvm

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/lab"
	"unnest.io/unnest/internal/testbed/place"
)

// kvmHostPackages are the Debian packages that a host needs beyond those of a guest with a
// hypervisor. The Makefile lists them for other hosts.
var kvmHostPackages = []string{"ca-certificates", "e2fsprogs", "mmdebstrap", "nftables", "xz-utils"}

// setUpHost loads what an ordinary host has loaded. It copies our binaries and tests from the
// export, and makes the cache with the image of the inner guests. The root file system of that
// image is a disk of this guest.
const setUpHost = `set -e
modprobe -a kvm_amd vhost_net tun bridge
mountpoint -q /sys/kernel/debug || mount -t debugfs none /sys/kernel/debug
mkdir -p /mnt/export /work/internal/e2e
mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,ro volumes /mnt/export
cp -r /mnt/export/bin /mnt/export/cache /work
umount /mnt/export
cd /work/cache/image-*
for disk in /sys/block/vd*; do
	read -r serial <$disk/serial || true # it has no newline
	[ "$serial" != unnest-root ] || ln -s /dev/${disk##*/} root.ext4
done
`

// A guest is the host of guests. It has KVM, because TCG emulates AMD's hardware
// virtualization, and vhost-net. Most machines that run our tests have neither. UNNEST_ON_KVM
// selects subtests by a regular expression.
func TestOnKVM(t *testing.T) {
	n := newNodes(t, nil)
	inner := n.image
	b := image.Builder{Cache: image.CacheDir(), Progress: func(step string) { t.Log(step) }}
	var err error
	n.image, err = b.Build(t.Context(), image.HypervisorRecipe().With(kvmHostPackages...))
	n.check(err)
	h := n.boot(fleet.Options{Name: "host", VCPUs: 2, Memory: 5 << 30, Export: n.exportTo(inner), Nested: &inner})
	h.run(setUpHost)
	for _, c := range []struct {
		name   string
		script string
		tests  bool // the script runs tests
		want   []string
	}{
		{"doctor", "unnest doctor", false, []string{`accelerator +ok .*kvm: /dev/kvm opens`, `vhost-net +ok `}},
		{"vmm", "qemu.test -test.v", true, []string{"PASS: TestPlugAsOtherUser"}},
		{"vhost", "e2e.test -test.v -test.run '^TestVHost$'", true, nil},
		{"poll", pollCommand(), true, nil},
		{"brfusion", "e2e.test -test.v -test.run '^(TestGuestReboots|TestOneGuest)$/^Modes$'", true, nil},
		{"restore", "e2e.test -test.v -test.run '^TestRestoredGuests$'", true, nil},
		{"hostlo", "e2e.test -test.v -test.run '^TestHostlo$'", true, nil},
		// The test of the locks reads the source code, which the guest does not have.
		{"daemon", "daemon.test -test.v -test.skip '^TestLocksAreReleasedByDefer$'", true, []string{"PASS: TestSegmentsAndRestarts"}},
		{"containers", "e2e.test -test.v -test.run '^TestBrFusionAcrossGuests$'", true, nil},
		{"quickstart", "cd /work && unnest bench --noisy quickstart --repetitions 1 -o /work/quickstart", false,
			[]string{`\bkvm\b`, "NoCont", "NAT", "BrFusion"}},
	} {
		if only := os.Getenv("UNNEST_ON_KVM"); only != "" && !regexp.MustCompile(only).MatchString(c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			out := h.stream(t, "cd /work/internal/e2e && export UNNEST_PRIVILEGED=1 UNNEST_CACHE=/work/cache PATH=/work/bin:$PATH && "+c.script)
			if c.tests && (!strings.Contains(out, "--- PASS") || strings.Contains(out, "--- SKIP")) {
				t.Error("no test has passed, or one was skipped")
			}
			for _, want := range c.want {
				if !regexp.MustCompile(want).MatchString(out) {
					t.Errorf("want %q in the output", want)
				}
			}
			if c.name == "poll" && *pollReport != "" {
				h.publishPoll(t, pollInGuest)
			}
		})
	}
}

// pollInGuest is where TestPoll writes in the guest, without the suffix.
const pollInGuest = "/work/poll"

// pollCommand runs TestPoll in the guest with the rounds that this test was told.
func pollCommand() string {
	return fmt.Sprintf("e2e.test -test.v -test.run '^TestPoll$' -poll-halt -poll-blocks %d -poll-report %s.md", *pollBlocks, pollInGuest)
}

// exportTo returns a directory with what a guest needs to be a host: our binaries, these tests
// and those of two other packages, and the image of the inner guests without its root file
// system.
func (n *nodes) exportTo(inner image.Image) string {
	n.t.Helper()
	export := n.t.TempDir()
	bin, cache := filepath.Join(export, "bin"), filepath.Join(export, "cache", filepath.Base(filepath.Dir(inner.Root)))
	n.check(os.Mkdir(bin, 0o755))
	n.check(os.MkdirAll(cache, 0o755))
	for _, name := range []string{"unnest", "unnest-cni", "nerdctl", "cni-timer", "unnest-localhost"} {
		mustRun(n.t, "cp", filepath.Join(n.binaries, name), bin)
	}
	mustRun(n.t, "cp", inner.Kernel, inner.Compressed, inner.Initrd, cache)
	for _, p := range []string{"e2e", "vmm/qemu", "hostd/daemon"} {
		name := filepath.Base(p) + ".test"
		mustRun(n.t, "mv", goBuild(n.t, name, "test", "-c", "-tags", "kvm", "unnest.io/unnest/internal/"+p), bin)
	}
	return export
}

// stream runs a shell script in the guest, which must succeed, and returns its output. The log
// of the test has the output as it comes.
func (m *node) stream(t *testing.T, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	var out output
	begin := time.Now()
	log := &tee{&out, t}
	p, err := m.ssh.Start(ctx, place.Command{Args: []string{"sh", "-c", script}, Stdout: log, Stderr: log})
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		t.Errorf("%s: %v", script, err)
	}
	t.Logf("%v", time.Since(begin).Round(time.Second))
	return out.String()
}

// tee writes to an output and to the log of a test.
type tee struct {
	out *output
	t   *testing.T
}

func (w *tee) Write(p []byte) (int, error) {
	_, _ = w.t.Output().Write(p)
	return w.out.Write(p)
}

// The kernel of the host moves the frames of all NICs of its guests: those that they have at
// boot, those of pods, and the endpoints of a segment. TestOnKVM runs this test.
func TestVHost(t *testing.T) {
	n := newNodes(t, nil)
	if accel, err := guest.ChooseAccel(""); err != nil || accel.Accel != guest.KVM {
		t.Fatalf("accelerator: got %+v, %v; want %s", accel, err, guest.KVM)
	}
	all := n.bootAll(2, fleet.Options{Slots: 4, Memory: 768 << 20})
	one, two := all[0], all[1]
	for _, m := range all {
		if open := descriptors(t, m.PID); !strings.Contains(open, "anon_inode:kvm-vm") {
			t.Errorf("%s: QEMU has no virtual machine of KVM: %s", m.Name, open)
		}
		m.wantVHost(t, 2)
	}

	one.pod("p1", nil)
	p2 := two.pod("p2", nil)[0]
	one.wantReach("p1", p2, true)
	one.load(t, "p1", two, "p2", p2.String())
	one.wantSegments(t, "p1")

	p := &splitPod{nodes: n, in: all}
	for _, m := range all {
		m.fraction(podName, podSegment)
		m.serve(podName)
	}
	for _, m := range all {
		m.wantVHost(t, 4)
		p.wantServed(t, m, all)
		wantRefused(t, m, podName, 7999)
	}
	one.load(t, podName, two, podName, "127.0.0.1")

	n.killDaemon()
	n.startDaemon()
	for _, m := range all {
		n.guestStatus(m.Name) // waits until the daemon has found the guest
		m.wantVHost(t, 4)
		p.wantServed(t, m, all)
	}
	one.wantReach("p1", p2, true)
	for m, pod := range map[*node]string{one: "p1", two: "p2"} {
		m.end(t, podName, podSegment)
		if _, err := m.brfusion("DEL", pod, nil); err != nil {
			t.Error(err)
		}
		n.eventually("vhost-net is released", func() bool { return len(m.vhostTime(t)) == 2 })
		m.wantVHost(t, 2)
		if log, err := os.ReadFile(filepath.Join(m.Dir, "qemu.log")); err != nil || strings.Contains(string(log), "vhost") {
			t.Errorf("%s: QEMU says %q, %v; want nothing about vhost", m.Name, log, err)
		}
	}
}

// load sends TCP from a pod of m to one in another guest, at an address, and fails unless a
// thread of vhost-net in the host's kernel moves the frames of m.
func (m *node) load(t *testing.T, client string, server *node, pod, address string) {
	t.Helper()
	server.serveStream(pod, "")
	before := m.vhostTime(t)
	out := m.run("ip netns exec " + client + " iperf3 --client " + address + " --port 5201 --time 3")
	t.Logf("from %s to %s:\n%s", client, pod, out)
	busy := 0
	for thread, ticks := range m.vhostTime(t) {
		if ticks > before[thread] {
			busy++
		}
	}
	if busy == 0 {
		t.Errorf("%s: no thread of vhost-net took time", m.Name)
	}
}

// wantSegments fails unless the pod's NIC has passed TCP to the host in segments larger than a
// frame (TSO). Without that, the guest would pay for each frame.
func (m *node) wantSegments(t *testing.T, pod string) {
	t.Helper()
	var links []netlink.Link
	m.nodes.check(lab.Do(m.nodes.fleet.Lab.HostNS(), func() (err error) {
		links, err = netlink.LinkList()
		return err
	}))
	found := 0
	for _, l := range links {
		a := l.Attrs()
		if !strings.HasPrefix(a.Alias, "unnest:"+pod+"/") {
			continue
		}
		found++
		mean := a.Statistics.RxBytes / max(1, a.Statistics.RxPackets)
		t.Logf("%s: the mean segment from the pod has %d bytes", a.Name, mean)
		if mean <= uint64(a.MTU+14) {
			t.Errorf("%s: the pod's segments have %d bytes on average, its frames at most %d: the NIC does not segment for the guest", a.Name, mean, a.MTU+14)
		}
	}
	if found != 1 {
		t.Errorf("pod %s has %d ports", pod, found)
	}
}

// wantVHost fails unless the guest's QEMU uses vhost-net for count NICs.
func (m *node) wantVHost(t *testing.T, count int) {
	t.Helper()
	open, threads := descriptors(t, m.PID), m.vhostTime(t)
	if !strings.Contains(open, fmt.Sprintf("/dev/vhost-net: %d", count)) || len(threads) != count {
		t.Errorf("%s: the kernel has %d threads of vhost-net, QEMU has %s; want %d of both", m.Name, len(threads), open, count)
	}
}

// vhostTime returns the processor time, in ticks, of each thread in which the kernel moves
// frames of the guest. Since Linux 6.4 they are threads of QEMU.
func (m *node) vhostTime(t *testing.T) map[string]int {
	t.Helper()
	times := map[string]int{}
	for _, pattern := range []string{"/proc/[0-9]*/stat", fmt.Sprintf("/proc/%d/task/*/stat", m.PID)} {
		paths, err := filepath.Glob(pattern)
		m.nodes.check(err)
		for _, path := range paths {
			stat, _ := os.ReadFile(path) // the process may have ended
			name, rest, _ := strings.Cut(string(stat), ") ")
			fields := strings.Fields(rest)
			if !strings.HasSuffix(name, fmt.Sprintf("(vhost-%d", m.PID)) || len(fields) < 13 {
				continue
			}
			for _, field := range fields[11:13] { // utime and stime: proc(5)
				ticks, err := strconv.Atoi(field)
				m.nodes.check(err)
				times[path] += ticks
			}
		}
	}
	return times
}
