package qemu

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/netdev/share"
	"unnest.io/unnest/internal/vmm"
)

const sharedMemory = "-object memory-backend-memfd,id=ram,size=64M,share=on -machine memory-backend=ram"

func shareAt(number int) string {
	return fmt.Sprintf("pcie-root-port,id=vp%d,chassis=%d,slot=%d,addr=0xe.%d,multifunction=on", number, 128+number, 128+number, number-1)
}

func (m *machine) wantShared(v *VMM, want ...vmm.Occupied) {
	m.t.Helper()
	if got, err := v.Shared(m.t.Context()); err != nil || !slices.Equal(got, want) {
		m.t.Errorf("in the ports is %v, %v, want %v", got, err, want)
	}
}

// wantLeft checks the backends that our devices have left.
func (m *machine) wantLeft(v *VMM, want ...string) {
	m.t.Helper()
	left, err := v.OrphanedBackends(m.t.Context())
	left = slices.DeleteFunc(left, func(id string) bool { _, ours := share.ParseID(id); return !ours })
	if err != nil || !slices.Equal(left, want) {
		m.t.Errorf("orphaned backends: got %q, %v, want %q", left, err, want)
	}
}

// serve starts a virtiofsd for a directory.
func serve(t *testing.T) (*share.Server, *os.File) {
	t.Helper()
	server, conn, err := share.Serve(t.TempDir(), (*exec.Cmd).Start)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	t.Cleanup(func() { conn.Close() })
	return server, conn
}

// The server of a volume ends with its device, and with QEMU.
func TestFiles(t *testing.T) {
	m := boot(t, sharedMemory, portAt("rp1", "1"), shareAt(1), shareAt(2))
	v := m.dial("rp1")
	if got := v.SharePorts(); !slices.Equal(got, []vmm.SharePort{{Address: "0000:00:0e.0"}, {Address: "0000:00:0e.1"}}) {
		t.Errorf("ports are %v", got)
	}
	if size, err := v.MappedMemory(t.Context()); size != 64<<20 || err != nil {
		t.Errorf("others can map %d bytes, %v, want %d", size, err, 64<<20)
	}
	if pid, err := v.PID(); err != nil || pid != m.cmd.Process.Pid {
		t.Errorf("QEMU is %d, %v, want %d", pid, err, m.cmd.Process.Pid)
	}
	const data, logs = "volume.data.web", "volume.logs.web"
	var servers []*share.Server
	for i, id := range []string{data, logs} {
		server, conn := serve(t)
		if err := v.AddFiles(t.Context(), id, i+1, fmt.Sprint("tag", i), conn); err != nil {
			t.Fatal(err)
		}
		conn.Close()
		servers = append(servers, server)
	}
	m.wantShared(v, vmm.Occupied{ID: data, Slot: 1}, vmm.Occupied{ID: logs, Slot: 2})
	wantDevices(t, v) // the slots of NICs are not affected
	m.wantLeft(v)
	var tag string
	if err := m.owner.Property(t.Context(), data, "tag", &tag); err != nil || tag != "tag0" {
		t.Errorf("tag is %q, %v", tag, err)
	}

	if err := v.DeleteDevice(t.Context(), data); err != nil {
		t.Fatal(err)
	}
	if err := v.DeleteBackend(t.Context(), data); err != nil { // still in use
		t.Error(err)
	}
	m.wantShared(v, vmm.Occupied{ID: data, Slot: 1}, vmm.Occupied{ID: logs, Slot: 2})
	m.reset()
	await(t, v, vmm.Deleted{ID: data})
	m.wantLeft(v, data)
	if err := servers[0].Err(); err != nil {
		t.Errorf("before its connection: %v", err)
	}
	for range 2 { // the second time it does not exist
		if err := v.DeleteBackend(t.Context(), data); err != nil {
			t.Error(err)
		}
	}
	m.wantLeft(v)
	m.wantShared(v, vmm.Occupied{ID: logs, Slot: 2})
	wantEnd(t, servers[0])
	m.kill()
	wantEnd(t, servers[1])
}

func wantEnd(t *testing.T, s *share.Server) {
	t.Helper()
	for begin := time.Now(); s.Err() == nil; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > patience {
			t.Fatal("the server has not ended")
		}
	}
}

// Two QEMUs share memory, which exists as long as one of them.
func TestMemory(t *testing.T) {
	one, two := boot(t, shareAt(1)), boot(t, shareAt(1), shareAt(2))
	vs := []*VMM{one.dial(), two.dial()}
	if size, err := vs[0].MappedMemory(t.Context()); size != 0 || err != nil {
		t.Errorf("others can map %d bytes, %v", size, err)
	}
	r := &share.Region{Tenant: "default", ID: share.ID{Kind: share.Memory, Pod: "web", Name: "ring"}, Size: 1 << 20}
	if err := r.Create(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.File.WriteAt([]byte("hello"), 4096); err != nil {
		t.Fatal(err)
	}
	id := r.ID.String()
	for i, v := range vs {
		if err := v.AddMemory(t.Context(), id, i+1, r.Size, r.File); err != nil {
			t.Fatal(err)
		}
	}
	r.File.Close()
	one.wantShared(vs[0], vmm.Occupied{ID: id, Slot: 1})
	two.wantShared(vs[1], vmm.Occupied{ID: id, Slot: 2})
	if size, err := vs[1].MappedMemory(t.Context()); size != 0 || err != nil {
		t.Errorf("with a pod's memory: others can map %d bytes, %v", size, err)
	}
	if err := vs[0].DeleteDevice(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	one.reset()
	await(t, vs[0], vmm.Deleted{ID: id})
	one.wantLeft(vs[0], id)
	if err := vs[0].DeleteBackend(t.Context(), id); err != nil {
		t.Error(err)
	}
	one.wantLeft(vs[0])
	one.kill()
	// A later QEMU gets it from the process of the other.
	found, err := share.FindRegions(two.cmd.Process.Pid)
	if err != nil || len(found) != 1 || found[0].ID != r.ID || found[0].Size != r.Size || found[0].Tenant != "default" {
		t.Fatalf("found %v, %v", found, err)
	}
	defer found[0].File.Close()
	got := make([]byte, 5)
	if _, err := found[0].File.ReadAt(got, 4096); err != nil || !bytes.Equal(got, []byte("hello")) {
		t.Errorf("the memory has %q, %v", got, err)
	}
	if err := found[0].File.Truncate(1); !errors.Is(err, unix.EPERM) {
		t.Errorf("the memory can be made smaller: %v", err)
	}
}

// A refused call leaves nothing behind.
func TestShareRefused(t *testing.T) {
	m := boot(t, sharedMemory, shareAt(1), shareAt(2), "virtio-rng-pci,bus=vp2,id=rng")
	v := m.dial()
	r := &share.Region{ID: share.ID{Kind: share.Memory, Pod: "web", Name: "ring"}, Size: 1 << 20}
	if err := r.Create(); err != nil {
		t.Fatal(err)
	}
	defer r.File.Close()
	before := m.sockets()
	for name, port := range map[string]int{"port 0": 0, "port 3": 3, "a port in use": 2} {
		server, conn := serve(t)
		wantRefused(t, "files: "+name, v.AddFiles(t.Context(), "volume.data.web", port, "tag", conn))
		conn.Close()
		wantEnd(t, server)
		wantRefused(t, "memory: "+name, v.AddMemory(t.Context(), "memory.ring.web", port, r.Size, r.File))
	}
	for _, size := range []int64{-1, 0, 3 << 10, 2 << 20} { // the last is larger than the file
		wantRefused(t, fmt.Sprint("size ", size), v.AddMemory(t.Context(), "memory.ring.web", 1, size, r.File))
	}
	// A server that does not answer.
	quiet, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(quiet[1])
	hungUp := os.NewFile(uintptr(quiet[0]), "socket")
	defer hungUp.Close()
	wantRefused(t, "no server", v.AddFiles(t.Context(), "volume.data.web", 1, "tag", hungUp))
	m.wantShared(v, vmm.Occupied{ID: "rng", Slot: 2})
	m.wantLeft(v)
	if after := m.sockets(); after != before {
		t.Errorf("QEMU has %d sockets, had %d", after, before)
	}
}

// sockets counts the sockets of QEMU.
func (m *machine) sockets() (n int) {
	m.t.Helper()
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", m.cmd.Process.Pid))
	if err != nil || len(links) == 0 {
		m.t.Fatalf("%d descriptors, %v", len(links), err)
	}
	for _, l := range links {
		if target, _ := os.Readlink(l); strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}

// Discover does not return the ports for shares.
func TestDiscoverNoShares(t *testing.T) {
	m := boot(t, portAt("nics", "1"), shareAt(1), portAt("vpn", "3"), portAt("vp07", "4"))
	got, err := Discover(t.Context(), m.socket)
	if err != nil || !slices.Equal(got, []string{"nics", "vpn", "vp07"}) {
		t.Errorf("got %q, %v", got, err)
	}
}
