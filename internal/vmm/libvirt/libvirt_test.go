package libvirt

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/crypto/ssh"

	"unnest.io/unnest/internal/netdev/tap"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/image"
	"unnest.io/unnest/internal/testbed/lab"
	"unnest.io/unnest/internal/testbed/place"
	"unnest.io/unnest/internal/vmm"
	"unnest.io/unnest/internal/vmm/libvirt/libvirttest"
	"unnest.io/unnest/internal/vmm/libvirt/rpc"
)

const patience = 2 * time.Minute

// host is a lab with a libvirtd in it.
type host struct {
	t      *testing.T
	lab    *lab.Lab
	daemon *libvirttest.Daemon
	media  string
}

func newHost(t *testing.T) *host {
	t.Helper()
	if os.Getenv("UNNEST_PRIVILEGED") != "1" {
		t.Skip("needs root, network namespaces, libvirtd and QEMU: set UNNEST_PRIVILEGED=1")
	}
	l, err := lab.Create("test-" + strings.ToLower(rand.Text()[:8]))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return &host{t: t, lab: l, daemon: libvirttest.Start(t, l.HostNS()), media: filepath.Join(t.TempDir(), "media")}
}

// addTAP makes a persistent TAP on a bridge.
func (h *host) addTAP(name, bridge string, mtu, queues int) {
	h.t.Helper()
	err := lab.Do(h.lab.HostNS(), func() error {
		files, err := tap.OpenMultiQueue(tap.Device{Name: name, Bridge: bridge, MTU: mtu, Persistent: true}, queues)
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) link(name string) netlink.Link {
	h.t.Helper()
	var link netlink.Link
	err := lab.Do(h.lab.HostNS(), func() (err error) {
		link, err = netlink.LinkByName(name)
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return link
}

func (h *host) dial(domain string) *VMM {
	h.t.Helper()
	v, err := Dial(h.t.Context(), h.daemon.Socket, domain, h.media)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { v.Close() })
	return v
}

func next(t *testing.T, v *VMM) vmm.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	e, err := v.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return e
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

func nic(slot int) vmm.Device {
	return vmm.Device{
		ID: fmt.Sprintf("nic%d-1", slot), Netdev: fmt.Sprintf("net%d-1", slot), TAP: fmt.Sprintf("tap%d", slot),
		Slot: slot, MAC: fmt.Sprintf("02:00:00:00:00:%02x", slot), MTU: 1400,
	}
}

func wantRefused(t *testing.T, what string, err error, words string) {
	t.Helper()
	if !errors.As(err, new(*vmm.RefusedError)) || !strings.Contains(err.Error(), words) {
		t.Errorf("%s: got %v, want a refusal with %q", what, err, words)
	}
}

// A domain without an operating system releases a device when it is reset.
func TestPlug(t *testing.T) {
	h := newHost(t)
	h.addTAP("first", lab.TenantBridge, 1500, 1)
	h.daemon.Boot(libvirttest.Domain{Name: "node1", Ports: 4, NICs: []libvirttest.NIC{{TAP: "first", MAC: "02:00:00:00:01:01"}}})
	v := h.dial("node1")
	slots := v.Slots()
	own, err := v.Devices(t.Context())
	if err != nil || len(own) != 1 || own[0].ID != "net0" || slots != 4 || !v.PersistentTAPs() {
		t.Fatalf("%d slots, devices %v, %v; want 4, with the domain's own NIC in one", slots, own, err)
	}
	s := own[0].Slot
	a, b := nic(slots-1), nic(slots)
	b.Queues = 2
	for _, d := range []vmm.Device{a, b} {
		h.addTAP(d.TAP, lab.TenantBridge, 1400, max(d.Queues, 1))
		if err := v.AddNetdev(t.Context(), d.Netdev, vmm.TAP{Name: d.TAP, Queues: make([]vmm.Queue, 1)}); err != nil {
			t.Fatal(err)
		}
		if err := v.AddDevice(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if at := h.link(d.TAP).Attrs(); at.MTU != 1400 || at.MasterIndex != h.link(lab.TenantBridge).Attrs().Index || at.Flags&net.FlagRunning == 0 {
			t.Errorf("TAP with a NIC on it is %+v", at)
		}
	}
	all := []vmm.Occupied{{ID: "net0", Slot: s}, {ID: a.ID, Slot: a.Slot}, {ID: b.ID, Slot: b.Slot}}
	wantDevices(t, v, all...)

	c := nic(slots)
	c.ID = "nic9-1"
	wantRefused(t, "a slot in use", v.AddDevice(t.Context(), c), "PCI")
	c.Slot = slots + 1
	wantRefused(t, "no such slot", v.AddDevice(t.Context(), c), "want 1 to")
	c.Slot, c.TAP = slots-2, "nowhere"
	wantRefused(t, "no such TAP", v.AddDevice(t.Context(), c), "nowhere")
	wantDevices(t, v, all...)
	if err := v.DeleteDevice(t.Context(), "nic9-1"); !errors.Is(err, vmm.ErrNotFound) {
		t.Errorf("delete a device that is not there: got %v", err)
	}

	for range 2 { // the second request is a repetition
		if err := v.DeleteDevice(t.Context(), a.ID); err != nil {
			t.Fatal(err)
		}
	}
	wantDevices(t, v, all...)
	again := h.dial("node1")
	if again.Slots() != slots {
		t.Errorf("next connection finds %d slots, want %d", again.Slots(), slots)
	}
	wantDevices(t, again, all...)
	if err := again.DeleteDevice(t.Context(), a.ID); err != nil {
		t.Error(err)
	}
	h.daemon.Virsh("reset", "node1")
	for missing := map[vmm.Event]bool{vmm.Reset{}: true, vmm.Deleted{ID: a.ID}: true}; len(missing) > 0; {
		delete(missing, next(t, v)) // the firmware may reset once more
	}
	wantDevices(t, again, all[0], all[2])
	h.link(a.TAP) // was not changed
	if err := v.DeleteNetdev(t.Context(), a.Netdev); err != nil {
		t.Error(err)
	}

	h.daemon.Virsh("destroy", "node1")
	for _, v := range []*VMM{v, again} {
		select {
		case <-v.Done():
		case <-time.After(patience):
			t.Fatal("the connection does not end with the domain")
		}
		if err := v.Err(); err == nil || !strings.Contains(err.Error(), "domain has stopped") {
			t.Errorf("connection ended with %v", err)
		}
	}
	h.link(b.TAP)
	if _, err := Dial(t.Context(), h.daemon.Socket, "node1", h.media); err == nil || !strings.Contains(err.Error(), "node1: guest does not run") {
		t.Errorf("dial a domain that does not run: got %v", err)
	}
	h.daemon.Virsh("start", "node1")
	wantDevices(t, h.dial("node1"), all[0])
	_, err = Dial(t.Context(), h.daemon.Socket, "node2", h.media)
	if e, ok := errors.AsType[*rpc.Error](err); !ok || e.Code != rpc.CodeNoDomain {
		t.Errorf("dial a domain that does not exist: got %v", err)
	}
}

// Calls to a suspended libvirtd end in time, and work again when it continues.
func TestDaemonHangs(t *testing.T) {
	h := newHost(t)
	h.daemon.Boot(libvirttest.Domain{Name: "node1", Ports: 1})
	v := h.dial("node1")
	h.daemon.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := v.Devices(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(*vmm.RefusedError)) {
		t.Errorf("got %v, want a deadline exceeded", err)
	}
	if _, err := Dial(ctx, h.daemon.Socket, "node1", h.media); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("dial: got %v, want a deadline exceeded", err)
	}
	h.daemon.Continue()
	wantDevices(t, v)
	h.daemon.Kill()
	select {
	case <-v.Done():
	case <-time.After(patience):
		t.Fatal("the connection does not end with libvirtd")
	}
	if _, err := v.Devices(t.Context()); !errors.Is(err, rpc.ErrClosed) || !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the connection's end", err)
	}
}

func newKey(t *testing.T) (ed25519.PrivateKey, ssh.Signer) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return key, signer
}

// boot boots a guest of ours as the domain node1 and logs in.
func (h *host) boot() *place.SSH {
	h.t.Helper()
	image, err := (&image.Builder{Cache: image.CacheDir()}).Build(h.t.Context(), image.DefaultRecipe())
	if err != nil {
		h.t.Fatal(err)
	}
	hostKey, _ := newKey(h.t)
	_, signer := newKey(h.t)
	const mac = "52:54:00:00:00:02"
	seed, err := guest.Seed{
		Hostname: "node1", HostKey: hostKey, Authorized: signer.PublicKey(),
		Interfaces: []guest.Interface{{MAC: mac, Name: "eth0", Address: "10.200.0.2/24"}},
	}.Archive()
	if err != nil {
		h.t.Fatal(err)
	}
	path := filepath.Join(h.t.TempDir(), "seed")
	if err := os.WriteFile(path, seed, 0o600); err != nil {
		h.t.Fatal(err)
	}
	h.addTAP("mgmt", lab.ManagementBridge, 1500, 1)
	h.daemon.Boot(libvirttest.Domain{
		Name: "node1", Kernel: image.Kernel, Initrd: image.Initrd, Root: image.Root, Seed: path,
		Command: "console=ttyS0 quiet panic=-1 net.ifnames=0", Ports: 4, NICs: []libvirttest.NIC{{TAP: "mgmt", MAC: mac}},
	})
	key, err := ssh.NewPublicKey(hostKey.Public())
	if err != nil {
		h.t.Fatal(err)
	}
	for begin := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		client, err := place.DialSSH(h.t.Context(), "node1", "10.200.0.2:22", h.lab.Dial, guest.ClientConfig(signer, key))
		if err == nil {
			h.t.Cleanup(func() { client.Close() })
			return client
		}
		if time.Since(begin) > 4*patience {
			text, _ := os.ReadFile(h.daemon.Console("node1"))
			h.t.Fatalf("the guest does not boot: %v\n%s", err, text)
		}
	}
}

// configure finds the NIC with a MAC in the guest, sets an address, returns its MTU, and
// sends packets to the host.
const configure = `for _ in $(seq 100); do
	for device in /sys/class/net/*; do
		[ "$(cat $device/address)" = "$0" ] || continue
		ip addr add "$1" dev ${device##*/} && ip link set ${device##*/} up && cat $device/mtu || exit
		exec busybox ping -q -c 2 -w 20 -I ${device##*/} 10.201.0.1 >&2
	done
	sleep 0.1
done
exit 1`

// A real guest uses its NICs, and releases them.
func TestGuest(t *testing.T) {
	h := newHost(t)
	client := h.boot()
	v := h.dial("node1")
	own, err := v.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := own
	var ours []vmm.Device
	for i := range 2 {
		d := nic(v.Slots() - 1 + i)
		h.addTAP(d.TAP, lab.TenantBridge, d.MTU, 1)
		if err := v.AddDevice(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		out, err := place.Output(t.Context(), client, "sh", "-c", configure, d.MAC, fmt.Sprintf("10.201.0.%d/16", 10+i))
		if err != nil || strings.TrimSpace(string(out)) != "1400" {
			t.Fatalf("NIC %s in the guest: MTU %q, %v", d.ID, out, err)
		}
		want = append(want, vmm.Occupied{ID: d.ID, Slot: d.Slot})
		ours = append(ours, d)
	}
	wantDevices(t, v, want...)
	for _, d := range ours {
		if err := v.DeleteDevice(t.Context(), d.ID); err != nil {
			t.Fatal(err)
		}
		if e := next(t, v); e != (vmm.Deleted{ID: d.ID}) {
			t.Errorf("event is %#v", e)
		}
	}
	wantDevices(t, v, own...)
	out, err := place.Output(t.Context(), client, "cat", "/proc/net/dev")
	if err != nil || strings.Contains(string(out), "eth1") || strings.Contains(string(out), "eth2") {
		t.Errorf("the guest still has %s (%v)", out, err)
	}
	if err := v.AddDevice(t.Context(), ours[0]); err != nil {
		t.Errorf("the slot is not free again: %v", err)
	}
}
