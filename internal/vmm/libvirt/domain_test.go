package libvirt

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"unnest.io/unnest/internal/vmm"
)

// A domain with ports out of order, one of them without hot-plug, and various devices.
const sample = `<domain type='kvm' id='3'>
  <name>node1</name>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'>
      <target dev='vda' bus='virtio'/><alias name='virtio-disk0'/>
      <address type='pci' domain='0x0000' bus='0x02' slot='0x00' function='0x0'/>
    </disk>
    <disk type='file' device='disk'>
      <target dev='sda' bus='sata'/><alias name='sata0-0-0'/>
      <address type='drive' controller='0' bus='1' target='0' unit='0'/>
    </disk>
    <disk type='file' device='cdrom'>
      <driver name='qemu' type='raw'/>
      <source file='/run/unnest/media/unnest-medium-0123456789abcdef' index='1'/>
      <target dev='sdb' bus='scsi' tray='open'/><readonly/><alias name='ua-unnest-credentials'/>
      <address type='drive' controller='0' bus='0' target='0' unit='1'/>
    </disk>
    <controller type='pci' index='0' model='pcie-root'><alias name='pcie.0'/></controller>
    <controller type='pci' index='10' model='pcie-root-port'>
      <target chassis='10' port='0x19'/><alias name='pci.10'/>
      <address type='pci' domain='0x0000' bus='0x00' slot='0x03' function='0x1'/>
    </controller>
    <controller type='pci' index='1' model='pcie-root-port'><target chassis='1' port='0x8'/></controller>
    <controller type='pci' index='2' model='pcie-root-port'><target chassis='2' port='0x9' hotplug='on'/></controller>
    <controller type='pci' index='3' model='pcie-root-port'><target chassis='3' port='0xa' hotplug='off'/></controller>
    <controller type='pci' index='4' model='pcie-to-pci-bridge'><address type='pci' domain='0x0000' bus='0x03' slot='0x00' function='0x0'/></controller>
    <interface type='ethernet'>
      <mac address='0a:00:01:03:00:01'/><target dev='u1n3-1' managed='no'/>
      <alias name='ua-nic3-1'/><address type='pci' domain='0x0000' bus='0x0a' slot='0x00' function='0x0'/>
    </interface>
    <interface type='bridge'>
      <mac address='52:54:00:00:00:01'/><source bridge='br0'/><target dev='vnet7'/>
      <alias name='ua-uplink'/><address type='pci' domain='0x0000' bus='0x01' slot='0x00' function='0x0'/>
    </interface>
    <interface type='user'>
      <mac address='52:54:00:00:00:02'/>
      <alias name='net2'/><address type='pci' domain='0x0000' bus='0x01' slot='0x00' function='0x1'/>
    </interface>
  </devices>
</domain>`

func TestOwnNICs(t *testing.T) {
	devices, err := parseDomain(sample)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]vmm.NIC{{TAP: "vnet7", MAC: "52:54:00:00:00:01"}}, ownNICs(devices)); diff != "" {
		t.Errorf("own NICs (-want +got):\n%s", diff)
	}
}

func TestSlots(t *testing.T) {
	devices, err := parseDomain(sample)
	if err != nil {
		t.Fatal(err)
	}
	buses, err := rootPorts(devices)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]uint64{1, 2, 10}, buses); diff != "" {
		t.Errorf("buses (-want +got):\n%s", diff)
	}
	got, err := occupied(devices, buses)
	want := []vmm.Occupied{{ID: "ua-uplink", Slot: 1}, {ID: "net2", Slot: 1}, {ID: "virtio-disk0", Slot: 2}, {ID: "nic3-1", Slot: 3}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("occupied (-want +got), %v:\n%s", err, diff)
	}
}

func TestBadDescriptions(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"no XML", "domain", "EOF"},
		{"no index", "<domain><devices><controller model='pcie-root-port'/></devices></domain>", "index of root port"},
		{"no bus", "<domain><devices><disk><alias name='d'/><address type='pci'/></disk></devices></domain>", "address of device d"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			devices, err := parseDomain(tt.text)
			if err == nil {
				var buses []uint64
				if buses, err = rootPorts(devices); err == nil {
					_, err = occupied(devices, buses)
				}
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestDescribe(t *testing.T) {
	got, err := describe(vmm.Device{
		ID: "nic3-1", Netdev: "net3-1", TAP: "u1'n<3", Slot: 3, MAC: "02:00:00:00:00:03", MTU: 1400,
	}, 10)
	if err != nil {
		t.Fatal(err)
	}
	want := `<interface type="ethernet"><mac address="02:00:00:00:00:03"/>` +
		`<target dev="u1&#39;n&lt;3" managed="no"/><model type="virtio"/><mtu size="1400"/>` +
		`<rom enabled="no"/><alias name="ua-nic3-1"/>` +
		`<address type="pci" domain="0" bus="10" slot="0" function="0"/></interface>`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("description (-want +got):\n%s", diff)
	}
	if got, err = describe(vmm.Device{Queues: 4}, 10); !strings.Contains(got, `<driver queues="4"/>`) {
		t.Errorf("four queues: got %s, %v", got, err)
	}
}

// No description of a domain causes a panic, or a device in a slot that does not exist.
func FuzzDomain(f *testing.F) {
	f.Add(`<domain><devices><controller type="pci" index="1" model="pcie-root-port"><target hotplug="on"/></controller>` +
		`<interface><alias name="ua-nic1-1"/><address type="pci" bus="0x01"/></interface></devices></domain>`)
	f.Add(`<domain><devices><controller index="65536" model="pcie-root-port"/><disk><address type="pci" bus="-1"/></disk></devices></domain>`)
	f.Fuzz(func(t *testing.T, text string) {
		devices, err := parseDomain(text)
		if err != nil {
			return
		}
		buses, err := rootPorts(devices)
		if err != nil {
			return
		}
		found, err := occupied(devices, buses)
		for _, o := range found {
			if o.Slot < 1 || o.Slot > len(buses) {
				t.Errorf("%q: device %q in slot %d of %d, %v", text, o.ID, o.Slot, len(buses), err)
			}
		}
	})
}

func TestCredentialDrive(t *testing.T) {
	devices, err := parseDomain(sample)
	if err != nil {
		t.Fatal(err)
	}
	d, ok := credentialDrive(devices)
	if !ok || d.Source.File != "/run/unnest/media/unnest-medium-0123456789abcdef" {
		t.Fatalf("got %+v, %v", d, ok)
	}
	for path, source := range map[string]string{"": "", "/a&b": `<source file="/a&amp;b"/>`} {
		got, err := describeDrive(d, path)
		want := `<disk type="file" device="cdrom"><driver name="qemu" type="raw"/>` + source +
			`<target dev="sdb" bus="scsi"/><readonly/><alias name="ua-unnest-credentials"/></disk>`
		if err != nil || got != want {
			t.Errorf("%q: got %s, %v, want %s", path, got, err, want)
		}
	}
	devices, err = parseDomain(strings.Replace(sample, "ua-unnest-credentials", "ua-data", 1))
	if _, ok := credentialDrive(devices); ok || err != nil {
		t.Errorf("another drive is taken for ours (%v)", err)
	}
}
