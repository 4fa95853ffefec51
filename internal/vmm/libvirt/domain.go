package libvirt

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unnest/internal/vmm"
)

// domainXML is the part that we read of a domain's description.
type domainXML struct {
	Devices struct {
		All []deviceXML `xml:",any"`
	} `xml:"devices"`
}

type deviceXML struct {
	Index  string `xml:"index,attr"` // of a controller
	Model  string `xml:"model,attr"` // of a controller
	Target struct {
		Hotplug string `xml:"hotplug,attr"` // of a root port; "off": no
	} `xml:"target"`
	Alias struct {
		Name string `xml:"name,attr"`
	} `xml:"alias"`
	Address struct {
		Type string `xml:"type,attr"`
		Bus  string `xml:"bus,attr"`
	} `xml:"address"`
}

func parseDomain(text string) ([]deviceXML, error) {
	var d domainXML
	if err := xml.Unmarshal([]byte(text), &d); err != nil {
		return nil, fmt.Errorf("parse domain XML: %w", err)
	}
	return d.Devices.All, nil
}

// rootPorts returns the numbers of the buses behind the root ports that support
// hot-plug, ascending: bus i is slot i+1. It ignores what is plugged in, because
// that must not renumber the slots.
func rootPorts(devices []deviceXML) ([]uint64, error) {
	var buses []uint64
	for _, d := range devices {
		if d.Model != "pcie-root-port" || d.Target.Hotplug == "off" {
			continue
		}
		bus, err := strconv.ParseUint(d.Index, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("read index of root port: %w", err)
		}
		buses = append(buses, bus)
	}
	slices.Sort(buses)
	return buses, nil
}

// occupied lists the devices on the buses, by slot.
func occupied(devices []deviceXML, buses []uint64) ([]vmm.Occupied, error) {
	var found []vmm.Occupied
	for _, d := range devices {
		if d.Address.Type != "pci" {
			continue
		}
		bus, err := strconv.ParseUint(d.Address.Bus, 0, 16)
		if err != nil {
			return nil, fmt.Errorf("read PCI address of device %s: %w", d.Alias.Name, err)
		}
		if i, ok := slices.BinarySearch(buses, bus); ok {
			found = append(found, vmm.Occupied{ID: parseAlias(d.Alias.Name), Slot: i + 1})
		}
	}
	slices.SortStableFunc(found, func(a, b vmm.Occupied) int { return cmp.Compare(a.Slot, b.Slot) })
	return found, nil
}

// userAlias begins user aliases; libvirt replaces others by its own. IDs of our
// devices begin with "nic".
const userAlias = "ua-"

func alias(id string) string { return userAlias + id }

// parseAlias returns the ID of our own device, or another device's alias.
func parseAlias(name string) string {
	if id, ok := strings.CutPrefix(name, userAlias); ok && strings.HasPrefix(id, "nic") {
		return id
	}
	return name
}

type interfaceXML struct {
	XMLName xml.Name `xml:"interface"`
	Type    string   `xml:"type,attr"`
	MAC     struct {
		Address string `xml:"address,attr"`
	} `xml:"mac"`
	Target struct {
		Dev     string `xml:"dev,attr"`
		Managed string `xml:"managed,attr"`
	} `xml:"target"`
	Model struct {
		Type string `xml:"type,attr"`
	} `xml:"model"`
	MTU struct {
		Size int `xml:"size,attr"`
	} `xml:"mtu"`
	ROM struct {
		Enabled string `xml:"enabled,attr"`
	} `xml:"rom"`
	Alias struct {
		Name string `xml:"name,attr"`
	} `xml:"alias"`
	Address struct {
		Type     string `xml:"type,attr"`
		Domain   int    `xml:"domain,attr"`
		Bus      uint64 `xml:"bus,attr"`
		Slot     int    `xml:"slot,attr"`
		Function int    `xml:"function,attr"`
	} `xml:"address"`
}

// describe returns libvirt's description of a NIC on a bus. managed="no" keeps
// libvirt from changing the TAP. The NIC has no network boot ROM, which the guest
// would load for nothing.
func describe(d vmm.Device, bus uint64) (string, error) {
	x := interfaceXML{Type: "ethernet"}
	x.MAC.Address = d.MAC
	x.Target.Dev, x.Target.Managed = d.TAP, "no"
	x.Model.Type = "virtio"
	x.MTU.Size = d.MTU
	x.ROM.Enabled = "no"
	x.Alias.Name = alias(d.ID)
	x.Address.Type, x.Address.Bus = "pci", bus
	text, err := xml.Marshal(x)
	if err != nil {
		return "", fmt.Errorf("describe NIC %s: %w", d.ID, err)
	}
	return string(text), nil
}
