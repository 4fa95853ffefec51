package qemu

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"

	"unnest.io/unnest/internal/vmm/qmp"
)

// rootPort is the driver of QEMU's generic root port; ioh3420 is its predecessor.
const rootPort = "pcie-root-port"

func isPort(p qmp.Peripheral) bool { return p.Driver == rootPort || p.Driver == "ioh3420" }

// port is a root port with its unique number (PCI Express, section 6.7.3.2: chassis
// and physical slot).
type port struct {
	id            string
	chassis, slot int
}

// Discover returns the IDs of the root ports that can be slots in a QEMU that
// others have configured: ports with an ID that support hot-plug, were empty when
// QEMU started, and are not for shares. They are sorted by chassis and slot number.
// The answer is the same as long as this QEMU runs, since devices that were plugged
// in later do not count.
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
		if !free {
			continue
		}
		p := port{id: d.ID}
		for name, value := range map[string]*int{"chassis": &p.chassis, "slot": &p.slot} {
			if err := client.Property(ctx, d.ID, name, value); err != nil {
				return nil, err
			}
		}
		ports = append(ports, p)
	}
	return ports, nil
}

// takesHotplug reports whether a port supports hot-plug and was empty when QEMU
// started. The bus behind a port has the port's ID.
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
		if !since && !qmp.IsNotFound(err) { // not found: unplugged meanwhile
			return false, err
		}
	}
	return true, nil
}
