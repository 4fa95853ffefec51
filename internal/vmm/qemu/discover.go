package qemu

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"

	"unnest/internal/vmm/qmp"
)

// rootPort is QEMU's generic root port, ioh3420 its elder.
const rootPort = "pcie-root-port"

func isPort(p qmp.Peripheral) bool { return p.Driver == rootPort || p.Driver == "ioh3420" }

// port is a root port with its number, which no other has (PCI Express, section
// 6.7.3.2: chassis and physical slot).
type port struct {
	id            string
	chassis, slot int
}

// Discover returns the IDs of the root ports that can be slots, of a QEMU that
// was configured by somebody else: those with an ID that take hot-plug and had
// nothing plugged in when QEMU started, but the ports for what is shared. What was plugged in since does not
// count, so that the answer, ordered by chassis and slot number, is the same as
// long as this QEMU runs.
func Discover(ctx context.Context, socket string) (_ []string, err error) {
	client, err := qmp.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ports, err := discover(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("find root ports of QEMU at %s: %w", socket, err)
	}
	slices.SortFunc(ports, func(a, b port) int { return cmp.Or(a.chassis-b.chassis, a.slot-b.slot) })
	ids := make([]string, len(ports))
	for i, p := range ports {
		ids[i] = p.id
	}
	return ids, nil
}

func discover(ctx context.Context, client *qmp.Client) ([]port, error) {
	devices, err := client.Peripherals(ctx)
	if err != nil {
		return nil, err
	}
	var ports []port
	for _, d := range devices {
		if !isPort(d) || path.IsAbs(d.ID) || isSharePort(d.ID) {
			continue
		}
		free, err := takesHotplug(ctx, client, d.ID, devices)
		if err != nil {
			return nil, err
		}
		if free {
			p := port{id: d.ID}
			if err := client.Property(ctx, d.ID, "chassis", &p.chassis); err != nil {
				return nil, err
			}
			if err := client.Property(ctx, d.ID, "slot", &p.slot); err != nil {
				return nil, err
			}
			ports = append(ports, p)
		}
	}
	return ports, nil
}

// takesHotplug reports whether a port takes hot-plug and holds nothing that was
// there when QEMU started. The bus behind a port has the port's ID.
func takesHotplug(ctx context.Context, client *qmp.Client, id string, devices []qmp.Peripheral) (bool, error) {
	var takes bool
	if err := client.Property(ctx, id, "hotplug", &takes); err != nil || !takes {
		return false, err
	}
	for _, d := range devices {
		if d.Bus != id {
			continue
		}
		var since bool
		err := client.Property(ctx, d.ID, "hotplugged", &since)
		if !since && !qmp.IsNotFound(err) { // not found: unplugged since the list was made
			return false, err
		}
	}
	return true, nil
}
