package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"unnest.io/unnest/internal/netdev/tap"
	"unnest.io/unnest/internal/vmm"
	"unnest.io/unnest/internal/vmm/qmp"
)

const patience = 2 * time.Minute

// machine is a paused QEMU. It runs no system that could answer an unplug; a reset
// completes it.
type machine struct {
	t      *testing.T
	socket string
	owner  *qmp.Client // another connection than the one that is tested
	cmd    *exec.Cmd
	host   ns.NetNS // has the bridge br0
}

// What begins with a dash is an option of its own.
func boot(t *testing.T, devices ...string) *machine {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root, network namespaces and QEMU: set UNNEST_PRIVILEGED=1")
	}
	dir, err := os.MkdirTemp("", "qemu") // t.TempDir can be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m := &machine{t: t, socket: filepath.Join(dir, "daemon")}
	args := []string{
		"-S", "-M", "q35", "-accel", "tcg", "-m", "64", "-nodefaults", "-display", "none",
		"-qmp", "unix:" + dir + "/owner,server=on,wait=off", "-qmp", "unix:" + m.socket + ",server=on,wait=off",
	}
	for _, d := range devices {
		if strings.HasPrefix(d, "-") {
			args = append(args, strings.Fields(d)...)
			continue
		}
		args = append(args, "-device", d)
	}
	m.cmd = exec.Command("qemu-system-x86_64", args...)
	m.cmd.Stderr = t.Output()
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.kill)
	for begin := time.Now(); m.owner == nil; time.Sleep(20 * time.Millisecond) {
		c, err := qmp.Dial(t.Context(), dir+"/owner")
		if err != nil && time.Since(begin) > patience {
			t.Fatal(err)
		}
		m.owner = c
	}
	t.Cleanup(func() { m.owner.Close() })
	m.newHost()
	return m
}

func (m *machine) kill() {
	if m.cmd.ProcessState == nil {
		_ = m.cmd.Process.Kill()
		_ = m.cmd.Wait() // it was killed
	}
}

func (m *machine) newHost() {
	m.t.Helper()
	host, err := ns.TempNetNS()
	if err != nil {
		m.t.Fatal(err)
	}
	m.host = host
	m.t.Cleanup(func() { host.Close() })
	err = host.Do(func(ns.NetNS) error {
		a := netlink.NewLinkAttrs()
		a.Name = "br0"
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: a})
	})
	if err != nil {
		m.t.Fatal(err)
	}
}

// addTAP returns a TAP with its only descriptors.
func (m *machine) addTAP(name string, queues int) vmm.TAP {
	m.t.Helper()
	made := vmm.TAP{Name: name}
	err := m.host.Do(func(ns.NetNS) error {
		files, err := tap.OpenMultiQueue(tap.Device{Name: name, Bridge: "br0", MTU: 1400}, max(queues, 1))
		for _, f := range files {
			made.Queues = append(made.Queues, vmm.Queue{File: f})
		}
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return made
}

// closeTAP closes the test's descriptors of a TAP.
func (m *machine) closeTAP(t vmm.TAP) {
	m.t.Helper()
	for _, q := range t.Queues {
		if err := q.File.Close(); err != nil {
			m.t.Error(err)
		}
	}
}

// descriptors counts QEMU's open descriptors of a file.
func (m *machine) descriptors(path string) (n int) {
	m.t.Helper()
	dir := fmt.Sprintf("/proc/%d/fd", m.cmd.Process.Pid)
	open, err := os.ReadDir(dir)
	if err != nil {
		m.t.Fatal(err)
	}
	for _, fd := range open {
		if target, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && target == path {
			n++
		}
	}
	return n
}

// taps lists the existing TAPs.
func (m *machine) taps() string {
	m.t.Helper()
	var names []string
	err := m.host.Do(func(ns.NetNS) error {
		links, err := netlink.LinkList()
		for _, l := range links {
			if l.Type() == "tuntap" {
				names = append(names, l.Attrs().Name)
			}
		}
		return err
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return strings.Join(names, " ")
}

func (m *machine) dial(ports ...string) *VMM {
	m.t.Helper()
	v, err := Dial(m.t.Context(), m.socket, ports)
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { v.Close() })
	return v
}

// plug plugs a NIC on a TAP of its own.
func (m *machine) plug(v *VMM, d vmm.Device) {
	m.t.Helper()
	t := m.addTAP(d.TAP, d.Queues)
	err := v.AddNetdev(m.t.Context(), d.Netdev, t)
	if err == nil {
		err = v.AddDevice(m.t.Context(), d)
	}
	if m.closeTAP(t); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) reset() {
	m.t.Helper()
	if err := m.owner.Execute(m.t.Context(), "system_reset", nil, nil); err != nil {
		m.t.Fatal(err)
	}
}

func await(t *testing.T, v *VMM, want vmm.Event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		e, err := v.Next(ctx)
		if err != nil {
			t.Fatalf("wait for %#v: %v", want, err)
		}
		if e == want {
			return
		}
	}
}

func wantDevices(t *testing.T, v *VMM, want ...vmm.Occupied) {
	t.Helper()
	got, err := v.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

func wantRefused(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.As(err, new(*vmm.RefusedError)) {
		t.Errorf("%s: got %v, want a refusal", what, err)
	}
}

func portAt(id, number string) string {
	return "pcie-root-port,id=" + id + ",chassis=" + number + ",slot=" + number
}

var (
	nic1 = vmm.Device{ID: "nic1-1", Netdev: "net1-1", TAP: "tap1", Slot: 1, MAC: "02:00:00:00:00:01", MTU: 1400}
	nic2 = vmm.Device{ID: "nic2-1", Netdev: "net2-1", TAP: "tap2", Slot: 2, MAC: "02:00:00:00:00:02", MTU: 1400}
)

func TestPlug(t *testing.T) {
	m := boot(t, portAt("rp1", "1"), portAt("rp2", "2"), portAt("other", "3"), "virtio-rng-pci,bus=other,id=rng")
	v := m.dial(Ports(2)...)
	if v.Slots() != 2 || v.PersistentTAPs() {
		t.Errorf("%d slots, persistent TAPs %t", v.Slots(), v.PersistentTAPs())
	}
	m.plug(v, nic1)
	m.plug(v, nic2)
	both := []vmm.Occupied{{ID: "nic1-1", Slot: 1}, {ID: "nic2-1", Slot: 2}}
	wantDevices(t, v, both...)
	for name, want := range map[string]any{"mac": nic1.MAC, "host_mtu": 1400.0, "romfile": ""} {
		var got any
		if err := m.owner.Property(t.Context(), "nic1-1", name, &got); err != nil || got != want {
			t.Errorf("%s is %v, want %v (%v)", name, got, want, err)
		}
	}

	for range 2 { // the second request is a repetition
		if err := v.DeleteDevice(t.Context(), "nic1-1"); err != nil {
			t.Error(err)
		}
	}
	for range 2 {
		if err := v.DeleteNetdev(t.Context(), "net1-1"); err != nil { // also under a device
			t.Error(err)
		}
	}
	if got := m.taps(); got != "tap2" && got != "tap1 tap2" { // QEMU 10 keeps it as long as the device
		t.Errorf("TAPs are %q, want tap2, and perhaps tap1", got)
	}
	wantDevices(t, v, both...)
	m.reset()
	await(t, v, vmm.Deleted{ID: "nic1-1"})
	wantDevices(t, v, both[1])
	if got := m.taps(); got != "tap2" {
		t.Errorf("TAPs are %q, want tap2 alone", got)
	}
	m.reset()
	await(t, v, vmm.Reset{})
	if err := v.DeleteDevice(t.Context(), "nic1-1"); !errors.Is(err, vmm.ErrNotFound) {
		t.Errorf("delete a device that is not there: got %v", err)
	}
	if err := v.DeleteNetdev(t.Context(), "net1-1"); err != nil {
		t.Errorf("delete a netdev that is not there: %v", err)
	}
	v.Close()
	wantDevices(t, m.dial(Ports(2)...), both[1]) // it is still there for the next connection
}

// A refused call leaves nothing behind, in QEMU or on the host.
func TestRefused(t *testing.T) {
	m := boot(t, portAt("rp1", "1"), portAt("rp2", "2"), "virtio-rng-pci,bus=rp2")
	v := m.dial(Ports(2)...)
	m.plug(v, nic1)
	first := []vmm.Occupied{{ID: "/machine/peripheral-anon/device[0]", Slot: 2}, {ID: "nic1-1", Slot: 1}}
	wantDevices(t, v, first...)

	twin := m.addTAP("twin", 1)
	wantRefused(t, "a netdev that there is", v.AddNetdev(t.Context(), "net1-1", twin))
	m.closeTAP(twin)
	if got := m.taps(); got != "tap1" {
		t.Errorf("TAPs are %q, want tap1 alone", got)
	}
	spare := m.addTAP("spare", 1)
	if err := v.AddNetdev(t.Context(), "net1-2", spare); err != nil {
		t.Fatal(err)
	}
	m.closeTAP(spare)
	for name, d := range map[string]vmm.Device{
		"a slot in use":         {ID: "nic1-2", Netdev: "net1-2", Slot: 1, MAC: nic1.MAC, MTU: 1400},
		"a foreign slot in use": {ID: "nic2-1", Netdev: "net1-2", Slot: 2, MAC: nic1.MAC, MTU: 1400},
		"slot 0":                {ID: "nic0-1", Netdev: "net1-2", MAC: nic1.MAC, MTU: 1400},
		"slot 3":                {ID: "nic3-1", Netdev: "net1-2", Slot: 3, MAC: nic1.MAC, MTU: 1400},
		"no netdev":             {ID: "nic2-1", Netdev: "none", Slot: 2, MAC: nic1.MAC, MTU: 1400},
	} {
		wantRefused(t, name, v.AddDevice(t.Context(), d))
	}
	wantDevices(t, v, first...)
	if err := v.DeleteNetdev(t.Context(), "net1-2"); err != nil {
		t.Error(err)
	}
	// An AddNetdev that was cut off has left a descriptor in QEMU.
	orphan := m.addTAP("orphan", 1)
	if err := v.client.SendFD(t.Context(), descriptor("net9-1", 0), orphan.Queues[0].File); err != nil {
		t.Fatal(err)
	}
	m.closeTAP(orphan)
	if got := m.taps(); got != "tap1 orphan" {
		t.Errorf("TAPs are %q, want tap1 and the orphan", got)
	}
	if err := v.DeleteNetdev(t.Context(), "net9-1"); err != nil {
		t.Error(err)
	}
	if got := m.taps(); got != "tap1" {
		t.Errorf("TAPs are %q, want tap1 alone", got)
	}
}

// A NIC with several queues goes with all of them, and a part of them that a cut-off AddNetdev has left goes too.
func TestPlugMultiQueue(t *testing.T) {
	m := boot(t, portAt("rp1", "1"))
	v := m.dial("rp1")
	many := nic1
	many.Queues = 3
	m.plug(v, many)
	for name, want := range map[string]any{"mq": true, "vectors": 8.0} {
		var got any
		if err := m.owner.Property(t.Context(), many.ID, name, &got); err != nil || got != want {
			t.Errorf("%s is %v, want %v (%v)", name, got, want, err)
		}
	}
	if got := m.descriptors("/dev/net/tun"); got != 3 {
		t.Errorf("QEMU has %d queues, want 3", got)
	}
	if err := v.DeleteDevice(t.Context(), many.ID); err != nil {
		t.Fatal(err)
	}
	m.reset() // nobody else would release the device
	for e := vmm.Event(nil); e != (vmm.Deleted{ID: many.ID}); {
		var err error
		if e, err = v.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.DeleteNetdev(t.Context(), many.Netdev); err != nil {
		t.Error(err)
	}
	orphan := m.addTAP("orphan", 3)
	for i, q := range orphan.Queues[:2] {
		if err := v.client.SendFD(t.Context(), descriptor(many.Netdev, i), q.File); err != nil {
			t.Fatal(err)
		}
	}
	m.closeTAP(orphan)
	if got := m.taps(); got != "orphan" {
		t.Errorf("TAPs are %q, want the orphan", got)
	}
	if err := v.DeleteNetdev(t.Context(), many.Netdev); err != nil {
		t.Error(err)
	}
	if got := m.taps(); got != "" {
		t.Errorf("TAPs are %q, want none", got)
	}
}

// QEMU may not open /dev/vhost-net here. On a machine that has it, QEMU gets one descriptor for
// each NIC.
func TestPlugAsOtherUser(t *testing.T) {
	m := boot(t, portAt("rp1", "1"), asUser(t, "nobody"))
	v := m.dial("rp1")
	vhost := tap.OpenVHost()
	want := 0
	if vhost != nil {
		defer vhost.Close()
		want = 1
	}
	f := m.addTAP("tap1", 1)
	f.Queues[0].VHost = vhost
	err := v.AddNetdev(t.Context(), nic1.Netdev, f)
	if err == nil {
		err = v.AddDevice(t.Context(), nic1)
	}
	m.closeTAP(f)
	if err != nil {
		t.Fatal(err)
	}
	if got := m.descriptors("/dev/vhost-net"); got != want {
		t.Errorf("QEMU has %d descriptors of /dev/vhost-net, want %d", got, want)
	}
	if err := v.DeleteDevice(t.Context(), nic1.ID); err != nil {
		t.Error(err)
	}
	m.reset()
	await(t, v, vmm.Deleted{ID: nic1.ID})
	if err := v.DeleteNetdev(t.Context(), nic1.Netdev); err != nil {
		t.Error(err)
	}
	if got := m.taps(); got != "" {
		t.Errorf("TAPs are %q, want none", got)
	}
}

// asUser is the option by which this QEMU changes its user.
func asUser(t *testing.T, name string) string {
	t.Helper()
	help, err := exec.Command("qemu-system-x86_64", "-help").Output()
	if err != nil {
		t.Fatal(err)
	}
	if _, runWith, _ := strings.Cut(string(help), "\n-run-with "); strings.Contains(strings.SplitN(runWith, "\n", 2)[0], "user=") {
		return "-run-with user=" + name
	}
	return "-runas " + name
}

// Only a netdev with vhost-net polls.
func TestNetdev(t *testing.T) {
	poll := 50 * time.Microsecond
	for _, test := range []struct {
		tap  vmm.TAP
		want map[string]any
	}{
		{vmm.TAP{Queues: make([]vmm.Queue, 1), Poll: poll}, map[string]any{"type": "tap", "id": "net1", "fd": "tap-net1", "vhost": false}},
		{vmm.TAP{Queues: []vmm.Queue{{VHost: os.Stdin}}}, map[string]any{"type": "tap", "id": "net1", "fd": "tap-net1", "vhost": true, "vhostfd": "vhost-net1", "vhostforce": true}},
		{vmm.TAP{Queues: make([]vmm.Queue, 3)}, map[string]any{"type": "tap", "id": "net1", "fds": "tap-net1:tap-net1.1:tap-net1.2", "vhost": false}},
		{vmm.TAP{Queues: []vmm.Queue{{VHost: os.Stdin}, {VHost: os.Stdin}}}, map[string]any{
			"type": "tap", "id": "net1", "fds": "tap-net1:tap-net1.1", "vhost": true, "vhostfds": "vhost-net1:vhost-net1.1", "vhostforce": true}},
		{vmm.TAP{Queues: []vmm.Queue{{VHost: os.Stdin}}, Poll: poll}, map[string]any{
			"type": "tap", "id": "net1", "fd": "tap-net1", "vhost": true, "vhostfd": "vhost-net1", "vhostforce": true, "poll-us": int64(50)}},
	} {
		if diff := cmp.Diff(test.want, netdev("net1", test.tap)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", test.tap, diff)
		}
	}
}

// If vhost-net does not work, QEMU refuses the netdev instead of aborting, and leaves nothing
// behind. Without vhost-net the same ID works.
func TestVHostThatFails(t *testing.T) {
	m := boot(t, portAt("rp1", "1"))
	v := m.dial("rp1")
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0) // has none of vhost's ioctls
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	f := m.addTAP("tap1", 1)
	f.Queues[0].VHost = full
	err = v.AddNetdev(t.Context(), nic1.Netdev, f)
	m.closeTAP(f)
	wantRefused(t, "vhost-net that does not work", err)
	if err == nil || !strings.Contains(err.Error(), "vhost") {
		t.Errorf("got %v, want an error that names vhost", err)
	}
	if got := m.taps(); got != "" {
		t.Errorf("TAPs are %q, want none", got)
	}

	// An AddNetdev that was cut off has left both descriptors in QEMU.
	f = m.addTAP("tap1", 1)
	for name, file := range map[string]*os.File{descriptor(nic1.Netdev, 0): f.Queues[0].File, vhostDescriptor(nic1.Netdev, 0): full} {
		if err := v.client.SendFD(t.Context(), name, file); err != nil {
			t.Fatal(err)
		}
	}
	m.closeTAP(f)
	if err := v.DeleteNetdev(t.Context(), nic1.Netdev); err != nil {
		t.Error(err)
	}
	if taps, n := m.taps(), m.descriptors("/dev/full"); taps != "" || n > 0 {
		t.Errorf("TAPs %q and %d descriptors are left, want none", taps, n)
	}
	m.plug(v, nic1)
	wantDevices(t, v, vmm.Occupied{ID: nic1.ID, Slot: 1})
}

func TestDialFails(t *testing.T) {
	m := boot(t, portAt("rp1", "1"), "virtio-rng-pci,id=rp2")
	for _, ports := range [][]string{Ports(2), {"rp1", "rp9"}} {
		_, err := Dial(t.Context(), m.socket, ports)
		if err == nil || !strings.Contains(err.Error(), "find root port "+ports[1]) || !strings.Contains(err.Error(), m.socket) {
			t.Errorf("ports %v: got %v, want an error that names %s", ports, err, ports[1])
		}
	}
	if _, err := Dial(t.Context(), m.socket+".none", nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no socket: got %v", err)
	}
	m.dial("rp1") // the failures have released the socket
}

func TestQEMUIsGone(t *testing.T) {
	m := boot(t, portAt("rp1", "1"))
	v := m.dial("rp1")
	if err := m.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := v.DeleteDevice(ctx, "nic1-1"); !errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(*vmm.RefusedError)) {
		t.Errorf("stopped QEMU: got %v, want a deadline exceeded", err)
	}
	if _, err := v.Next(ctx); !errors.Is(err, context.DeadlineExceeded) || v.Err() != nil {
		t.Errorf("no event: got %v, want a deadline exceeded", err)
	}
	m.kill()
	<-v.Done()
	if _, err := v.Next(t.Context()); !errors.Is(err, io.EOF) || !errors.Is(v.Err(), io.EOF) {
		t.Errorf("got %v and %v, want QEMU's end", err, v.Err())
	}
	if err := v.AddDevice(t.Context(), nic1); err == nil || errors.As(err, new(*vmm.RefusedError)) {
		t.Errorf("got %v, want an error that is not a refusal", err)
	}
}

// The answer does not depend on devices that are plugged in later.
func TestDiscover(t *testing.T) {
	m := boot(t,
		portAt("last", "20"), portAt("b", "3"), portAt("a", "10"), "ioh3420,id=old,chassis=1,slot=2",
		portAt("full", "4"), "virtio-rng-pci,bus=full",
		portAt("fixed", "5")+",hotplug=off",
		"pcie-root-port,chassis=6,slot=6",
		"pcie-pci-bridge,id=bridge",
	)
	want := []string{"old", "b", "a", "last"}
	discover := func() {
		t.Helper()
		got, err := Discover(t.Context(), m.socket)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("ports (-want +got), %v:\n%s", err, diff)
		}
	}
	discover()
	v := m.dial(want...)
	m.plug(v, nic1)
	m.plug(v, nic2)
	err := m.owner.DeviceAdd(t.Context(), map[string]any{"driver": "virtio-rng-pci", "id": "foreign", "bus": "a", "addr": "0"})
	if err != nil {
		t.Fatal(err)
	}
	wantDevices(t, v, vmm.Occupied{ID: "foreign", Slot: 3}, vmm.Occupied{ID: "nic1-1", Slot: 1}, vmm.Occupied{ID: "nic2-1", Slot: 2})
	v.Close()
	discover()
	m.reset()
	discover()
}

// The options that docs/hosts.md gives to VMs of other programs make slots in a QEMU whose devices are
// arranged as those programs do it, and a NIC can be plugged there.
func TestHostsPage(t *testing.T) {
	page, err := os.ReadFile("../../../docs/hosts.md")
	if err != nil {
		t.Fatal(err)
	}
	proxmox := []string{"VGA,id=vga,bus=pcie.0,addr=0x1", "i82801b11-bridge,id=pcidmi,bus=pcie.0,addr=1e.0", "pci-bridge,id=pci.0,bus=pcidmi,addr=1.0,chassis_nr=1", "virtio-balloon-pci,id=balloon0,bus=pci.0,addr=0x3"}
	incus := []string{"-sandbox on,obsolete=deny,elevateprivileges=allow,spawn=allow,resourcecontrol=deny"}
	var theirs []string // of Proxmox, which the daemon also uses
	for n := range 12 {
		incus = append(incus, fmt.Sprintf("pcie-root-port,id=qemu_pcie%d,bus=pcie.0,addr=%x.%d,multifunction=on,chassis=%d", n, 1+n/8, n%8, n))
		if n < 4 {
			incus = append(incus, fmt.Sprintf("virtio-rng-pci,id=own%d,bus=qemu_pcie%[1]d", n))
			theirs = append(theirs, fmt.Sprintf("ich9-pcie-port-%d", n+1))
			proxmox = append(proxmox, fmt.Sprintf("pcie-root-port,id=%s,bus=pcie.0,addr=1c.%d,multifunction=on,port=%d,chassis=%[3]d", theirs[n], n, n+1))
		}
	}
	for _, tt := range []struct {
		name, before string // of the options
		devices      []string
		ports        []string // in hostd.yaml; nil: the daemon finds them
		slots        []string
	}{
		{"Proxmox", "--args '", proxmox, nil, append(theirs, "rp1", "rp2", "rp3")},
		{"Incus", "raw.qemu='", append(incus, asUser(t, "nobody")), []string{"rp1", "rp2"}, []string{"rp1", "rp2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, rest, _ := strings.Cut(string(page), tt.before)
			options, _, _ := strings.Cut(rest, "'")
			theirSocket, _, ok := strings.Cut(strings.TrimPrefix(options, "-qmp unix:"), ",")
			if !ok {
				t.Fatalf("the page gives the options %q", options)
			}
			dir, err := os.MkdirTemp("", "qemu")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			m := boot(t, append(tt.devices, strings.Replace(options, theirSocket, dir+"/page", 1))...)
			m.socket = dir + "/page"
			slots := tt.ports
			if slots == nil {
				if slots, err = Discover(t.Context(), m.socket); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tt.slots, slots); diff != "" {
				t.Errorf("slots (-want +got):\n%s", diff)
			}
			v := m.dial(slots...)
			last := nic1
			last.Slot = len(slots)
			m.plug(v, last)
			wantDevices(t, v, vmm.Occupied{ID: nic1.ID, Slot: last.Slot})
		})
	}
}
