package qmp

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
)

// PCIBus is one PCI root bus of the guest.
type PCIBus struct {
	Bus     int
	Devices []PCIDevice
}

// PCIDevice is one function on a PCI bus.
type PCIDevice struct {
	ID                  string `json:"qdev_id"` // "" for built-in devices
	Bus, Slot, Function int
	Bridge              *PCIBridge `json:"pci_bridge"` // nil unless it is a bridge
}

// PCIBridge is what lies behind a bridge, such as a pcie-root-port.
type PCIBridge struct {
	Bus struct {
		Number      int // the bus that the bridge is on
		Secondary   int // the bus behind it; 0 until the firmware has numbered it
		Subordinate int // the last bus behind it
	}
	Devices []PCIDevice
}

// QueryPCI lists the PCI devices as the guest's firmware has numbered them. On
// a guest that has not got that far (at its start and after each reset) bridges
// look empty, whatever is plugged in: use Peripherals to learn what is plugged.
func (c *Client) QueryPCI(ctx context.Context) ([]PCIBus, error) {
	var buses []PCIBus
	err := c.Execute(ctx, "query-pci", nil, &buses)
	return buses, err
}

// Peripheral is a device with an ID, from the command line or device_add.
type Peripheral struct {
	ID     string
	Driver string // "virtio-net-pci"
	Bus    string // the bus it is plugged in, named as in device_add: "rp1"; "" when it has none
}

const peripherals = "/machine/peripheral"

// Peripherals lists the devices that have an ID, sorted by it. Unlike QueryPCI
// it does not depend on what the guest has done so far.
func (c *Client) Peripherals(ctx context.Context) ([]Peripheral, error) {
	var nodes []struct{ Name, Type string }
	if err := c.Execute(ctx, "qom-list", map[string]any{"path": peripherals}, &nodes); err != nil {
		return nil, fmt.Errorf("list devices: %w", err)
	}
	var found []Peripheral
	for _, n := range nodes {
		driver, ok := strings.CutPrefix(n.Type, "child<")
		if !ok {
			continue
		}
		bus, err := c.parentBus(ctx, n.Name)
		if IsNotFound(err) {
			continue // unplugged since the list was made
		}
		if err != nil {
			return nil, fmt.Errorf("find bus of device %s: %w", n.Name, err)
		}
		found = append(found, Peripheral{ID: n.Name, Driver: strings.TrimSuffix(driver, ">"), Bus: bus})
	}
	slices.SortFunc(found, func(a, b Peripheral) int { return strings.Compare(a.ID, b.ID) })
	return found, nil
}

// parentBus returns the name of the bus that the device is plugged in, or "".
func (c *Client) parentBus(ctx context.Context, device string) (string, error) {
	args := map[string]any{"path": peripherals + "/" + device, "property": "parent_bus"}
	var bus string // its canonical path; empty for a device without a bus
	if err := c.Execute(ctx, "qom-get", args, &bus); err != nil || bus == "" {
		return "", err
	}
	return path.Base(bus), nil
}
