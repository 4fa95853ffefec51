package e2e

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"unnest.io/unnest/internal/netdev/share"
	"unnest.io/unnest/internal/testbed/fleet"
)

// podKey is the key of the shares, which all guests of the pod know.
const podKey = "the-key-of-the-pod-web"

// volume runs unnest-volume in the guest.
func (m *node) volume(args string) {
	m.nodes.t.Helper()
	begin := time.Now()
	if out, err := m.try("unnest-volume "+args, podKey); err != nil {
		m.nodes.t.Fatalf("%s: unnest-volume %s: %v: %s", m.Name, args, err, out)
	}
	m.nodes.t.Logf("%s: unnest-volume %s: %v", m.Name, args, time.Since(begin).Round(time.Millisecond))
}

func (m *node) want(script, want string) {
	m.nodes.t.Helper()
	if got := m.run(script); got != want {
		m.nodes.t.Errorf("%s: %s: got %q, want %q", m.Name, script, got, want)
	}
}

// Two guests of one pod see each other's writes, in a volume and in shared memory.
func TestVolumesAndSharedMemory(t *testing.T) {
	volumes, export, early := filepath.Join(t.TempDir(), "volumes"), share.Export{Dir: filepath.Join(t.TempDir(), "export")}, share.Export{Dir: filepath.Join(t.TempDir(), "early")}
	program := func(name string) []byte {
		content, err := os.ReadFile(goBuild(t, name, "build", "-ldflags", "-s -w", "./testdata/"+name))
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	mapper, limiter := program("mapper"), program("limiter")
	t.Cleanup(func() { // after the guests have ended, before the directories are removed
		if err := errors.Join(export.Close(), early.Close()); err != nil {
			t.Error(err)
		}
	})
	n := newNodes(t, func(f *fleet.Fleet) {
		for _, dir := range []string{volumes, export.Dir, early.Dir} {
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if err := export.Prepare(); err != nil {
			t.Fatal(err)
		}
		f.Policy.Tenants[0].Volumes = volumes
	})
	// Two processors each, because QEMU's emulation of a single processor is not atomic for
	// other guests.
	one := n.launch(fleet.Options{Name: "node1", Slots: 2, Shares: 4, VCPUs: 2, Snapshots: n.snapshots()})
	two := n.launch(fleet.Options{Name: "node2", Slots: 2, Shares: 4, VCPUs: 2, Export: early.Dir, Snapshots: n.snapshots()})
	three := n.launch(fleet.Options{Name: "node3", Slots: 1, Export: export.Dir}) // has volumes by 9p
	for _, m := range []*node{one, two, three} {
		if !m.Restored() {
			t.Errorf("%s was not restored: %v", m.Name, m.NotRestored)
		}
	}
	for _, m := range []*node{one, two, three} {
		m.login()
		m.put("unnest-volume")
		n.check(m.ssh.Put(t.Context(), "/tmp/mapper", 0o755, bytes.NewReader(mapper)))
	}

	t.Run("limits", func(t *testing.T) {
		// A guest has cgroup v2, which not every host has.
		n.check(three.ssh.Put(t.Context(), "/tmp/limiter", 0o755, bytes.NewReader(limiter)))
		three.want("/tmp/limiter", "memory: killed\nprocesses: refused\n")
		three.want("ls -d /sys/fs/cgroup/unnest-volumes/*/ 2>/dev/null | wc -l", "0\n")
	})

	t.Run("volume", func(t *testing.T) {
		for _, m := range []*node{one, two} {
			m.volume("attach volume web data /mnt/data")
		}
		seeEachOther(one, two, "/mnt/data", "/mnt/data")
		two.want("grep -c /mnt/data.virtiofs /proc/mounts", "1\n")
		// One guest holds a lock. The other one fails to get it, without waiting, if virtiofsd can do that.
		program, err := share.FindProgram()
		n.check(err)
		refused := map[bool]string{true: "1\n", false: "0\n"}[program.HostLocks]
		one.run("flock -n /mnt/data/lock sh -c 'echo >/mnt/data/locked; while [ -e /mnt/data/locked ]; do sleep 0.1; done' >/dev/null 2>&1 & until [ -e /mnt/data/locked ]; do sleep 0.1; done")
		two.want("flock -n /mnt/data/lock true; echo $?", refused)
		two.run("rm /mnt/data/locked; until flock -n /mnt/data/lock true; do sleep 0.1; done")
		// Device nodes are not allowed.
		if out, err := one.try("mknod /mnt/data/null c 1 3", ""); err == nil {
			t.Errorf("mknod succeeded: %s", out)
		}
	})

	t.Run("volume by 9p", func(t *testing.T) {
		three.volume("attach volume web data /mnt/data")
		three.want("grep -c /mnt/data.9p /proc/mounts", "1\n")
		seeEachOther(one, three, "/mnt/data", "/mnt/data")
		three.run("cp /bin/busybox /mnt/data/busybox && /mnt/data/busybox true && rm /mnt/data/busybox")
	})

	t.Run("hostile by 9p", func(t *testing.T) { hostileBy9p(t, two, three, export, early) })

	t.Run("memory", func(t *testing.T) {
		one.volume("attach memory web ring /tmp/ring 1048576")
		two.volume("attach memory web ring /tmp/ring")
		one.run("/tmp/mapper /tmp/ring write 1048000 'from the first'")
		two.want("/tmp/mapper /tmp/ring read 1048000 100", "from the first\n")
		two.run("/tmp/mapper /tmp/ring write 4096 'from the second'")
		one.want("/tmp/mapper /tmp/ring read 4096 100", "from the second\n")
		if lost := addTogether(one, two, 20_000_000); lost > 0 {
			t.Errorf("%d increments were lost", lost)
		}
		for _, m := range []*node{one, two} { // QEMU has no other descriptor
			if got := memoryFiles(t, m.PID); got != 1 {
				t.Errorf("%s: QEMU has %d descriptors of the shared memory", m.Name, got)
			}
		}
	})

	t.Run("the daemon is killed", func(t *testing.T) {
		n.killDaemon()
		one.run("echo meanwhile >/mnt/data/meanwhile")
		two.want("cat /mnt/data/meanwhile", "meanwhile\n")
		n.startDaemon()
		one.volume("attach volume web logs /mnt/logs")
		two.volume("attach volume web logs /mnt/logs")
		seeEachOther(two, one, "/mnt/logs", "/mnt/logs")
		two.want("/tmp/mapper /tmp/ring read 1048000 100", "from the first\n")
		if got := n.guestStatus("node1").Shared; len(got) != 3 {
			t.Errorf("shares of node1: got %v, want 3", got)
		}
	})

	t.Run("detach", func(t *testing.T) {
		three.want("cat /mnt/data/meanwhile", "meanwhile\n")
		three.volume("detach volume web data /mnt/data")
		if left, err := os.ReadDir(export.Dir); err != nil || len(left) > 0 {
			t.Errorf("in the export is %v, %v", left, err)
		}
		for _, m := range []*node{one, two} {
			m.volume("detach memory web ring /tmp/ring")
			m.volume("detach volume web data /mnt/data")
			m.volume("detach volume web logs /mnt/logs")
			m.want("ls -d /sys/bus/pci/devices/0000:00:0e.*/0000:* 2>/dev/null | wc -l", "0\n")
			if got := n.guestStatus(m.Name); len(got.Shared) != 0 || got.SlotsFree != 2 {
				t.Errorf("%s: got status %+v, want no share and 2 free slots", m.Name, got)
			}
			if got := memoryFiles(t, m.PID); got != 0 {
				t.Errorf("%s: QEMU has %d descriptors of the shared memory", m.Name, got)
			}
		}
		n.eventually("no virtiofsd is left", func() bool { return !hasProcess(t, "="+volumes) })
		if got, err := os.ReadFile(volumes + "/web/data/meanwhile"); err != nil || string(got) != "meanwhile\n" {
			t.Errorf("file of the volume on the host: got %q, %v", got, err)
		}
		// The volume still exists and can be attached again.
		two.volume("attach volume web data /mnt/data")
		two.want("cat /mnt/data/meanwhile", "meanwhile\n")
	})
}

// hostileBy9p has the root of two guests attack the host through their exports. The export
// of late was read-only before the guest started, that of early was not.
func hostileBy9p(t *testing.T, early, late *node, lateExport, earlyExport share.Export) {
	// No file of any kind can be put next to the volumes. unnest-volume has mounted the export.
	got := late.run(`cd /run/unnest/volumes; for attack in "ln -s /etc volume.logs.web" "mkdir volume.logs.web" "touch volume.logs.web" \
		"mknod volume.logs.web b 8 0" "mv volume.data.web volume.logs.web" "rmdir volume.data.web" "chmod 777 ." "chown 1000 ."
		do $attack 2>/dev/null && echo "$attack"; done; ls`)
	if got != "volume.data.web\n" {
		t.Errorf("the guest has done, and sees: %q", got)
	}
	// The host follows and runs nothing in a volume. QEMU makes no device nodes.
	late.run("cd /mnt/data && ln -s /etc link && cp /bin/busybox program && chmod 4755 program")
	data := filepath.Join(lateExport.Dir, "volume.data.web")
	_, link := os.ReadDir(data + "/link/")
	for what, err := range map[string]error{"link": link, "program": exec.Command(data + "/program").Run()} {
		if err == nil {
			t.Errorf("the host uses the guest's %s", what)
		}
	}
	late.want("readlink /mnt/data/link && rm /mnt/data/link /mnt/data/program", "/etc\n")
	// A link that was put there before is never mounted on.
	early.run("mkdir -p /mnt/9p && mount -t 9p -o trans=virtio,version=9p2000.L volumes /mnt/9p && ln -s /etc /mnt/9p/volume.logs.web")
	volume, err := os.Open(t.TempDir())
	early.nodes.check(err)
	defer volume.Close()
	id := share.ID{Kind: share.Volume, Pod: "web", Name: "logs"}
	if _, err := earlyExport.Bind(id, volume); !errors.Is(err, share.ErrWritable) {
		t.Errorf("bind in a writable export: got %v", err)
	}
	early.nodes.check(earlyExport.Prepare())
	if err := earlyExport.CheckVMM(early.PID); !errors.Is(err, share.ErrWritable) {
		t.Errorf("a guest from before: got %v", err)
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), " /etc ") {
		t.Errorf("/etc of the host is mounted on: %s, %v", mounts, err)
	}
}

// start runs a shell script in the guest in the background. The channel returns its output.
func (m *node) start(script string) <-chan string {
	ended := make(chan string, 1)
	go func() {
		out, err := m.try(script, "")
		if err != nil {
			out += err.Error()
		}
		ended <- out
	}()
	return ended
}

// seeEachOther has each guest read what the other one has written: in new files, in open files,
// and in renamed files.
func seeEachOther(one, two *node, here, there string) {
	one.nodes.t.Helper()
	one.run(fmt.Sprintf("mkdir -p %s/d && echo one >%s/d/file && dd if=/dev/urandom of=%s/large bs=1M count=4 2>/dev/null", here, here, here))
	two.want("cat "+there+"/d/file", "one\n")
	two.run("echo two >>" + there + "/d/file")
	one.want("cat "+here+"/d/file", "one\ntwo\n")
	two.run("mv " + there + "/d/file " + there + "/d/moved")
	one.want("ls "+here+"/d", "moved\n")
	if sum := one.run("sha256sum <" + here + "/large"); two.run("sha256sum <"+there+"/large") != sum {
		one.nodes.t.Error("a large file differs between the guests")
	}
	// One guest continues to read an open file after the other one has appended to it.
	reading := one.start(fmt.Sprintf("exec 3<%s/d/moved; cat <&3 >/dev/null; echo >%s/ready; while [ -e %s/ready ]; do sleep 0.1; done; cat <&3", here, here, here))
	two.run(fmt.Sprintf("until [ -e %s/ready ]; do sleep 0.1; done; echo more >>%s/d/moved; rm %s/ready", there, there, there))
	if got := <-reading; got != "more\n" {
		one.nodes.t.Errorf("read on in an open file: got %q, want what the other guest has appended", got)
	}
	two.want("tail -n 1 "+there+"/d/moved", "more\n")
	one.run("rm -r " + here + "/d " + here + "/large")
}

// addTogether has both guests increment one number at the same time, after a signal of the
// host, and returns the number of lost increments.
func addTogether(one, two *node, times uint64) (lost uint64) {
	t := one.nodes.t
	t.Helper()
	found, err := share.FindRegions(one.PID)
	if err != nil || len(found) != 1 {
		t.Fatalf("shared memory of %s: got %v, %v; want one region", one.Name, found, err)
	}
	defer found[0].File.Close()
	const offset = 64 // of three numbers: the sum, the start signal, the number of waiting guests
	number := func(i int64) uint64 {
		b := make([]byte, 8)
		if _, err := found[0].File.ReadAt(b, offset+8*i); err != nil {
			t.Fatal(err)
		}
		return binary.LittleEndian.Uint64(b)
	}
	var adding []<-chan string
	for _, m := range []*node{one, two} {
		adding = append(adding, m.start(fmt.Sprintf("/tmp/mapper /tmp/ring add %d %d", offset, times)))
	}
	one.nodes.eventually("both guests wait for the start signal", func() bool { return number(2) == 2 })
	if _, err := found[0].File.WriteAt([]byte{1}, offset+8); err != nil {
		t.Fatal(err)
	}
	for _, said := range adding {
		t.Logf("last sum that a guest has seen: %s", strings.TrimSpace(<-said))
	}
	return 2*times - number(0)
}

// memoryFiles counts the descriptors of shared memory that a process has.
func memoryFiles(t *testing.T, pid int) (n int) {
	t.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil || len(links) == 0 {
		t.Fatalf("descriptors of %d: %v, %v", pid, links, err)
	}
	for _, l := range links {
		if target, _ := os.Readlink(l); strings.HasPrefix(target, "/memfd:unnest;") {
			n++
		}
	}
	return n
}

// hasProcess reports whether the command line of a process contains words.
func hasProcess(t *testing.T, words string) bool {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		if line, err := os.ReadFile(path); err == nil && bytes.Contains(line, []byte(words)) {
			return true
		}
	}
	return false
}
