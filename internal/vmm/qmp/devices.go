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

// Peripheral is a device from the command line or device_add.
type Peripheral struct {
	ID     string // a device without one has its QOM path here, which commands take as well
	Driver string // "virtio-net-pci"
	Bus    string // the bus it is plugged in, named as in device_add: "rp1"; "" when it has none
}

// Where QEMU keeps the devices that have an ID, and those that have none.
const (
	named    = "/machine/peripheral"
	nameless = "/machine/peripheral-anon"
)

// Peripherals lists the devices, sorted by ID. Unlike QueryPCI it does not
// depend on what the guest has done so far.
func (c *Client) Peripherals(ctx context.Context) ([]Peripheral, error) {
	var found []Peripheral
	for _, container := range []string{named, nameless} {
		var nodes []struct{ Name, Type string }
		if err := c.Execute(ctx, "qom-list", map[string]any{"path": container}, &nodes); err != nil {
			return nil, fmt.Errorf("list devices: %w", err)
		}
		for _, n := range nodes {
			driver, ok := strings.CutPrefix(n.Type, "child<")
			if !ok {
				continue
			}
			p := Peripheral{ID: n.Name, Driver: strings.TrimSuffix(driver, ">")}
			if container == nameless {
				p.ID = nameless + "/" + n.Name
			}
			err := c.findBus(ctx, &p)
			if IsNotFound(err) {
				continue // unplugged since the list was made
			}
			if err != nil {
				return nil, err
			}
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b Peripheral) int { return strings.Compare(a.ID, b.ID) })
	return found, nil
}

// findBus fills in the name of the bus that the device is plugged in.
func (c *Client) findBus(ctx context.Context, p *Peripheral) error {
	var bus string // its canonical path; empty for a device without a bus
	if err := c.Property(ctx, p.ID, "parent_bus", &bus); err != nil {
		return err
	}
	if bus != "" {
		p.Bus = path.Base(bus)
	}
	return nil
}

// Property reads a property of a device, given as in Peripheral, into value.
// When there is no such device the error is one of IsNotFound.
func (c *Client) Property(ctx context.Context, device, name string, value any) error {
	if !path.IsAbs(device) {
		device = named + "/" + device
	}
	if err := c.Execute(ctx, "qom-get", map[string]any{"path": device, "property": name}, value); err != nil {
		return fmt.Errorf("read %s of device %s: %w", name, path.Base(device), err)
	}
	return nil
}
