package libvirt

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"unnest.io/unnest/internal/vmm"
)

// domainXML is the part that we read of a domain's description.
type domainXML struct {
	Devices struct {
		All []deviceXML `xml:",any"`
	} `xml:"devices"`
}

type deviceXML struct {
	XMLName xml.Name
	Index   string `xml:"index,attr"`  // of a controller
	Model   string `xml:"model,attr"`  // of a controller
	Device  string `xml:"device,attr"` // of a disk: its kind
	Source  struct {
		File string `xml:"file,attr"` // of a disk
	} `xml:"source"`
	Target struct {
		Hotplug string `xml:"hotplug,attr"` // of a root port; "off": no
		Dev     string `xml:"dev,attr"`     // of an interface: the host's end; of a disk: its name
		Bus     string `xml:"bus,attr"`     // of a disk
	} `xml:"target"`
	MAC struct {
		Address string `xml:"address,attr"`
	} `xml:"mac"` // of an interface
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

// ownNICs lists the domain's interfaces that AddDevice has not plugged.
func ownNICs(devices []deviceXML) (nics []vmm.NIC) {
	for _, d := range devices {
		if d.XMLName.Local == "interface" && d.Target.Dev != "" && !isOurs(d.Alias.Name) {
			nics = append(nics, vmm.NIC{TAP: d.Target.Dev, MAC: d.MAC.Address})
		}
	}
	return nics
}

// userAlias begins user aliases; libvirt replaces others by its own. IDs of our
// devices begin with "nic".
const userAlias = "ua-"

func alias(id string) string { return userAlias + id }

func isOurs(alias string) bool { return strings.HasPrefix(alias, userAlias+"nic") }

// parseAlias returns the ID of our own device, or another device's alias.
func parseAlias(name string) string {
	if isOurs(name) {
		return strings.TrimPrefix(name, userAlias)
	}
	return name
}

var nicXML = template.Must(template.New("nic").Funcs(template.FuncMap{"xml": escapeXML}).Parse(
	`<interface type="ethernet"><mac address="{{xml .MAC}}"/><target dev="{{xml .TAP}}" managed="no"/>` +
		`<model type="virtio"/>{{if gt .Queues 1}}<driver queues="{{.Queues}}"/>{{end}}<mtu size="{{.MTU}}"/><rom enabled="no"/><alias name="{{xml .Alias}}"/>` +
		`<address type="pci" domain="0" bus="{{.Bus}}" slot="0" function="0"/></interface>`))

func escapeXML(s string) (string, error) {
	var b strings.Builder
	err := xml.EscapeText(&b, []byte(s))
	return b.String(), err
}

// describe returns libvirt's description of a NIC on a bus. managed="no" keeps
// libvirt from changing the TAP. The NIC has no network boot ROM, which the guest
// would load for nothing.
func describe(d vmm.Device, bus uint64) (string, error) {
	var b strings.Builder
	err := nicXML.Execute(&b, struct {
		vmm.Device
		Alias string
		Bus   uint64
	}{d, alias(d.ID), bus})
	if err != nil {
		return "", fmt.Errorf("describe NIC %s: %w", d.ID, err)
	}
	return b.String(), nil
}
