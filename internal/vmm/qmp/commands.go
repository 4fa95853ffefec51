package qmp

import (
	"context"
	"errors"
	"io"
)

// NetdevAdd creates a network backend: args are netdev_add's, with "type" and
// "id".
func (c *Client) NetdevAdd(ctx context.Context, args map[string]any) error {
	return c.Execute(ctx, "netdev_add", args, nil)
}

// NetdevDel deletes the network backend with the given ID, also under a NIC
// that still uses it: the NIC then has its link down.
func (c *Client) NetdevDel(ctx context.Context, id string) error {
	return c.Execute(ctx, "netdev_del", map[string]any{"id": id}, nil)
}

// DeviceAdd plugs a device: args are device_add's, with "driver" and "id".
// On a pcie-root-port pass "addr": "0" too: without it QEMU accepts a second
// device on an occupied port, where no guest can see it.
func (c *Client) DeviceAdd(ctx context.Context, args map[string]any) error {
	return c.Execute(ctx, "device_add", args, nil)
}

// DeviceDel asks the guest to give up the device with the given ID. It returns
// when the guest has been asked; the device is gone with the event
// DEVICE_DELETED, which needs the guest's help and may never come (see
// Subscribe and DeviceDeleted). Repeated, it may fail: see IsUnplugPending and
// IsNotFound.
func (c *Client) DeviceDel(ctx context.Context, id string) error {
	return c.Execute(ctx, "device_del", map[string]any{"id": id}, nil)
}

// SystemPowerdown asks the guest to shut down, as a power button does.
func (c *Client) SystemPowerdown(ctx context.Context) error {
	return c.Execute(ctx, "system_powerdown", nil, nil)
}

// Quit ends QEMU at once. That QEMU is gone before its reply came is a success.
func (c *Client) Quit(ctx context.Context) error {
	err := c.Execute(ctx, "quit", nil, nil)
	if errors.Is(err, ErrClosed) && errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// Status is whether the guest runs.
type Status struct {
	Running bool
	Status  string // "running", "paused", "prelaunch", "shutdown", …
}

// QueryStatus tells whether the guest runs.
func (c *Client) QueryStatus(ctx context.Context) (Status, error) {
	var s Status
	err := c.Execute(ctx, "query-status", nil, &s)
	return s, err
}

// KVM is whether QEMU uses KVM.
type KVM struct {
	Enabled bool // in use
	Present bool // built in
}

// QueryKVM tells whether the guest runs on KVM; if not, it is emulated.
func (c *Client) QueryKVM(ctx context.Context) (KVM, error) {
	var k KVM
	err := c.Execute(ctx, "query-kvm", nil, &k)
	return k, err
}
