package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"unnest.io/unnest/internal/hostapi/hostdpb"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/netdev/share"
)

// withVolumes gives each tenant a directory for volumes, which a test makes.
func withVolumes(p quota.Config, stateDir string) quota.Config {
	for i := range p.Tenants {
		p.Tenants[i].Volumes, p.Tenants[i].VolumesUnbounded = filepath.Join(stateDir, "volumes", p.Tenants[i].Name), true
	}
	return p
}

func (l *lab) makeVolumes() {
	l.t.Helper()
	for _, tenant := range []string{"default", "other"} {
		l.check(os.MkdirAll(filepath.Join(l.dir, "volumes", tenant), 0o700))
	}
}

// sharePorts returns QEMU's options for n ports for shares.
func sharePorts(n int) (more []string) {
	for i := range n {
		more = append(more, "-device", fmt.Sprintf("pcie-root-port,id=vp%d,chassis=%d,slot=%d,addr=0xe.%d,multifunction=on", i+1, 201+i, 201+i, i))
	}
	return more
}

var mapped = []string{"-object", "memory-backend-memfd,id=ram,size=64M,share=on", "-machine", "memory-backend=ram"}

func (m *machine) volume(pod, key, name string) (*hostdpb.Volume, error) {
	r, err := m.client().AttachVolume(m.lab.t.Context(), &hostdpb.AttachVolumeRequest{Pod: pod, Key: key, Name: name})
	return r.GetVolume(), err
}

func (m *machine) mustVolume(pod, name string) *hostdpb.Volume {
	m.lab.t.Helper()
	v, err := m.volume(pod, testKey, name)
	m.lab.check(err)
	return v
}

func (m *machine) memory(pod, key, name string, size uint64) (*hostdpb.SharedMemory, error) {
	r, err := m.client().AttachSharedMemory(m.lab.t.Context(), &hostdpb.AttachSharedMemoryRequest{Pod: pod, Key: key, Name: name, Size: size})
	return r.GetMemory(), err
}

func (m *machine) dropVolume(pod, name string) error {
	_, err := m.client().DetachVolume(m.lab.t.Context(), &hostdpb.DetachVolumeRequest{Pod: pod, Name: name})
	return err
}

func (m *machine) dropMemory(pod, name string) error {
	_, err := m.client().DetachSharedMemory(m.lab.t.Context(), &hostdpb.DetachSharedMemoryRequest{Pod: pod, Name: name})
	return err
}

// willing calls f while the guest gives up whatever it is asked for.
func (m *machine) willing(f func() error) {
	m.lab.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- f() }()
	for {
		select {
		case err := <-ended:
			m.lab.check(err)
			return
		case <-time.After(50 * time.Millisecond):
			m.reset()
		}
	}
}

// shared lists the devices in the ports for shares, as "ID on bus".
func (m *machine) shared() (all []string) {
	m.lab.t.Helper()
	found, err := m.owner.Peripherals(m.lab.t.Context())
	m.lab.check(err)
	for _, d := range found {
		if strings.HasPrefix(d.Bus, "vp") {
			all = append(all, d.ID+" on "+d.Bus)
		}
	}
	return all
}

func (m *machine) wantShared(want ...string) {
	m.lab.t.Helper()
	if got := m.shared(); !slices.Equal(got, want) {
		m.lab.t.Errorf("%s has %q, want %q", m.record.Name, got, want)
	}
}

// regions are the inode numbers of the shared memory that a process has, by title.
func regions(t *testing.T, pid int) map[string]uint64 {
	t.Helper()
	found, err := share.FindRegions(pid)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]uint64{}
	for _, r := range found {
		var s unix.Stat_t
		if err := unix.Fstat(int(r.File.Fd()), &s); err != nil {
			t.Fatal(err)
		}
		r.File.Close()
		all[r.ID.String()] = s.Ino
	}
	return all
}

// servers counts the processes that serve volumes of the lab: each is two.
func (l *lab) servers() (n int) {
	l.t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	l.check(err)
	for _, path := range paths {
		line, _ := os.ReadFile(path)
		if strings.Contains(string(line), "virtiofsd") && strings.Contains(string(line), "="+l.dir+"/") {
			n++
		}
	}
	return n / 2
}

// wantVolumes compares the directories of a tenant's pods.
func (l *lab) wantVolumes(tenant string, want ...string) {
	l.t.Helper()
	dir := filepath.Join(l.dir, "volumes", tenant) + "/"
	found, err := filepath.Glob(dir + "[^.]*/*")
	l.check(err)
	var got []string
	for _, path := range found {
		got = append(got, strings.TrimPrefix(path, dir))
	}
	pods, err := os.ReadDir(dir)
	l.check(err)
	if slices.Sort(got); !slices.Equal(got, want) || len(pods) > len(got) {
		l.t.Errorf("tenant %s has %q in %v, want %q", tenant, got, pods, want)
	}
}

func (l *lab) wantServers(want int) {
	l.t.Helper()
	l.eventually(fmt.Sprintf("there are %d servers", want), func() bool { return l.servers() == want })
}

func wantStatusCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

func TestVolumes(t *testing.T) {
	l := newLab(t)
	l.makeVolumes()
	more := append(sharePorts(2), mapped...)
	one, two := l.boot(1, 1, more...), l.boot(2, 1, more...)
	l.serve(time.Minute)
	v := one.mustVolume("web", "data")
	want := &hostdpb.Volume{Pod: "web", Name: "data", Transport: hostdpb.VolumeTransport_VOLUME_TRANSPORT_VIRTIOFS, Tag: "vp1", Port: "0000:00:0e.0"}
	if v.String() != want.String() {
		t.Errorf("got %v, want %v", v, want)
	}
	if again := one.mustVolume("web", "data"); again.String() != want.String() {
		t.Errorf("asked again: got %v", again)
	}
	if got := one.property("volume.data.web", "tag"); got != "vp1" {
		t.Errorf("tag is %s", got)
	}
	two.mustVolume("web", "data")
	two.mustVolume("web", "logs")
	one.wantShared("volume.data.web on vp1")
	two.wantShared("volume.data.web on vp1", "volume.logs.web on vp2")
	l.wantServers(3)
	_, err := two.volume("web", testKey, "third")
	wantStatusCode(t, "a limit", err, codes.ResourceExhausted)
	_, err = one.volume("web", testKey+"x", "data")
	wantStatusCode(t, "another key", err, codes.PermissionDenied)
	_, err = two.volume("db", testKey, "data")
	wantStatusCode(t, "a limit for another pod", err, codes.ResourceExhausted)
	l.wantVolumes("default", "web/.key", "web/data", "web/logs")
	if len(one.devices()) > 0 {
		t.Errorf("there are NICs: %v", one.devices())
	}

	// Another daemon goes on, and the volumes were there all the time.
	l.end(l.daemon, syscall.SIGKILL)
	l.wantServers(3)
	l.serve(time.Minute)
	if again := one.mustVolume("web", "data"); again.String() != want.String() {
		t.Errorf("after another start: got %v", again)
	}
	_, err = one.volume("web", testKey, "third")
	wantStatusCode(t, "a limit after another start", err, codes.ResourceExhausted)
	begin := time.Now()
	one.willing(func() error { return one.dropVolume("web", "data") })
	l.check(one.dropVolume("web", "data")) // there is none
	one.wantShared()
	l.wantServers(2)

	// Its port cools down, so the volume gets the other port, without waiting, unless a busy
	// machine was slower than that.
	again := one.mustVolume("web", "data")
	if again.GetTag() != "vp2" && time.Since(begin) < 3*time.Second {
		t.Errorf("attached again: got %v after %v", again, time.Since(begin))
	}
	two.willing(func() error { return two.dropVolume("web", "logs") })
	if logs := one.mustVolume("web", "logs"); logs.GetTag() == again.GetTag() {
		t.Errorf("in the other port: got %v, with %v", logs, again)
	}
	l.end(two.qemu, syscall.SIGKILL)
	l.wantServers(2)
	l.eventually("the daemon counts no volume of a guest that is gone", func() bool {
		_, err := one.volume("db", testKey, "data")
		return status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "no free port")
	})
}

// The next daemon removes what a daemon leaves that is killed in the middle.
func TestVolumeLeftovers(t *testing.T) {
	l := newLab(t)
	l.makeVolumes()
	m := l.boot(1, 1, append(sharePorts(1), mapped...)...)
	ctx := t.Context()
	l.check(m.owner.Execute(ctx, "chardev-add", map[string]any{"id": "volume.data.web", "backend": map[string]any{"type": "null", "data": map[string]any{}}}, nil))
	for _, id := range []string{"memory.ring.web", "theirs"} {
		l.check(m.owner.Execute(ctx, "object-add", map[string]any{"qom-type": "memory-backend-memfd", "id": id, "share": true, "size": 4096}, nil))
	}
	l.serve(time.Minute)
	m.mustVolume("web", "data")
	m.wantShared("volume.data.web on vp1")
	objects, err := m.owner.Objects(ctx)
	if slices.Sort(objects); err != nil || !slices.Equal(objects, []string{"ram", "theirs"}) {
		t.Errorf("QEMU has %q, %v", objects, err)
	}
}

func TestSharedMemory(t *testing.T) {
	l := newLab(t)
	one, two, three := l.boot(1, 1, sharePorts(2)...), l.boot(2, 1, sharePorts(1)...), l.boot(3, 1, sharePorts(2)...)
	l.serve(time.Minute)
	const size = 256 << 10
	r, err := one.memory("web", testKey, "ring", size)
	want := &hostdpb.SharedMemory{Pod: "web", Name: "ring", Size: size, Port: "0000:00:0e.0"}
	if err != nil || r.String() != want.String() {
		t.Fatalf("got %v, %v, want %v", r, err, want)
	}
	if r, err = two.memory("web", testKey, "ring", 0); err != nil || r.String() != want.String() {
		t.Errorf("the other guest: got %v, %v, want %v", r, err, want)
	}
	for what, f := range map[string]func() error{
		"another size": func() error { _, err := three.memory("web", testKey, "ring", 2*size); return err },
		"another key":  func() error { _, err := three.memory("web", testKey+"x", "ring", size); return err },
		"too much":     func() error { _, err := three.memory("web", testKey, "more", 1<<20); return err },
		"odd":          func() error { _, err := three.memory("web", testKey, "more", 5000); return err },
		"no port":      func() error { _, err := two.memory("web", testKey, "more", 4096); return err },
	} {
		wantStatusCode(t, what, f(), map[string]codes.Code{
			"another size": codes.FailedPrecondition, "another key": codes.PermissionDenied, "too much": codes.ResourceExhausted,
			"odd": codes.InvalidArgument, "no port": codes.ResourceExhausted,
		}[what])
	}
	const id = "memory.ring.web"
	first := regions(t, one.qemu.Process.Pid)
	if len(first) != 1 || first[id] == 0 || regions(t, two.qemu.Process.Pid)[id] != first[id] {
		t.Errorf("the guests have %v and %v", first, regions(t, two.qemu.Process.Pid))
	}

	// The next daemon gives a guest that comes later the same memory.
	l.end(l.daemon, syscall.SIGKILL)
	l.serve(time.Minute)
	if r, err = three.memory("web", testKey, "ring", 0); err != nil || r.GetSize() != size {
		t.Fatalf("after another start: got %v, %v", r, err)
	}
	if got := regions(t, three.qemu.Process.Pid); got[id] != first[id] {
		t.Errorf("the third guest has %v, the first %v", got, first)
	}
	_, err = three.memory("web", testKey+"x", "ring", 0)
	wantStatusCode(t, "another key after another start", err, codes.PermissionDenied)
	one.willing(func() error { return one.dropMemory("web", "ring") })
	three.willing(func() error { return three.dropMemory("web", "ring") })
	one.wantShared()
	if objects, err := one.owner.Objects(t.Context()); err != nil || len(objects) != 1 { // its own memory
		t.Errorf("QEMU has %q, %v", objects, err)
	}
	l.end(two.qemu, syscall.SIGKILL)
	// It was freed with the last guest, so it can be created with another size.
	l.eventually("no guest has it", func() bool {
		r, err = one.memory("web", testKey, "ring", 4096)
		return status.Code(err) != codes.FailedPrecondition
	})
	if err != nil || r.GetSize() != 4096 {
		t.Errorf("created again: got %v, %v", r, err)
	}
	if got := regions(t, one.qemu.Process.Pid); got[id] == 0 || got[id] == first[id] {
		t.Errorf("it is the same: %v, %v before", got, first)
	}
}

// Memory that the daemon could not take over is not created again under its name.
func TestSharedMemoryIsLost(t *testing.T) {
	l := newLab(t)
	one, two := l.boot(1, 1, sharePorts(1)...), l.boot(2, 1, sharePorts(1)...)
	ctx := t.Context()
	const id = "memory.ring.web"
	l.check(one.owner.Execute(ctx, "object-add", map[string]any{"qom-type": "memory-backend-memfd", "id": id, "share": true, "size": 4096}, nil))
	l.check(one.owner.DeviceAdd(ctx, map[string]any{"driver": "ivshmem-plain", "id": id, "memdev": id, "bus": "vp1", "addr": "0"}))
	l.serve(time.Minute)
	for _, m := range []*machine{one, two} {
		_, err := m.memory("web", testKey, "ring", 4096)
		wantStatusCode(t, m.record.Name, err, codes.FailedPrecondition)
	}
	one.willing(func() error { return one.dropMemory("web", "ring") })
	r, err := two.memory("web", testKey, "ring", 8192)
	if err != nil || r.GetSize() != 8192 {
		t.Errorf("when it is gone: got %v, %v", r, err)
	}
}

func TestSharesRefused(t *testing.T) {
	l := newLab(t)
	l.makeVolumes()
	more := append(sharePorts(2), mapped...)
	bare, private, whole, other := l.boot(1, 1), l.boot(2, 1, sharePorts(1)...), l.boot(3, 1, more...), l.boot(4, 1, more...)
	other.record.Tenant = "other"
	other.write()
	l.serve(time.Minute)
	for what, f := range map[string]func() error{
		"no ports":             func() error { _, err := bare.volume("web", testKey, "data"); return err },
		"no ports for memory":  func() error { _, err := bare.memory("web", testKey, "ring", 4096); return err },
		"memory is not shared": func() error { _, err := private.volume("web", testKey, "data"); return err },
	} {
		wantStatusCode(t, what, f(), codes.FailedPrecondition)
	}
	for what, r := range map[string][3]string{
		"short key": {"web", "short", "data"}, "no pod": {"", testKey, "data"}, "no name": {"web", testKey, ""},
		"parent": {"..", testKey, "data"}, "way out": {"web", testKey, "../../x"}, "hidden": {"web", testKey, ".key"}, "a blank in the key": {"web", "k" + strings.Repeat(" k", 10), "data"},
	} {
		_, err := whole.volume(r[0], r[1], r[2])
		wantStatusCode(t, what, err, codes.InvalidArgument)
	}
	// What was refused counts for nothing.
	for _, name := range []string{"a", "b"} {
		whole.mustVolume("web", name)
	}
	// Another tenant's pod of the name is another pod.
	v, err := other.volume("web", strings.Repeat("k", 16), "a")
	if err != nil || v.GetTag() != "vp1" {
		t.Errorf("the other tenant: got %v, %v", v, err)
	}
	l.wantServers(3)
	l.wantVolumes("default", "web/.key", "web/a", "web/b")
	l.wantVolumes("other", "web/.key", "web/a")
	// The key is that of the pod's segment, if there is one.
	whole.mustJoin("db", "c1")
	_, err = private.volume("db", strings.Repeat("k", 16), "data")
	wantStatusCode(t, "a key that is not the segment's", err, codes.PermissionDenied)
	l.wantVolumes("default", "web/.key", "web/a", "web/b")
}

func TestGuestThatKeepsItsVolume(t *testing.T) {
	l := newLab(t)
	l.makeVolumes()
	m := l.boot(1, 1, append(sharePorts(1), mapped...)...)
	l.serve(50 * time.Millisecond)
	m.mustVolume("web", "data")
	wantStatusCode(t, "detach", m.dropVolume("web", "data"), codes.DeadlineExceeded)
	_, err := m.volume("web", testKey, "data")
	wantStatusCode(t, "attach meanwhile", err, codes.Aborted)
	begin := time.Now()
	m.reset() // the guest gives the volume up
	l.eventually("it is gone", func() bool { return len(m.shared()) == 0 })
	l.wantServers(0)
	l.check(m.dropVolume("web", "data"))
	if m.mustVolume("web", "data"); time.Since(begin) < 1500*time.Millisecond {
		t.Errorf("its port cooled down for %v", time.Since(begin))
	}
}

// bootExport boots a guest with an export of its own. If prepare, the daemon has run before.
func (l *lab) bootExport(prepare bool) (m *machine, export string) {
	l.t.Helper()
	export = l.t.TempDir()
	l.t.Cleanup(func() { // before it is removed with what is in it
		l.check((share.Export{Dir: export}).Close())
	})
	m = l.boot(1, 1)
	m.more = append(sharePorts(1), "-fsdev", "local,id=export,security_model=passthrough,multidevs=remap,path="+export,
		"-device", "virtio-9p-pci,fsdev=export,mount_tag=volumes")
	m.record.Export = export
	l.end(m.qemu, syscall.SIGKILL)
	m.write()
	if prepare {
		l.serve(time.Minute)
		l.eventually("the export is prepared", func() bool { return (share.Export{Dir: export}).Check() == nil })
	}
	m.boot()
	if !prepare {
		l.serve(time.Minute)
	}
	return m, export
}

// A guest whose memory is private gets volumes in its export.
func TestExport(t *testing.T) {
	l := newLab(t)
	l.makeVolumes()
	m, export := l.bootExport(true)
	want := &hostdpb.Volume{
		Pod: "web", Name: "data", Transport: hostdpb.VolumeTransport_VOLUME_TRANSPORT_9P, Tag: "volumes", Path: "volume.data.web",
	}
	for range 2 {
		if v := m.mustVolume("web", "data"); v.String() != want.String() {
			t.Errorf("got %v, want %v", v, want)
		}
	}
	m.mustVolume("web", "logs")
	l.check(os.WriteFile(filepath.Join(l.dir, "volumes/default/web/data/file"), []byte("hello"), 0o600))
	if got, err := os.ReadFile(export + "/volume.data.web/file"); err != nil || string(got) != "hello" {
		t.Errorf("the guest sees %q, %v", got, err)
	}
	for what, attach := range map[string]func() error{
		"another key": func() error { _, err := m.volume("web", testKey+"x", "data"); return err },
		"above limits": func() error {
			m.mustVolume("web", "third")
			_, err := m.volume("web", testKey, "fourth")
			return err
		},
	} {
		if err := attach(); err == nil {
			t.Errorf("%s: volume is attached", what)
		}
	}
	l.check(m.dropVolume("web", "third"))
	l.wantVolumes("default", "web/.key", "web/data", "web/logs", "web/third")
	l.wantExport(export, "volume.data.web", "volume.logs.web")
	l.end(l.daemon, syscall.SIGKILL)
	l.serve(time.Minute)
	if v := m.mustVolume("web", "data"); v.String() != want.String() {
		t.Errorf("after another start: got %v", v)
	}
	l.check(m.dropVolume("web", "data"))
	l.wantExport(export, "volume.logs.web")
	l.end(m.qemu, syscall.SIGKILL)
	l.eventually("nothing is left in the export of a guest that is gone", func() bool {
		left, err := filepath.Glob(export + "/*")
		return err == nil && len(left) == 0
	})
	if _, err := os.Stat(filepath.Join(l.dir, "volumes/default/web/data/file")); err != nil {
		t.Errorf("the volume: %v", err)
	}
	m.boot() // the export is still prepared
	m.mustVolume("web", "data")
	l.end(m.qemu, syscall.SIGKILL)
	l.check(os.RemoveAll(filepath.Dir(record.Path(l.dir, m.record.Name))))
	l.eventually("the export of a removed guest is unmounted", func() bool {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		return err == nil && !strings.Contains(string(mounts), export)
	})
}

// A guest cannot fill its tenant's file system with directories of volumes that it makes
// and detaches. What counts is what is there, whichever daemon has made it.
func TestVolumeDirectories(t *testing.T) {
	l := newLab(t)
	l.makeVolumes()
	m, _ := l.bootExport(true)
	attach := func(pod string) error {
		_, err := m.volume(pod, testKey, "data")
		if err == nil {
			err = m.dropVolume(pod, "data")
		}
		return err
	}
	for i := range 4 { // the limit
		l.check(attach(fmt.Sprintf("pod%d", i)))
	}
	refused := func(pod string) {
		t.Helper()
		if err := attach(pod); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "made 4 volumes") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want one line about 4 volumes", pod, err)
		}
	}
	refused("pod4")
	l.check(attach("pod0")) // it exists
	l.end(l.daemon, syscall.SIGKILL)
	l.serve(time.Minute)
	refused("pod4")
	l.wantVolumes("default", "pod0/.key", "pod0/data", "pod1/.key", "pod1/data", "pod2/.key", "pod2/data", "pod3/.key", "pod3/data")
	l.check(os.RemoveAll(filepath.Join(l.dir, "volumes/default/pod3")))
	l.check(attach("pod4"))
	refused("pod5")
}

// The export of a guest that is removed while no daemon runs is unmounted by the next one.
func TestExportOfRemovedGuest(t *testing.T) {
	l := newLab(t)
	l.makeVolumes()
	m, export := l.bootExport(true)
	m.mustVolume("web", "data")
	l.end(l.daemon, syscall.SIGKILL)
	l.end(m.qemu, syscall.SIGKILL)
	record := record.Path(l.dir, m.record.Name)
	l.check(os.Rename(record, record+".kept"))
	l.check(os.WriteFile(record, []byte("damaged"), 0o600)) // the export may be this guest's
	l.serve(time.Minute)
	l.wantSaid("end what guests that are gone shared: it is left as it is")
	if err := (share.Export{Dir: export}).Check(); err != nil {
		t.Errorf("while a record is damaged: %v", err)
	}
	l.end(l.daemon, syscall.SIGKILL)
	l.check(os.RemoveAll(filepath.Dir(record)))
	l.serve(time.Minute)
	l.eventually("the export of a removed guest is unmounted", func() bool {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		return err == nil && !strings.Contains(string(mounts), export)
	})
	if _, err := os.Stat(filepath.Join(l.dir, "volumes/default/web/data")); err != nil {
		t.Errorf("the volume: %v", err)
	}
}

// A guest that started before its export was read-only gets no volume there, whatever it
// has put in place.
func TestExportThatTheGuestWrites(t *testing.T) {
	l := newLab(t)
	l.makeVolumes()
	outside := t.TempDir()
	m, export := l.bootExport(false)
	l.check(os.Symlink(outside, export+"/volume.data.web")) // as the guest's root does by 9p
	_, err := m.volume("web", testKey, "data")
	wantStatusCode(t, "a writable export", err, codes.FailedPrecondition)
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), outside) {
		t.Errorf("something is mounted through the guest's link: %v", err)
	}
	l.wantVolumes("default")
	l.end(m.qemu, syscall.SIGKILL)
	l.eventually("the export is prepared", func() bool { return (share.Export{Dir: export}).Check() == nil })
	m.boot()
	m.mustVolume("web", "data")
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), outside) {
		t.Errorf("something is mounted through the guest's link: %v", err)
	}
}

func (l *lab) wantExport(export string, want ...string) {
	l.t.Helper()
	entries, err := os.ReadDir(export)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if err != nil || !slices.Equal(got, want) {
		l.t.Errorf("in the export is %q, %v, want %q", got, err, want)
	}
}

// An ephemeral volume ends with its last guest: detached, collected, or gone while there was no daemon. Until then it stays,
// whoever is killed.
func TestEphemeralVolumes(t *testing.T) {
	l := newLab(t)
	l.makeVolumes()
	more := append(sharePorts(2), mapped...)
	one, two := l.boot(1, 1, more...), l.boot(2, 1, more...)
	l.serve(time.Minute)
	attach := func(m *machine, name string) error {
		_, err := m.client().AttachVolume(t.Context(), &hostdpb.AttachVolumeRequest{Pod: "web", Name: name, Key: testKey, Ephemeral: true})
		return err
	}
	collect := func(m *machine, keep ...string) error {
		r := &hostdpb.CollectVolumesRequest{}
		for _, name := range keep {
			r.Keep = append(r.Keep, &hostdpb.Volume{Pod: "web", Name: name})
		}
		_, err := m.client().CollectVolumes(t.Context(), r)
		return err
	}
	left := func() string {
		all, err := filepath.Glob(filepath.Join(l.dir, "volumes/default/*/*"))
		l.check(err)
		hidden, err := filepath.Glob(filepath.Join(l.dir, "volumes/default/.*"))
		l.check(err)
		return strings.ReplaceAll(strings.Join(append(all, hidden...), " "), l.dir+"/volumes/default", "")
	}
	l.check(attach(one, "data"))
	l.check(attach(two, "data"))
	_, err := one.volume("web", testKey, "data")
	wantStatusCode(t, "a lasting volume of the name", err, codes.FailedPrecondition)
	file := filepath.Join(l.dir, "volumes/default/web/data/a/file")
	l.check(os.MkdirAll(filepath.Dir(file), 0o755))
	l.check(os.WriteFile(file, nil, 0o644))
	l.check(collect(one, "data"))
	answer, err := one.client().CollectVolumes(t.Context(), &hostdpb.CollectVolumesRequest{List: true})
	if l.check(err); len(answer.GetLeft()) != 1 || answer.GetLeft()[0].GetPod() != "web" || answer.GetLeft()[0].GetName() != "data" {
		t.Errorf("the list is %v", answer)
	}
	one.wantShared("volume.data.web on vp1")
	one.willing(func() error { return collect(one) })
	one.wantShared()
	l.end(l.daemon, syscall.SIGKILL)
	l.serve(time.Minute)
	if _, err := os.Stat(file); err != nil {
		t.Errorf("while the other guest has it: %v", err)
	}
	l.end(l.daemon, syscall.SIGKILL)
	l.end(two.qemu, syscall.SIGKILL)
	l.serve(time.Minute)
	l.eventually("the volume of a guest that is gone has ended", func() bool { return left() == "" })
	l.check(attach(one, "data"))
	l.check(os.MkdirAll(filepath.Dir(file), 0o755))
	one.willing(func() error { return one.dropVolume("web", "data") })
	l.eventually("a volume that is detached has ended", func() bool { return left() == "" })
}

// The ephemeral volumes of a guest end with its boot, also if it was reset while there was no daemon and has no NIC of a pod. Those that last
// stay, and what another guest has. A late request of the boot before gives nothing.
func TestVolumesEndWithTheBoot(t *testing.T) {
	l := newLab(t)
	l.makeVolumes()
	more := append(sharePorts(2), mapped...)
	one, two := l.bootWithOwnNIC(1, more...), l.bootWithOwnNIC(2, more...)
	l.serve(time.Minute)
	attach := func(m *machine, boot, name string) error {
		_, err := m.client().AttachVolume(m.ofBoot(boot), &hostdpb.AttachVolumeRequest{Pod: "web", Name: name, Key: testKey, Ephemeral: true})
		return err
	}
	hello := func(boot string) error {
		_, err := one.client().Status(one.ofBoot(boot), &hostdpb.StatusRequest{})
		return err
	}
	l.eventually("the guest is served", func() bool { return attach(one, boots[0], "data") == nil })
	l.check(attach(two, boots[2], "data"))
	one.mustVolume("web", "lasting")
	list, err := one.client().CollectVolumes(t.Context(), &hostdpb.CollectVolumesRequest{List: true})
	if l.check(err); len(list.GetLeft()) != 1 || list.GetLeft()[0].GetTag() != "vp1" {
		t.Errorf("the list is %v, want the volume with its tag", list)
	}
	l.end(l.daemon, syscall.SIGKILL)
	one.reset()
	l.serve(time.Minute)
	l.eventually("the same boot is served", func() bool { return hello(boots[0]) == nil })
	one.wantShared("volume.data.web on vp1", "volume.lasting.web on vp2")

	l.makeOld(one)
	l.check(hello(boots[1]))
	wantStatusCode(t, "of the boot before", attach(one, boots[0], "late"), codes.Aborted)
	one.reset() // the guest gives the volume up, and its boot ends
	l.eventually("the ephemeral volume is gone, and the boot", func() bool {
		b, err := record.ReadBoot(l.dir, one.record.Name)
		return err == nil && b.ID == "" && slices.Equal(one.shared(), []string{"volume.lasting.web on vp2"})
	})
	two.wantShared("volume.data.web on vp1")
	l.wantVolumes("default", "web/.key", "web/data", "web/lasting")
	l.eventually("the next boot gets it again", func() bool { return attach(one, boots[2], "data") == nil })
	l.end(l.daemon, syscall.SIGKILL)
	l.serve(time.Minute)
	l.eventually("the boot is known to the next daemon", func() bool { return hello(boots[2]) == nil })
	if got := one.shared(); len(got) != 2 {
		t.Errorf("after another start of the daemon the guest has %q", got)
	}
}
