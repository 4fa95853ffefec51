package brfusion_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/cni/attachment"
	"unnest.io/unnest/internal/cni/brfusion"
	"unnest.io/unnest/internal/cni/cnitest"
	"unnest.io/unnest/internal/hostapi/hostdpb"
)

// reclaimName is the name by which the test binary is the process that gives NICs back.
const reclaimName = "reclaim"

func reclaimMain() int {
	attachment.StateDir = os.Getenv("TEST_STATE_DIR")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	r := attachment.Reclaimer{Log: log, Clean: brfusion.Clean}
	if err := r.Run(ctx); err != nil {
		log.Error(err.Error())
		return 1
	}
	return 0
}

// reclaimer is the process that gives NICs back in the guest of a lab. A veth ends with its pod's namespace, where the NIC of a
// VMM falls back into the guest's: so tests move it there.
type reclaimer struct {
	*lab
	mu  sync.Mutex
	log bytes.Buffer
}

func (r *reclaimer) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func (r *reclaimer) said(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Contains(r.log.String(), text)
}

// newReclaimer makes a lab whose daemon gives addresses, and unplugs one NIC at a time.
func newReclaimer(t *testing.T) *reclaimer {
	l := newLab(t)
	l.Must(os.Symlink(filepath.Join(l.Dir, "brfusion"), filepath.Join(l.Dir, reclaimName)))
	l.daemon.onlyOne = true
	return &reclaimer{lab: l}
}

// start starts the process. At the end of the test it ends by SIGTERM, with success.
func (r *reclaimer) start() {
	r.t.Helper()
	cmd := exec.Command(filepath.Join(r.Dir, reclaimName))
	cmd.Env = append(os.Environ(), "TEST_STATE_DIR="+filepath.Join(r.Dir, "run"))
	cmd.Stderr = io.MultiWriter(r, r.t.Output())
	r.Must(r.Guest.Do(func(ns.NetNS) error { return cmd.Start() }))
	r.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			r.t.Errorf("the process that gives NICs back: %v", err)
		}
	})
}

func (r *reclaimer) eventually(what string, f func() bool) {
	r.t.Helper()
	for begin := time.Now(); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > time.Minute {
			r.t.Fatalf("not within a minute: %s; the daemon has %v", what, r.daemon.all())
		}
	}
}

func (r *reclaimer) has(container string) bool { return r.daemon.all()[container+" eth0"] != nil }

func (r *reclaimer) wantGone(container string) {
	r.t.Helper()
	r.eventually(container+" is given back", func() bool { return !r.has(container) })
	r.eventually("it is said", func() bool {
		return r.said("gave back the NIC of a pod that ended without a DEL\" container=" + container + " ")
	})
}

func (r *reclaimer) ofDaemon(edits ...func(map[string]any)) []byte {
	return r.config(append(edits, with("ipam", map[string]any{"type": "hostd"}))...)
}

// pod adds a pod in a namespace of its own.
func (r *reclaimer) pod(container string, edits ...func(map[string]any)) ns.NetNS {
	r.t.Helper()
	pod := cnitest.NewNS(r.t)
	r.Add(r.ofDaemon(edits...), "CNI_CONTAINERID="+container, "CNI_NETNS="+path(pod))
	return pod
}

// move moves the NIC of a pod to another namespace, as the kernel does when the pod's ends.
func (r *reclaimer) move(name string, from, to ns.NetNS, newName string) {
	r.t.Helper()
	r.Must(from.Do(func(ns.NetNS) error {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetDown(l); err != nil {
			return err
		}
		if err := netlink.LinkSetName(l, newName); err != nil {
			return err
		}
		return netlink.LinkSetNsFd(l, int(to.Fd()))
	}))
}

// What has come back before the process starts, and what comes back later, is given back, with what an ADD has left in the guest.
// A pod that runs keeps its NIC, and a DEL that comes too late takes nothing from the pod that has come after it.
func TestReclaim(t *testing.T) {
	r := newReclaimer(t)
	withServices := with("services", services)
	first, second, third := r.pod("c1"), r.pod("c2", withServices), r.pod("c3")
	r.move("eth0", first, r.Guest, "back1")
	r.start()
	r.wantGone("c1")
	r.move("eth0", second, r.Guest, "back2")
	r.wantGone("c2")
	if !r.has("c3") {
		t.Error("the pod that runs has lost its NIC")
	}
	fourth := r.pod("c4")
	r.Succeeds("DEL", r.ofDaemon(), "CNI_CONTAINERID=c1", "CNI_NETNS=")
	r.Succeeds("DEL", r.ofDaemon(withServices), "CNI_CONTAINERID=c2", "CNI_NETNS=")
	if !r.has("c3") || !r.has("c4") {
		t.Errorf("after late DELs the daemon has %v", r.daemon.all())
	}
	for name, pod := range map[string]ns.NetNS{"c3": third, "c4": fourth} {
		r.Succeeds("DEL", r.ofDaemon(), "CNI_CONTAINERID="+name, "CNI_NETNS="+path(pod))
	}
	r.wantNothing()
}

// While a command holds the attachment's lock, its NIC may be in the guest's namespace. What it has done counts.
func TestReclaimWaitsForCommands(t *testing.T) {
	r := newReclaimer(t)
	pod, ended := r.pod("c1"), r.pod("c2")
	unlocks := r.lockAll()
	r.start()
	r.move("eth0", pod, r.Guest, "back1")
	r.move("eth0", ended, r.Guest, "back2")
	r.eventually("both are waited for", func() bool { return r.waiting("locks") >= 2 })
	if !r.has("c1") || !r.has("c2") {
		t.Fatal("a NIC is given back under the lock of a command")
	}
	r.move("back1", r.Guest, pod, "eth0") // as an ADD does
	unlocks()
	r.wantGone("c2")
	if !r.has("c1") {
		t.Error("the NIC that its ADD has moved into the pod is given back")
	}
	r.move("eth0", pod, r.Guest, "back1")
	r.wantGone("c1")
	r.wantNothing()
}

// lockAll takes the locks of all attachments, as commands do.
func (r *reclaimer) lockAll() (unlock func()) {
	r.t.Helper()
	var files []*os.File
	all, err := filepath.Glob(filepath.Join(r.Dir, "run", "locks", "*"))
	r.Must(err)
	for _, path := range all {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		r.Must(err)
		files = append(files, f)
		r.Must(syscall.Flock(int(f.Fd()), syscall.LOCK_EX))
	}
	if len(files) == 0 {
		r.t.Fatal("the commands have left no lock file")
	}
	return func() {
		for _, f := range files {
			r.Must(f.Close())
		}
	}
}

// waiting is how many files of a directory of locks are waited for.
func (l *lab) waiting(dir string) int {
	content, err := os.ReadFile("/proc/locks")
	l.Must(err)
	n := 0
	all, err := filepath.Glob(filepath.Join(l.Dir, "run", dir, "*"))
	l.Must(err)
	for _, path := range all {
		info, err := os.Stat(path)
		l.Must(err)
		inode := fmt.Sprintf(":%d ", info.Sys().(*syscall.Stat_t).Ino)
		for line := range strings.Lines(string(content)) {
			if strings.Contains(line, "-> FLOCK") && strings.Contains(line, inode) {
				n++
			}
		}
	}
	return n
}

// What the guest's IPAM plugin has leased for a pod is released with its NIC, also after an ADD that was killed.
func TestReclaimLease(t *testing.T) {
	r := newReclaimer(t)
	pod := cnitest.NewNS(t)
	r.Add(r.config(), "CNI_NETNS="+path(pod))
	if len(r.leases()) != 1 {
		t.Fatalf("host-local has leased %v", r.leases())
	}
	r.start()
	r.move("eth0", pod, r.Guest, "back1")
	r.wantGone("c1")
	r.wantNothing()
	asked := make(chan struct{})
	r.daemon.onAttach = func(q *hostdpb.AttachNICRequest) error {
		close(asked)
		return r.daemon.plug(r.daemon.nics[q.GetContainerId()+" "+q.GetInterface()])
	}
	r.Interrupt(syscall.SIGKILL, asked, r.config())
	r.eventually("the address is released", func() bool { return len(r.leases()) == 0 })
	r.eventually("the NIC is given back", func() bool { return !r.has("c1") })
}

// An IPAM plugin that fails is asked again, though the NIC is gone by then.
func TestReclaimLeaseAgain(t *testing.T) {
	r := newReclaimer(t)
	script := fmt.Sprintf(`#!/bin/sh
[ $CNI_COMMAND != DEL ] || mkdir %[1]s/failed 2>/dev/null || exec %[2]s/host-local
[ $CNI_COMMAND = DEL ] || exec %[2]s/host-local
echo '{"cniVersion": "1.0.0", "code": 100, "msg": "not now"}'
exit 1
`, r.Dir, cnitest.PluginDir)
	r.Must(os.WriteFile(filepath.Join(r.Dir, "sometimes"), []byte(script), 0o755))
	pod := cnitest.NewNS(t)
	r.Add(r.config(func(c map[string]any) { c["ipam"].(map[string]any)["type"] = "sometimes" }), "CNI_NETNS="+path(pod))
	r.start()
	r.move("eth0", pod, r.Guest, "back1")
	r.eventually("the failure is said", func() bool { return r.said("not now") })
	r.wantGone("c1")
	r.wantNothing()
}

// An ADD that is killed while it asks the daemon leaves a NIC of which the guest does not know the MAC.
func TestReclaimAfterKilledADD(t *testing.T) {
	r := newReclaimer(t)
	r.start()
	asked, goOn := make(chan struct{}), make(chan struct{})
	r.daemon.onAttach = func(q *hostdpb.AttachNICRequest) error {
		close(asked)
		<-goOn
		return r.daemon.plug(r.daemon.nics[q.GetContainerId()+" "+q.GetInterface()])
	}
	r.Interrupt(syscall.SIGKILL, asked, r.ofDaemon())
	close(goOn) // the VMM plugs it all the same
	r.wantGone("c1")
	r.wantNothing()
}

// Without the daemon the NIC is given back once it answers, and a mistake of the daemon is tried again.
func TestReclaimWithoutDaemon(t *testing.T) {
	r := newReclaimer(t)
	pod := r.pod("c1")
	r.start()
	r.daemon.stop()
	r.move("eth0", pod, r.Guest, "back1")
	r.eventually("the failure is said", func() bool { return r.said("give back the NIC of a pod that ended without a DEL; trying again") })
	r.daemon.start()
	r.wantGone("c1")
	r.wantNothing()
}

// A NIC is given back only if it is still the attachment's.
func TestReclaimOtherNIC(t *testing.T) {
	r := newReclaimer(t)
	pod := r.pod("c1")
	r.daemon.setMAC("c1 eth0", "02:00:00:00:00:09")
	r.start()
	r.move("eth0", pod, r.Guest, "back1")
	r.eventually("the refusal is said", func() bool { return r.said("it has 02:00:00:00:00:09") })
	if !r.has("c1") {
		t.Error("another NIC of the attachment is given back")
	}
}

// What a DEL, or the rollback of an ADD, could not release while the daemon was away is released without another command.
func TestReclaimAfterCommandsWithoutDaemon(t *testing.T) {
	r := newReclaimer(t)
	r.start()
	pod := cnitest.NewNS(t)
	r.Add(r.config(), "CNI_CONTAINERID=c1", "CNI_NETNS="+path(pod))
	r.daemon.stop()
	r.Succeeds("DEL", r.config(), "CNI_CONTAINERID=c1", "CNI_NETNS="+path(pod))
	if a := r.Run("ADD", r.ofDaemon(), "CNI_CONTAINERID=c2", "CNI_NETNS="+path(cnitest.NewNS(t))); a.Exit == 0 {
		t.Error("ADD without a daemon succeeded")
	}
	r.eventually("the failures are said", func() bool { return r.said("container=c1 ") && r.said("container=c2 ") })
	r.daemon.start()
	r.wantGone("c1")
	r.wantGone("c2")
	r.eventually("nothing is pending", func() bool { return len(r.Pending()) == 0 })
	r.wantNothing()
}

// An IPAM plugin that fails a DEL is asked again, if the runtime does not repeat the DEL.
func TestReclaimLeaseOfDEL(t *testing.T) {
	r := newReclaimer(t)
	script := fmt.Sprintf("#!/bin/sh\n[ $CNI_COMMAND = DEL ] && [ ! -e %[1]s/works ] && exit 1\nexec %[2]s/host-local\n", r.Dir, cnitest.PluginDir)
	r.Must(os.WriteFile(filepath.Join(r.Dir, "sometimes"), []byte(script), 0o755))
	config := r.config(func(c map[string]any) { c["ipam"].(map[string]any)["type"] = "sometimes" })
	r.Add(config)
	if a := r.Run("DEL", config); a.Exit == 0 || r.has("c1") || len(r.leases()) != 1 {
		t.Fatalf("DEL whose IPAM plugin fails: %+v, leases %v, the daemon has %v", a, r.leases(), r.daemon.all())
	}
	r.Must(os.WriteFile(filepath.Join(r.Dir, "works"), nil, 0o600))
	r.start()
	r.wantGone("c1")
	r.wantNothing()
}

// An ADD that is killed while no link changes is noticed.
func TestReclaimKilledWithoutLink(t *testing.T) {
	r := newReclaimer(t)
	r.move("eth0", r.pod("c0"), r.Guest, "back0")
	r.start()
	r.wantGone("c0")
	asked, goOn := make(chan struct{}), make(chan struct{})
	r.daemon.onAttach = func(*hostdpb.AttachNICRequest) error { // the NIC is warm: it is already there
		close(asked)
		<-goOn
		return nil
	}
	r.Interrupt(syscall.SIGKILL, asked, r.ofDaemon())
	close(goOn)
	r.wantGone("c1")
}

// A DEL that is killed after the daemon has detached the NIC leaves no file, although no link tells of it any more.
func TestReclaimKilledDEL(t *testing.T) {
	r := newReclaimer(t)
	pod := r.pod("c1")
	released, goOn := make(chan struct{}), make(chan struct{})
	r.daemon.detached = sync.OnceFunc(func() {
		close(released)
		<-goOn
	})
	cmd := r.Command("DEL", r.ofDaemon(), "CNI_CONTAINERID=c1", "CNI_NETNS="+path(pod))
	r.Must(r.Guest.Do(func(ns.NetNS) error { return cmd.Start() }))
	<-released
	r.Must(cmd.Process.Kill())
	_ = cmd.Wait()
	close(goOn)
	r.start()
	r.eventually("no file is left", func() bool {
		kept, err := filepath.Glob(filepath.Join(r.Dir, "run", "runtimes", "*", "*"))
		return err == nil && len(kept) == 0
	})
	r.wantNothing()
}
