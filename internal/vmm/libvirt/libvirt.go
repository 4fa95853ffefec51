// Package libvirt implements vmm.VMM for a libvirt domain, by calls to libvirtd.
//
// libvirtd opens TAPs by their names, so it has to run in the daemon's network
// namespace. It must be 5.7 or later: earlier versions change TAPs that they have
// not made.
//
// The slots of a domain are its pcie-root-port controllers that support hot-plug,
// numbered from 1 in the order of their indexes. A port that holds one of the
// domain's own devices is always in use. libvirt adds only one free port by itself:
// the XML of a domain needs a controller per pod, and a processor per 40 pods, or
// the guest's kernel runs out of interrupt vectors and binds no driver to a NIC.
package libvirt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"unnest.io/unnest/internal/vmm"
	"unnest.io/unnest/internal/vmm/libvirt/rpc"
)

// VMM is a connection to libvirtd, about one run of one domain.
type VMM struct {
	client *rpc.Client
	domain rpc.Domain
	media  string   // directory of images, while they are inserted
	buses  []uint64 // behind the root ports of slots 1, 2, ...
	events chan vmm.Event
	lost   atomic.Bool // events were dropped
}

var _ vmm.VMM = (*VMM)(nil)

// maxQueued is the capacity of the event queue.
const maxQueued = 4096

// Dial connects to libvirtd's read-write unix socket, usually
// /run/libvirt/libvirt-sock, for a running domain. If the domain does not run or
// does not exist, the error wraps vmm.ErrNotRunning. The directory media is made when a
// medium is inserted. libvirtd and QEMU's user have to reach it by this path.
func Dial(ctx context.Context, socket, domain, media string) (*VMM, error) {
	v := &VMM{media: media, events: make(chan vmm.Event, maxQueued)}
	var err error
	if v.client, err = rpc.Dial(ctx, socket, v.handle); err != nil {
		return nil, err
	}
	if err := v.begin(ctx, domain); err != nil {
		return nil, errors.Join(fmt.Errorf("domain %s: %w", domain, err), v.Close())
	}
	return v, nil
}

// begin subscribes to events before it checks that the domain runs, so that it does
// not miss the domain's end.
func (v *VMM) begin(ctx context.Context, name string) (err error) {
	if v.domain, err = v.client.Lookup(ctx, name); err != nil {
		if e, ok := errors.AsType[*rpc.Error](err); ok && e.Code == rpc.CodeNoDomain {
			err = fmt.Errorf("%w: %w", vmm.ErrNotRunning, err)
		}
		return err
	}
	if err := v.client.Watch(ctx, v.domain); err != nil {
		return err
	}
	if v.domain, err = v.client.Lookup(ctx, name); err != nil {
		return err
	}
	if !v.domain.Running() {
		return fmt.Errorf("%w: start it", vmm.ErrNotRunning)
	}
	devices, err := v.xmlDevices(ctx)
	if err != nil {
		return err
	}
	v.buses, err = rootPorts(devices)
	return err
}

func (v *VMM) handle(e rpc.Event) error {
	var event vmm.Event = vmm.Reset{}
	switch e.Kind {
	case rpc.Stopped:
		return errors.New("domain has stopped")
	case rpc.DeviceRemoved:
		event = vmm.Deleted{ID: parseAlias(e.Alias)}
	case rpc.RemovalFailed:
		event = vmm.Refused{ID: parseAlias(e.Alias)}
	}
	select {
	case v.events <- event:
	default:
		v.lost.Store(true)
	}
	return nil
}

// AddNetdev does nothing: libvirt makes the netdev with the device.
func (v *VMM) AddNetdev(context.Context, string, vmm.TAP) error { return nil }

// DeleteNetdev does nothing: libvirt deletes the netdev with the device.
func (v *VMM) DeleteNetdev(context.Context, string) error { return nil }

// AddDevice attaches a NIC to the running domain, not to its definition: the NIC is
// gone when the domain starts the next time.
func (v *VMM) AddDevice(ctx context.Context, d vmm.Device) error {
	if d.Slot < 1 || d.Slot > len(v.buses) {
		return &vmm.RefusedError{Err: fmt.Errorf("slot %d: want 1 to %d", d.Slot, len(v.buses))}
	}
	text, err := describe(d, v.buses[d.Slot-1])
	if err != nil {
		return err
	}
	if err := v.client.AttachDevice(ctx, v.domain, text); err != nil {
		return fmt.Errorf("attach NIC on TAP %s: %w", d.TAP, markRefused(err))
	}
	return nil
}

// DeleteDevice asks the guest to release a device. libvirt has no error code for a
// repeated request, but passes on QEMU's words. Its words for a missing device
// depend on version and language, so DeleteDevice lists the devices.
func (v *VMM) DeleteDevice(ctx context.Context, id string) error {
	refused := v.client.DetachDevice(ctx, v.domain, alias(id))
	e, ok := errors.AsType[*rpc.Error](refused)
	if !ok {
		return refused
	}
	if strings.Contains(e.Message, "in the process of unplug") {
		return nil
	}
	devices, err := v.Devices(ctx)
	if err == nil && !slices.ContainsFunc(devices, func(o vmm.Occupied) bool { return o.ID == id }) {
		return fmt.Errorf("%w: %w", vmm.ErrNotFound, refused)
	}
	return markRefused(refused)
}

// Devices lists the devices in the root ports.
func (v *VMM) Devices(ctx context.Context) ([]vmm.Occupied, error) {
	devices, err := v.xmlDevices(ctx)
	if err != nil {
		return nil, err
	}
	return occupied(devices, v.buses)
}

// OwnNICs lists the domain's own interfaces.
func (v *VMM) OwnNICs(ctx context.Context) ([]vmm.NIC, error) {
	devices, err := v.xmlDevices(ctx)
	if err != nil {
		return nil, err
	}
	return ownNICs(devices), nil
}

func (v *VMM) xmlDevices(ctx context.Context) ([]deviceXML, error) {
	text, err := v.client.XML(ctx, v.domain)
	if err != nil {
		return nil, err
	}
	return parseDomain(text)
}

// Next returns the next event.
func (v *VMM) Next(ctx context.Context) (vmm.Event, error) {
	if v.lost.Swap(false) {
		return vmm.Lost{}, nil
	}
	select {
	case e := <-v.events:
		return e, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for libvirt's event: %w", context.Cause(ctx))
	case <-v.client.Done():
		return nil, v.client.Err()
	}
}

// Slots returns the number of root ports.
func (v *VMM) Slots() int { return len(v.buses) }

// PersistentTAPs returns true: libvirtd opens TAPs by their names.
func (v *VMM) PersistentTAPs() bool { return true }

// Done is closed when the connection has ended, or the domain has stopped.
func (v *VMM) Done() <-chan struct{} { return v.client.Done() }

// Err returns why the connection has ended, or nil while it is up.
func (v *VMM) Err() error { return v.client.Err() }

// Close ends the connection. Attached devices stay.
func (v *VMM) Close() error { return v.client.Close() }

func markRefused(err error) error { return vmm.MarkRefused[*rpc.Error](err) }
