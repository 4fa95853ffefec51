package qmp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// privileged skips the test unless UNNEST_PRIVILEGED=1 is set. With it a missing program
// is an error.
func privileged(t *testing.T) {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root and QEMU: set UNNEST_PRIVILEGED=1")
	}
}

// startQEMU starts a QEMU with four root ports and no operating system, paused
// before its firmware. It is killed when the test ends.
func startQEMU(t *testing.T) (*Client, *os.Process) {
	t.Helper()
	privileged(t)
	dir, err := os.MkdirTemp("", "qmp") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "qmp.sock")
	args := []string{"-M", "q35", "-S", "-nodefaults", "-display", "none", "-accel", "tcg", "-m", "64",
		"-qmp", "unix:" + socket + ",server=on,wait=off"}
	for i := 1; i <= 4; i++ {
		args = append(args, "-device", fmt.Sprintf("pcie-root-port,id=rp%d,chassis=%d,slot=%d", i, i, i))
	}
	cmd := exec.Command("qemu-system-x86_64", args...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start QEMU: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	c := dialWhenUp(t, socket)
	t.Cleanup(func() { _ = c.Close() })
	return c, cmd.Process
}

func dialWhenUp(t *testing.T, socket string) *Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		c, err := Dial(ctx, socket)
		if err == nil {
			return c
		}
		if ctx.Err() != nil || !errors.Is(err, syscall.ENOENT) && !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// newTAP makes a TAP in a network namespace of its own. Both disappear with the last
// descriptor.
func newTAP(t *testing.T) *os.File {
	t.Helper()
	tap, err := inNewNetNS(openTAP)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tap.Close() })
	return tap
}

// inNewNetNS calls f in a new network namespace. The thread returns to its namespace
// instead of ending, because QEMU would end with the thread that started it.
func inNewNetNS(f func() (*os.File, error)) (*os.File, error) {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer home.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, fmt.Errorf("make network namespace: %w", err)
	}
	file, err := f()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		return file, errors.Join(err, back) // the thread stays locked
	}
	runtime.UnlockOSThread()
	return file, err
}

func openTAP() (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	tap := os.NewFile(uintptr(fd), "tap")
	req, err := unix.NewIfreq("qmptap0")
	if err == nil {
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make TAP: %w", err), tap.Close())
	}
	return tap, nil
}

// plugNIC plugs a NIC on a TAP, given by descriptor, in root port rp1.
func plugNIC(t *testing.T, c *Client) {
	t.Helper()
	if err := c.SendFD(t.Context(), "fd1-1", newTAP(t)); err != nil {
		t.Fatal(err)
	}
	if err := c.NetdevAdd(t.Context(), map[string]any{"type": "tap", "id": "net1-1", "fd": "fd1-1"}); err != nil {
		t.Fatal(err)
	}
	if err := c.DeviceAdd(t.Context(), nic("nic1-1", "net1-1")); err != nil {
		t.Fatal(err)
	}
}

func nic(id, netdev string) map[string]any {
	return map[string]any{"driver": "virtio-net-pci", "id": id, "netdev": netdev, "bus": "rp1", "addr": "0", "mac": "02:00:00:00:01:01", "romfile": ""}
}

// behind lists the IDs of the devices that query-pci shows behind a root port.
func behind(t *testing.T, c *Client, port string) []string {
	t.Helper()
	type device struct {
		ID             string `json:"qdev_id"`
		Slot, Function int
	}
	var buses []struct {
		Devices []struct {
			device
			Bridge *struct{ Devices []device } `json:"pci_bridge"`
		}
	}
	if err := c.Execute(t.Context(), "query-pci", nil, &buses); err != nil {
		t.Fatal(err)
	}
	var ids []string
	found := false
	for _, d := range buses[0].Devices {
		if d.ID == port && d.Bridge != nil {
			found = true
			for _, e := range d.Bridge.Devices {
				ids = append(ids, fmt.Sprintf("%s@%d.%d", e.ID, e.Slot, e.Function))
			}
		}
	}
	if !found {
		t.Fatalf("query-pci shows no root port %s in %+v", port, buses)
	}
	return ids
}

func busOf(t *testing.T, c *Client, id string) (bus string, found bool) {
	t.Helper()
	list, err := c.Peripherals(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		if p.ID == id {
			return p.Bus, true
		}
	}
	return "", false
}

func TestQEMUPlug(t *testing.T) {
	c, _ := startQEMU(t)
	plugNIC(t, c)
	if bus, found := busOf(t, c, "nic1-1"); !found || bus != "rp1" {
		t.Errorf("NIC is on bus %q (found %t), want rp1", bus, found)
	}
	if bus, found := busOf(t, c, "rp1"); !found || bus != "pcie.0" {
		t.Errorf("root port is on bus %q (found %t), want pcie.0", bus, found)
	}
	// query-pci shows nothing until the firmware has numbered the buses.
	if got := behind(t, c, "rp1"); len(got) != 0 {
		t.Errorf("query-pci before the firmware shows %v: Peripherals is no longer needed", got)
	}
	if err := c.Execute(t.Context(), "cont", nil, nil); err != nil {
		t.Fatal(err)
	}
	ids := behind(t, c, "rp1")
	for deadline := time.Now().Add(2 * time.Minute); len(ids) == 0 && time.Now().Before(deadline); ids = behind(t, c, "rp1") {
		time.Sleep(20 * time.Millisecond)
	}
	if len(ids) != 1 || ids[0] != "nic1-1@0.0" {
		t.Fatalf("query-pci shows %v behind rp1, want nic1-1@0.0", ids)
	}
	checkOccupied(t, c)
}

// checkOccupied checks that addr=0 keeps a second device off the port.
func checkOccupied(t *testing.T, c *Client) {
	t.Helper()
	if err := c.NetdevAdd(t.Context(), map[string]any{"type": "user", "id": "net1-2"}); err != nil {
		t.Fatal(err)
	}
	err := c.DeviceAdd(t.Context(), nic("nic1-2", "net1-2"))
	if e, ok := errors.AsType[*Error](err); !ok || e.Class != ClassGeneric || e.Command != "device_add" {
		t.Errorf("second device on a port: got error %v, want a refusal", err)
	}
	if err := c.NetdevDel(t.Context(), "net1-2"); err != nil {
		t.Error(err)
	}
}

// No operating system answers the unplug: it stays pending until a reset
// completes it.
func TestQEMUUnplug(t *testing.T) {
	c, _ := startQEMU(t)
	plugNIC(t, c)
	s := c.Subscribe(EventDeviceDeleted)
	defer s.Close()
	if err := c.DeviceDel(t.Context(), "nic1-1"); err != nil {
		t.Fatal(err)
	}
	if err := c.DeviceDel(t.Context(), "nic1-1"); !IsUnplugPending(err) {
		t.Errorf("device_del repeated: got error %v, want unplug pending", err)
	}
	if err := c.NetdevDel(t.Context(), "net1-1"); err != nil {
		t.Errorf("netdev_del under a NIC: %v", err)
	}
	if err := c.Execute(t.Context(), "system_reset", nil, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := awaitDeleted(ctx, s, "nic1-1"); err != nil {
		t.Fatal(err)
	}
	if err := c.DeviceDel(t.Context(), "nic1-1"); !IsNotFound(err) {
		t.Errorf("device_del of a deleted device: got error %v, want not found", err)
	}
	if err := c.NetdevDel(t.Context(), "net1-1"); !IsNotFound(err) {
		t.Errorf("netdev_del of a deleted netdev: got error %v, want not found", err)
	}
	if err := c.Property(t.Context(), "nic1-1", "parent_bus", new(string)); !IsNotFound(err) {
		t.Errorf("bus of a deleted device: got error %v, want not found", err)
	}
}

func TestQEMUQueries(t *testing.T) {
	c, _ := startQEMU(t)
	var version struct{ QEMU struct{ Major int } }
	if err := c.Execute(t.Context(), "query-version", nil, &version); err != nil || version.QEMU.Major < 4 {
		t.Errorf("QEMU is %+v, error %v, want 4 or later", version, err)
	}
	var s struct {
		Running bool
		Status  string
	}
	if err := c.Execute(t.Context(), "query-status", nil, &s); err != nil || s.Running || s.Status != "prelaunch" {
		t.Errorf("status is %+v, error %v, want prelaunch", s, err)
	}
	var k struct{ Enabled bool }
	if err := c.Execute(t.Context(), "query-kvm", nil, &k); err != nil || k.Enabled {
		t.Errorf("KVM is %+v, error %v, want not enabled with -accel tcg", k, err)
	}
	err := c.Execute(t.Context(), "nosuch", nil, nil)
	if e, ok := errors.AsType[*Error](err); !ok || e.Class != "CommandNotFound" {
		t.Errorf("unknown command: got error %v", err)
	}
	if err := c.Execute(t.Context(), "system_powerdown", nil, nil); err != nil {
		t.Error(err)
	}
	var schema []any // the largest reply there is
	if err := c.Execute(t.Context(), "query-qmp-schema", nil, &schema); err != nil || len(schema) < 500 {
		t.Errorf("schema has %d entries, error %v", len(schema), err)
	}
	if err := c.Execute(t.Context(), "quit", nil, nil); err != nil && !errors.Is(err, io.EOF) {
		t.Errorf("quit: %v", err)
	}
	<-c.Done()
	if err := c.Err(); !errors.Is(err, ErrClosed) || !errors.Is(err, io.EOF) {
		t.Errorf("after quit: got error %v, want ErrClosed and io.EOF", err)
	}
}

func TestQEMUConcurrent(t *testing.T) {
	c, _ := startQEMU(t)
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() {
			if err := c.Execute(t.Context(), "query-status", nil, nil); err != nil {
				t.Error(err)
			}
			if i%20 == 0 {
				plugSocket(t, c, i)
			}
		})
	}
	wg.Wait()
}

// plugSocket gives QEMU one end of a socket pair, among other commands.
func plugSocket(t *testing.T, c *Client, i int) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Error(err)
		return
	}
	far := os.NewFile(uintptr(pair[1]), "far")
	defer far.Close()
	near := os.NewFile(uintptr(pair[0]), "near")
	defer near.Close()
	name := fmt.Sprintf("fd%d", i)
	if err := c.SendFD(t.Context(), name, near); err != nil {
		t.Error(err)
		return
	}
	args := map[string]any{"type": "socket", "id": fmt.Sprintf("net%d", i), "fd": name}
	if err := c.NetdevAdd(t.Context(), args); err != nil {
		t.Error(err)
	}
}

// While QEMU is suspended waits can be cancelled, and the client works again when QEMU
// continues.
func TestQEMUStopped(t *testing.T) {
	c, qemu := startQEMU(t)
	if err := qemu.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := c.Execute(ctx, "query-status", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stopped QEMU: got error %v, want deadline exceeded", err)
	}
	if err := qemu.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := c.Execute(t.Context(), "query-status", nil, nil); err != nil {
		t.Errorf("QEMU goes on: %v", err)
	}
}

func TestQEMUKilled(t *testing.T) {
	c, qemu := startQEMU(t)
	s := c.Subscribe()
	defer s.Close()
	if err := qemu.Signal(syscall.SIGSTOP); err != nil { // commands stay unanswered
		t.Fatal(err)
	}
	const waiters = 50
	errs := make(chan error, waiters+1)
	for range waiters {
		go func() { errs <- c.Execute(t.Context(), "query-pci", nil, nil) }()
	}
	go func() { _, err := s.Next(t.Context()); errs <- err }()
	time.Sleep(50 * time.Millisecond) // most of them are on their way by then; the rest meet a dead connection
	if err := qemu.Kill(); err != nil {
		t.Fatal(err)
	}
	for range waiters + 1 {
		if err := <-errs; !errors.Is(err, ErrClosed) || !errors.Is(err, io.EOF) {
			t.Errorf("got error %v, want ErrClosed and io.EOF", err)
		}
	}
}
