package qmp

import "context"

// NetdevAdd creates a network backend. args are those of netdev_add, with "type"
// and "id".
func (c *Client) NetdevAdd(ctx context.Context, args map[string]any) error {
	return c.Execute(ctx, "netdev_add", args, nil)
}

// NetdevDel deletes the network backend with the ID. If a NIC still uses it, the
// NIC's link goes down; QEMU 10 closes the backend's files only with the NIC.
func (c *Client) NetdevDel(ctx context.Context, id string) error {
	return c.Execute(ctx, "netdev_del", map[string]any{"id": id}, nil)
}

// DeviceAdd plugs a device. args are those of device_add, with "driver" and "id",
// and on a pcie-root-port "addr": "0": without it QEMU accepts a second device on
// an occupied port, where no guest can see it.
func (c *Client) DeviceAdd(ctx context.Context, args map[string]any) error {
	return c.Execute(ctx, "device_add", args, nil)
}

// DeviceDel asks the guest to release the device with the ID, and does not wait
// until it has. The event DEVICE_DELETED ends the unplug; it depends on the guest
// and may never come. A repeated DeviceDel may fail: see IsUnplugPending and
// IsNotFound.
func (c *Client) DeviceDel(ctx context.Context, id string) error {
	return c.Execute(ctx, "device_del", map[string]any{"id": id}, nil)
}

// SystemPowerdown asks the guest to shut down, as a power button does.
func (c *Client) SystemPowerdown(ctx context.Context) error {
	return c.Execute(ctx, "system_powerdown", nil, nil)
}
