package qmp

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Peripheral is a device from the command line or device_add.
type Peripheral struct {
	ID     string // for a device without one its QOM path, which commands accept too
	Driver string // "virtio-net-pci"
	Bus    string // name of its bus, as in device_add: "rp1"; "" when it has none
}

// Where QEMU keeps the devices that have an ID, and those that have none.
const (
	named    = "/machine/peripheral"
	nameless = "/machine/peripheral-anon"
)

type node struct{ Name, Type string }

// children lists the objects at a QOM path, without the path's own properties.
func (c *Client) children(ctx context.Context, path string) ([]node, error) {
	var nodes []node
	if err := c.Execute(ctx, "qom-list", map[string]any{"path": path}, &nodes); err != nil {
		return nil, fmt.Errorf("list objects: %w", err)
	}
	return slices.DeleteFunc(nodes, func(n node) bool { return !strings.HasPrefix(n.Type, "child<") }), nil
}

// Peripherals lists the devices, sorted by ID. Unlike query-pci it does not depend
// on the guest, whose firmware numbers the buses at each start.
func (c *Client) Peripherals(ctx context.Context) ([]Peripheral, error) {
	var found []Peripheral
	for _, container := range []string{named, nameless} {
		nodes, err := c.children(ctx, container)
		if err != nil {
			return nil, err
		}
		for _, n := range nodes {
			p := Peripheral{ID: n.Name, Driver: strings.TrimSuffix(strings.TrimPrefix(n.Type, "child<"), ">")}
			if container == nameless {
				p.ID = nameless + "/" + n.Name
			}
			var bus string // a path; empty for a device without a bus
			err := c.Property(ctx, p.ID, "parent_bus", &bus)
			if IsNotFound(err) {
				continue // unplugged since the list was made
			}
			if err != nil {
				return nil, err
			}
			if bus != "" {
				p.Bus = path.Base(bus)
			}
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b Peripheral) int { return strings.Compare(a.ID, b.ID) })
	return found, nil
}

// Property reads a property of a device, given as in Peripheral, into value.
// When the device does not exist, IsNotFound reports true for the error.
func (c *Client) Property(ctx context.Context, device, name string, value any) error {
	if !path.IsAbs(device) {
		device = named + "/" + device
	}
	if err := c.Execute(ctx, "qom-get", map[string]any{"path": device, "property": name}, value); err != nil {
		return fmt.Errorf("read %s of device %s: %w", name, path.Base(device), err)
	}
	return nil
}

// MemoryBackend is a backend of memory of the guest or of a device.
type MemoryBackend struct {
	ID    string
	Size  int64 // bytes
	Share bool  // another process can map it
}

// MemoryBackends lists the memory backends.
func (c *Client) MemoryBackends(ctx context.Context) ([]MemoryBackend, error) {
	var all []MemoryBackend
	err := c.Execute(ctx, "query-memdev", nil, &all)
	return all, err
}

// Objects lists the IDs of user-created objects, such as memory backends.
func (c *Client) Objects(ctx context.Context) ([]string, error) {
	nodes, err := c.children(ctx, "/objects")
	var all []string
	for _, n := range nodes {
		all = append(all, n.Name)
	}
	return all, err
}

// Chardevs lists the IDs of character devices.
func (c *Client) Chardevs(ctx context.Context) ([]string, error) {
	var found []struct{ Label string }
	if err := c.Execute(ctx, "query-chardev", nil, &found); err != nil {
		return nil, fmt.Errorf("list character devices: %w", err)
	}
	var all []string
	for _, f := range found {
		all = append(all, f.Label)
	}
	return all, nil
}

// TAPs returns the TAPs that QEMU has opened by name, by the ID of their netdev. QMP has no
// command for it, so TAPs reads the monitor's "info network". Its lines name the IDs that
// the command line and netdev_add gave; a guest chooses nothing but MACs there.
func (c *Client) TAPs(ctx context.Context) (map[string]string, error) {
	var text string
	if err := c.Execute(ctx, "human-monitor-command", map[string]any{"command-line": "info network"}, &text); err != nil {
		return nil, fmt.Errorf("list netdevs: %w", err)
	}
	return parseNetwork(text), nil
}

// tapLine is a line such as " \ n0: index=0,type=tap,ifname=tap0,script=no,downscript=no".
var tapLine = regexp.MustCompile(`(\S+): index=\d+,type=tap,ifname=([^,]+),script=`)

func parseNetwork(text string) map[string]string {
	taps := map[string]string{}
	for line := range strings.Lines(text) {
		if m := tapLine.FindStringSubmatch(line); m != nil {
			taps[m[1]] = m[2]
		}
	}
	return taps
}

// NIC is a network device with its netdev.
type NIC struct {
	Netdev string // ID
	MAC    string // as configured; the guest may use another
}

// NICs lists the network devices: those with an ID, those without, and those that QEMU
// made for -nic and -net.
func (c *Client) NICs(ctx context.Context) (nics []NIC, err error) {
	for _, container := range []string{named, nameless, "/machine/unattached"} {
		nodes, err := c.children(ctx, container)
		if err != nil {
			return nil, err
		}
		for _, n := range nodes {
			if container == "/machine/unattached" && !strings.HasPrefix(n.Name, "device[") {
				continue // not a device
			}
			var nic NIC
			path := container + "/" + n.Name
			err := c.Property(ctx, path, "netdev", &nic.Netdev)
			if _, refused := errors.AsType[*Error](err); refused || err == nil && nic.Netdev == "" {
				continue // not a NIC, or unplugged since the list was made
			}
			if err != nil {
				return nil, err
			}
			if err := c.Property(ctx, path, "mac", &nic.MAC); err != nil {
				return nil, err
			}
			nics = append(nics, nic)
		}
	}
	return nics, nil
}
