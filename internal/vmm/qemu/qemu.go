// Package qemu reaches a QEMU over QMP: as the host daemon's VMM, and to find
// the slots of a QEMU that somebody else has configured.
//
// What to plug where is not decided here, and QEMU is not started here.
package qemu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"unnest/internal/vmm"
	"unnest/internal/vmm/qmp"
)

// VMM is a connection to one QEMU.
type VMM struct {
	client *qmp.Client
	events *qmp.Subscription
	ports  []string // by slot, from the first
	shares []vmm.SharePort
}

var _ vmm.VMM = (*VMM)(nil)

// Ports returns the IDs that the root ports of n slots have in a guest of ours:
// rp1 to rpN.
func Ports(n int) []string {
	ports := make([]string, n)
	for i := range ports {
		ports[i] = "rp" + strconv.Itoa(i+1)
	}
	return ports
}

// Dial connects to the QMP socket of a QEMU. ports are the IDs of the
// pcie-root-ports of slots 1, 2, and so on; a port that QEMU does not have is an
// error. QEMU serves one connection to a socket at a time.
func Dial(ctx context.Context, socket string, ports []string) (_ *VMM, err error) {
	client, err := qmp.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	v := &VMM{
		client: client, ports: slices.Clone(ports),
		events: client.Subscribe(qmp.EventDeviceDeleted, qmp.EventUnplugGuestError, qmp.EventReset),
	}
	if err := v.checkPorts(ctx); err != nil {
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
			return fmt.Errorf("no root port %s: give the guest -device %s,id=%s", port, rootPort, port)
		}
	}
	return v.findSharePorts(ctx, devices)
}

// descriptor is the name under which QEMU keeps a TAP's descriptor until the
// netdev takes it.
func descriptor(netdev string) string { return "tap-" + netdev }

// AddNetdev hands the TAP's descriptor to QEMU.
func (v *VMM) AddNetdev(ctx context.Context, id string, t vmm.TAP) error {
	name := descriptor(id)
	if err := v.client.SendFD(ctx, name, t.File); err != nil {
		return judge(err)
	}
	err := judge(v.client.NetdevAdd(ctx, map[string]any{"type": "tap", "id": id, "fd": name, "vhost": t.VHost}))
	if errors.As(err, new(*vmm.RefusedError)) {
		return errors.Join(err, v.closeDescriptor(ctx, name))
	}
	return err
}

// AddDevice plugs a NIC. QEMU silently accepts a second device on an occupied
// root port, where the guest never sees it, unless addr=0 is given: then it
// refuses. The empty romfile keeps the network boot ROM out, which the guest
// would only have to load. The guest's kernel takes over host_mtu (virtio 1.2,
// section 5.1.4.1).
//
// How many interrupt vectors a NIC gets is for whoever starts QEMU to say, by
// -global virtio-net-pci.vectors, so that all NICs of a guest are alike. QEMU's
// three are too many for a guest with 110 ports and one processor: Linux 6.1 had
// vectors for 48 of its NICs, and no driver for the others.
func (v *VMM) AddDevice(ctx context.Context, d vmm.Device) error {
	if d.Slot < 1 || d.Slot > len(v.ports) {
		return &vmm.RefusedError{Err: fmt.Errorf("slot %d: want 1 to %d", d.Slot, len(v.ports))}
	}
	return judge(v.client.DeviceAdd(ctx, map[string]any{
		"driver": "virtio-net-pci", "id": d.ID, "netdev": d.Netdev, "bus": v.ports[d.Slot-1], "addr": "0",
		"mac": d.MAC, "host_mtu": d.MTU, "romfile": "",
	}))
}

// DeleteDevice asks the guest to give a device up.
func (v *VMM) DeleteDevice(ctx context.Context, id string) error {
	err := v.client.DeviceDel(ctx, id)
	switch {
	case qmp.IsUnplugPending(err):
		return nil
	case qmp.IsNotFound(err):
		return fmt.Errorf("%w: %w", vmm.ErrNotFound, err)
	}
	return judge(err)
}

// DeleteNetdev deletes the netdev, or the descriptor that waits for one.
func (v *VMM) DeleteNetdev(ctx context.Context, id string) error {
	err := v.client.NetdevDel(ctx, id)
	if !qmp.IsNotFound(err) {
		return judge(err)
	}
	return v.closeDescriptor(ctx, descriptor(id))
}

// closeDescriptor makes QEMU close a descriptor, if it has it.
func (v *VMM) closeDescriptor(ctx context.Context, name string) error {
	err := v.client.Execute(ctx, "closefd", map[string]any{"fdname": name}, nil)
	if errors.As(err, new(*qmp.Error)) {
		return nil
	}
	return err
}

// Devices lists what is in the ports. It does not ask the guest, which may not
// have got so far as to number its buses.
func (v *VMM) Devices(ctx context.Context) ([]vmm.Occupied, error) {
	devices, err := v.client.Peripherals(ctx)
	if err != nil {
		return nil, err
	}
	var found []vmm.Occupied
	for _, d := range devices {
		if i := slices.Index(v.ports, d.Bus); i >= 0 {
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

// Slots is the number of ports.
func (v *VMM) Slots() int { return len(v.ports) }

// PersistentTAPs is false: QEMU gets descriptors.
func (v *VMM) PersistentTAPs() bool { return false }

// Done is closed when the connection has ended.
func (v *VMM) Done() <-chan struct{} { return v.client.Done() }

// Err says why the connection has ended; nil while it is up.
func (v *VMM) Err() error { return v.client.Err() }

// Close ends the connection. What was plugged stays.
func (v *VMM) Close() error {
	v.events.Close()
	return v.client.Close()
}

// judge marks QEMU's own refusals.
func judge(err error) error {
	if errors.As(err, new(*qmp.Error)) {
		return &vmm.RefusedError{Err: err}
	}
	return err
}

// PID returns the process that listens on a QMP socket. It connects and closes the
// connection without waiting for the greeting, which may cost another client of the
// socket its turn. When nobody listens, the error is that of Dial.
func PID(ctx context.Context, socket string) (int, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return 0, fmt.Errorf("find process of QMP socket: %w", err)
	}
	defer conn.Close()
	return qmp.PeerPID(conn)
}
