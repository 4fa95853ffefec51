package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/vmm"
	"unnest.io/unnest/internal/vmm/qmp"
)

var _ vmm.Sharer = (*VMM)(nil)

// sharePrefix begins the IDs of the root ports for shares: vp1, vp2 and so on, in
// every QEMU.
const sharePrefix = "vp"

func isSharePort(id string) bool {
	number, ok := strings.CutPrefix(id, sharePrefix)
	n, err := strconv.Atoi(number)
	return ok && err == nil && id == sharePort(n)
}

func sharePort(number int) string { return sharePrefix + strconv.Itoa(number) }

// findSharePorts looks for vp1 and its successors, up to the first gap. Each has to be
// on the machine's own bus, because only there its address in the guest is known.
func (v *VMM) findSharePorts(ctx context.Context, devices []qmp.Peripheral) error {
	for {
		id := sharePort(len(v.shares) + 1)
		i := slices.IndexFunc(devices, func(p qmp.Peripheral) bool { return p.ID == id && isPort(p) && p.Bus == machineBus })
		if i < 0 {
			return nil
		}
		var at int // five bits of device, three of function
		if err := v.client.Property(ctx, id, "addr", &at); err != nil {
			return err
		}
		v.shares = append(v.shares, vmm.SharePort{Address: fmt.Sprintf("0000:00:%02x.%d", at>>3, at&7)})
	}
}

// machineBus is the bus of a q35 machine.
const machineBus = "pcie.0"

// SharePorts lists vp1 and its successors.
func (v *VMM) SharePorts() []vmm.SharePort { return slices.Clone(v.shares) }

// Shared lists the devices in the share ports.
func (v *VMM) Shared(ctx context.Context) ([]vmm.Occupied, error) {
	return v.occupied(ctx, numbered(sharePrefix, len(v.shares)))
}

// MappedMemory returns the size of all memory backends if each has share=on, otherwise 0.
// It includes what AddMemory has added, which is shared.
func (v *VMM) MappedMemory(ctx context.Context) (size int64, err error) {
	backends, err := v.client.MemoryBackends(ctx)
	if err != nil {
		return 0, err
	}
	for _, b := range backends {
		if !b.Share {
			return 0, nil
		}
		size += b.Size
	}
	return size, nil
}

// checkSharePort is needed because QEMU accepts any bus.
func (v *VMM) checkSharePort(port int) error {
	if port < 1 || port > len(v.shares) {
		return &vmm.RefusedError{Err: fmt.Errorf("port %d: want 1 to %d", port, len(v.shares))}
	}
	return nil
}

// AddFiles hands the connection to QEMU, as a character device with the device's ID.
// QEMU accepts the device also when MappedMemory is 0, but then no request of the
// guest is ever answered.
func (v *VMM) AddFiles(ctx context.Context, id string, port int, tag string, server *os.File) error {
	if err := v.checkSharePort(port); err != nil {
		return err
	}
	if err := v.client.SendFD(ctx, id, server); err != nil {
		return markRefused(err)
	}
	err := markRefused(v.client.Execute(ctx, "chardev-add", map[string]any{"id": id, "backend": map[string]any{
		"type": "socket", "data": map[string]any{"server": false, "addr": map[string]any{"type": "fd", "data": map[string]any{"str": id}}},
	}}, nil))
	if err != nil {
		return errors.Join(err, v.closeDescriptor(ctx, id))
	}
	err = markRefused(v.client.DeviceAdd(ctx, map[string]any{
		"driver": "vhost-user-fs-pci", "id": id, "chardev": id, "tag": tag, "bus": sharePort(port), "addr": "0",
	}))
	if err != nil {
		return errors.Join(err, v.deleteChardev(ctx, id))
	}
	return nil
}

// AddMemory hands the memory's descriptor to QEMU, which reopens it as the backend
// with the device's ID. A size that is not a power of two would crash QEMU.
func (v *VMM) AddMemory(ctx context.Context, id string, port int, size int64, memory *os.File) (err error) {
	if err := v.checkSharePort(port); err != nil {
		return err
	}
	if size <= 0 || size&(size-1) != 0 {
		return &vmm.RefusedError{Err: fmt.Errorf("memory of %d bytes: want a power of two", size)}
	}
	fd, err := v.client.AddFD(ctx, memory)
	if err != nil {
		return markRefused(err)
	}
	err = markRefused(v.client.Execute(ctx, "object-add", map[string]any{
		"qom-type": "memory-backend-file", "id": id, "mem-path": fmt.Sprintf("/proc/self/fd/%d", fd.Number), "share": true, "size": size,
	}, nil))
	if err = errors.Join(err, markRefused(v.client.RemoveFD(ctx, fd))); err != nil {
		return errors.Join(err, v.deleteObject(ctx, id))
	}
	err = markRefused(v.client.DeviceAdd(ctx, map[string]any{
		"driver": "ivshmem-plain", "id": id, "memdev": id, "bus": sharePort(port), "addr": "0",
	}))
	if err != nil {
		return errors.Join(err, v.deleteObject(ctx, id))
	}
	return nil
}

// DeleteBackend deletes the character device or the memory of a device that is gone.
func (v *VMM) DeleteBackend(ctx context.Context, id string) error {
	left, err := v.OrphanedBackends(ctx)
	if err != nil || !slices.Contains(left, id) {
		return err
	}
	return errors.Join(v.deleteChardev(ctx, id), v.deleteObject(ctx, id))
}

func (v *VMM) deleteChardev(ctx context.Context, id string) error {
	return v.deleteListed(ctx, v.client.Chardevs, "chardev-remove", id)
}

func (v *VMM) deleteObject(ctx context.Context, id string) error {
	return v.deleteListed(ctx, v.client.Objects, "object-del", id)
}

// deleteListed runs command for id if list has it: QEMU has no error class for a
// missing character device or object.
func (v *VMM) deleteListed(ctx context.Context, list func(context.Context) ([]string, error), command, id string) error {
	all, err := list(ctx)
	if err != nil || !slices.Contains(all, id) {
		return err
	}
	return markRefused(v.client.Execute(ctx, command, map[string]any{"id": id}, nil))
}

// OrphanedBackends lists all character devices and objects without a device of their
// ID, whoever made them.
func (v *VMM) OrphanedBackends(ctx context.Context) ([]string, error) {
	devices, err := v.client.Peripherals(ctx)
	if err != nil {
		return nil, err
	}
	var left []string
	for _, list := range []func(context.Context) ([]string, error){v.client.Chardevs, v.client.Objects} {
		ids, err := list(ctx)
		if err != nil {
			return nil, err
		}
		left = append(left, slices.DeleteFunc(ids, func(id string) bool {
			return slices.ContainsFunc(devices, func(d qmp.Peripheral) bool { return d.ID == id })
		})...)
	}
	return left, nil
}

// PID returns QEMU's process.
func (v *VMM) PID() (int, error) { return v.client.PID() }
