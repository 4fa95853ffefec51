// Package qemu implements vmm.VMM for a QEMU over QMP, and discovers the slots of a
// QEMU that others have configured.
//
// Deciding what to plug where, and starting QEMU, do not belong here.
package qemu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/vmm"
	"unnest.io/unnest/internal/vmm/qmp"
)

// VMM is a connection to one QEMU.
type VMM struct {
	client *qmp.Client
	events *qmp.Subscription
	ports  []string // root ports of slots 1, 2, ...
	shares []vmm.SharePort
}

var _ vmm.VMM = (*VMM)(nil)

// Ports returns the root port IDs of n slots in our own guests: rp1 to rpN.
func Ports(n int) []string { return numbered("rp", n) }

func numbered(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = prefix + strconv.Itoa(i+1)
	}
	return ids
}

// Dial connects to the QMP socket of a QEMU. ports are the IDs of the
// pcie-root-ports of slots 1, 2, and so on; all have to exist. QEMU serves one
// connection to a socket at a time. Descriptors that a killed daemon has left in QEMU are
// removed.
func Dial(ctx context.Context, socket string, ports []string) (_ *VMM, err error) {
	client, err := qmp.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	v := &VMM{
		client: client, ports: slices.Clone(ports),
		events: client.Subscribe(qmp.EventDeviceDeleted, qmp.EventUnplugGuestError, qmp.EventReset),
	}
	if err := errors.Join(v.checkPorts(ctx), client.RemoveLeftFDs(ctx)); err != nil {
		return nil, errors.Join(fmt.Errorf("QEMU at %s: %w", socket, err), v.Close())
	}
	return v, nil
}

func (v *VMM) checkPorts(ctx context.Context) error {
	devices, err := v.client.Peripherals(ctx)
	if err != nil {
		return err
	}
	for _, port := range v.ports {
		if !slices.ContainsFunc(devices, func(p qmp.Peripheral) bool { return p.ID == port && isPort(p) }) {
			return fmt.Errorf("find root port %s: QEMU has none; start the guest with -device %s,id=%s", port, rootPort, port)
		}
	}
	return v.findSharePorts(ctx, devices)
}

// maxQueues is the largest number of a TAP's queues whose descriptors are found again.
const maxQueues = 16

// descriptor and vhostDescriptor name the descriptors of a netdev's queue in QEMU until the netdev
// takes them.
func descriptor(netdev string, queue int) string      { return queueName("tap-"+netdev, queue) }
func vhostDescriptor(netdev string, queue int) string { return queueName("vhost-"+netdev, queue) }

// queueName leaves the name of the first queue as it was when there was one: an earlier daemon may have left it in QEMU.
func queueName(name string, queue int) string {
	if queue == 0 {
		return name
	}
	return name + "." + strconv.Itoa(queue)
}

// AddNetdev hands the descriptors of the TAP and of vhost-net to QEMU, which then needs no
// access to /dev/vhost-net and can run as any user. QEMU can close a descriptor before it uses it; then AddNetdev
// sends the descriptor again, once. This was seen once, while a daemon was killed over and over. The likely cause:
// QEMU kept the name of a closed descriptor. When that name came again, QEMU closed the old number, which was that of
// the new descriptor.
func (v *VMM) AddNetdev(ctx context.Context, id string, t vmm.TAP) error {
	if len(t.Queues) > maxQueues {
		return &vmm.RefusedError{Err: fmt.Errorf("%d queues: want up to %d", len(t.Queues), maxQueues)}
	}
	err := v.addNetdev(ctx, id, t)
	if qmp.IsBadDescriptor(err) {
		if err = v.deletePart(ctx, id, t); err == nil {
			err = v.addNetdev(ctx, id, t)
		}
	}
	err = markRefused(err)
	if !errors.As(err, new(*vmm.RefusedError)) {
		return err
	}
	if !qmp.IsDuplicate(err) {
		err = errors.Join(err, v.deletePart(ctx, id, t))
	}
	return errors.Join(err, v.closeDescriptors(ctx, id, len(t.Queues)))
}

// deletePart deletes what QEMU has kept of a netdev that it has refused: it makes the queues one by one (net_init_tap of net/tap.c).
func (v *VMM) deletePart(ctx context.Context, id string, t vmm.TAP) error {
	if len(t.Queues) == 1 {
		return nil
	}
	err := v.client.NetdevDel(ctx, id)
	if qmp.IsNotFound(err) {
		return nil
	}
	return err
}

func (v *VMM) addNetdev(ctx context.Context, id string, t vmm.TAP) error {
	for i, q := range t.Queues {
		if err := v.client.SendFD(ctx, descriptor(id, i), q.File); err != nil {
			return err
		}
		if q.VHost != nil {
			if err := v.client.SendFD(ctx, vhostDescriptor(id, i), q.VHost); err != nil {
				return err
			}
		}
	}
	return v.client.NetdevAdd(ctx, netdev(id, t))
}

// netdev is QEMU's description of a netdev whose descriptors it has.
func netdev(id string, t vmm.TAP) map[string]any {
	names := func(name func(string, int) string) string {
		all := make([]string, len(t.Queues))
		for i := range all {
			all[i] = name(id, i)
		}
		return strings.Join(all, ":")
	}
	vhost, plural := t.Queues[0].VHost != nil, ""
	if len(t.Queues) > 1 {
		plural = "s"
	}
	args := map[string]any{"type": "tap", "id": id, "fd" + plural: names(descriptor), "vhost": vhost}
	if vhost {
		// Without vhostforce, QEMU 7.2 aborts if vhost-net does not work, and the guest is lost.
		args["vhostfd"+plural], args["vhostforce"] = names(vhostDescriptor), true
		if t.Poll > 0 {
			args["poll-us"] = t.Poll.Microseconds()
		}
	}
	return args
}

// AddDevice plugs a NIC. With addr=0 QEMU refuses a second device on an occupied
// root port; without, it accepts one that the guest never sees. The empty romfile
// saves the guest from loading the network boot ROM. The guest's kernel adopts
// host_mtu (virtio 1.2, section 5.1.4.1).
//
// The number of interrupt vectors of all NICs is set where QEMU is started, by
// -global virtio-net-pci.vectors. QEMU's default of three is too many for a guest
// with 110 ports and one processor: Linux 6.1 had vectors for 48 NICs, and bound no
// driver to the others. A NIC with several queues has its own number.
func (v *VMM) AddDevice(ctx context.Context, d vmm.Device) error {
	if d.Slot < 1 || d.Slot > len(v.ports) {
		return &vmm.RefusedError{Err: fmt.Errorf("slot %d: want 1 to %d", d.Slot, len(v.ports))}
	}
	args := map[string]any{
		"driver": "virtio-net-pci", "id": d.ID, "netdev": d.Netdev, "bus": v.ports[d.Slot-1], "addr": "0",
		"mac": d.MAC, "host_mtu": d.MTU, "romfile": "",
	}
	if d.Queues > 1 { // each direction of a queue has a vector, and so have the control queue and changes of the configuration
		args["mq"], args["vectors"] = true, 2*d.Queues+2
	}
	return markRefused(v.client.DeviceAdd(ctx, args))
}

// DeleteDevice asks the guest to release a device.
func (v *VMM) DeleteDevice(ctx context.Context, id string) error {
	err := v.client.DeviceDel(ctx, id)
	switch {
	case qmp.IsUnplugPending(err):
		return nil
	case qmp.IsNotFound(err):
		return fmt.Errorf("%w: %w", vmm.ErrNotFound, err)
	}
	return markRefused(err)
}

// DeleteNetdev deletes the netdev, or its descriptors if netdev_add failed.
func (v *VMM) DeleteNetdev(ctx context.Context, id string) error {
	err := v.client.NetdevDel(ctx, id)
	if !qmp.IsNotFound(err) {
		return markRefused(err)
	}
	return v.closeDescriptors(ctx, id, maxQueues)
}

// closeDescriptors makes QEMU close the descriptors of a netdev that it does not have, those of the first queues.
func (v *VMM) closeDescriptors(ctx context.Context, netdev string, queues int) error {
	for i := range queues { // any of them may be left, in any order
		if err := errors.Join(v.closeDescriptor(ctx, descriptor(netdev, i)), v.closeDescriptor(ctx, vhostDescriptor(netdev, i))); err != nil {
			return err
		}
	}
	return nil
}

// closeDescriptor makes QEMU close a descriptor, if QEMU has it.
func (v *VMM) closeDescriptor(ctx context.Context, name string) error {
	err := v.client.Execute(ctx, "closefd", map[string]any{"fdname": name}, nil)
	if errors.As(err, new(*qmp.Error)) {
		return nil
	}
	return err
}

// Devices lists the devices in the ports. It does not depend on the guest, which
// may not have numbered its buses yet.
func (v *VMM) Devices(ctx context.Context) ([]vmm.Occupied, error) { return v.occupied(ctx, v.ports) }

// occupied lists the devices on buses, which have the IDs of their root ports. Slot i+1
// is that of buses[i].
func (v *VMM) occupied(ctx context.Context, buses []string) ([]vmm.Occupied, error) {
	devices, err := v.client.Peripherals(ctx)
	if err != nil {
		return nil, err
	}
	var found []vmm.Occupied
	for _, d := range devices {
		if i := slices.Index(buses, d.Bus); i >= 0 {
			found = append(found, vmm.Occupied{ID: d.ID, Slot: i + 1})
		}
	}
	return found, nil
}

// Next returns the next event.
func (v *VMM) Next(ctx context.Context) (vmm.Event, error) {
	for {
		e, err := v.events.Next(ctx)
		switch {
		case errors.As(err, new(*qmp.LostError)):
			return vmm.Lost{}, nil
		case err != nil:
			return nil, err
		case e.Name == qmp.EventReset:
			return vmm.Reset{}, nil
		case e.Device() == "": // an inner part of a device
		case e.Name == qmp.EventUnplugGuestError:
			return vmm.Refused{ID: e.Device()}, nil
		default:
			return vmm.Deleted{ID: e.Device()}, nil
		}
	}
}

// Slots returns the number of ports.
func (v *VMM) Slots() int { return len(v.ports) }

// PersistentTAPs returns false: QEMU gets descriptors.
func (v *VMM) PersistentTAPs() bool { return false }

// Done is closed when the connection has ended.
func (v *VMM) Done() <-chan struct{} { return v.client.Done() }

// Err returns why the connection has ended, or nil while it is up.
func (v *VMM) Err() error { return v.client.Err() }

// Close ends the connection. Plugged devices stay.
func (v *VMM) Close() error {
	v.events.Close()
	return v.client.Close()
}

// PID returns the process that listens on a QMP socket. It connects and hangs up
// without waiting for the greeting: do not call it while another client needs the
// socket. When nobody listens, the error is that of Dial.
func PID(ctx context.Context, socket string) (int, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, fmt.Errorf("find process of QMP socket: %w", err)
	}
	defer conn.Close()
	return qmp.PeerPID(conn)
}

// OwnNICs lists the NICs on TAPs that QEMU has opened by name.
func (v *VMM) OwnNICs(ctx context.Context) ([]vmm.NIC, error) {
	taps, err := v.client.TAPs(ctx)
	if err != nil || len(taps) == 0 {
		return nil, err
	}
	all, err := v.client.NICs(ctx)
	if err != nil {
		return nil, err
	}
	var nics []vmm.NIC
	for _, n := range all {
		if tap, ok := taps[n.Netdev]; ok {
			nics = append(nics, vmm.NIC{TAP: tap, MAC: n.MAC})
		}
	}
	return nics, nil
}

func markRefused(err error) error { return vmm.MarkRefused[*qmp.Error](err) }
