package fleet

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"

	"unnest/internal/cni/netconf"
	"unnest/internal/hostapi/identity"
	"unnest/internal/hostd/daemon"
	"unnest/internal/hostd/ipam"
	"unnest/internal/hostd/policy"
	"unnest/internal/netdev/tap"
	"unnest/internal/testbed/guest"
	"unnest/internal/testbed/lab"
)

// maxGuests is how many guests the network plan has addresses for.
const maxGuests = 200

// DaemonPort is where the host daemon listens on the management gateway.
const DaemonPort = "7443"

// daemonAddress is where guests find the host daemon.
var daemonAddress = net.JoinHostPort(lab.ManagementGateway, DaemonPort)

// Tenant is the only tenant of the default policy.
const Tenant = "default"

// The CNI networks by which a container in a guest gets a NIC of its own: out of
// the pool, plugged for it, or as a VLAN of the guest's trunk NIC.
const (
	Network      = "brfusion"
	ColdNetwork  = "brfusion-cold"
	TrunkNetwork = "brfusion-trunk"
)

// The CNI networks by which containers in several guests get one loopback: a segment
// each, whose frames go to the guest that they are for or, as in the paper, to all.
const (
	HostloNetwork      = "hostlo"
	HostloPlainNetwork = "hostlo-plain"
)

// The first and the last address of pods on the tenant network; the guests' own
// are below.
const (
	firstPod = "10.201.1.0"
	lastPod  = "10.201.254.255"
)

// defaultPolicy is that of a lab whose guests trust each other.
func defaultPolicy() policy.Policy {
	subnet := netip.MustParsePrefix(fmt.Sprintf("%s/%d", lab.TenantGateway, lab.TenantPrefix)).Masked()
	return policy.Policy{
		Listen: netip.MustParseAddrPort(daemonAddress), Trunk: true, Pool: policy.DefaultPool,
		Tenants: []policy.Tenant{{
			Name: Tenant, Bridge: lab.TenantBridge, MTU: lab.MTU,
			Ranges: []ipam.Range{{
				Subnet: subnet, First: netip.MustParseAddr(firstPod), Last: netip.MustParseAddr(lastPod),
				Gateway: netip.MustParseAddr(lab.TenantGateway),
			}},
			Cooldown: policy.DefaultCooldown, Limits: policy.DefaultLimits,
		}},
	}
}

// addresses are a guest's own part of the network plan.
type addresses struct {
	managementIP, managementMAC, managementTAP string
	tenantIP, tenantMAC, tenantTAP             string
	nestedIP, nestedMAC, nestedTAP             string // of a guest in this one
	uplinkMAC                                  string // of this guest's NIC on nestedTAP, which has no address
}

// managementNIC and tenantNIC are what the host daemon keeps the guest to.
func (a addresses) managementNIC() daemon.BootNIC {
	return daemon.BootNIC{TAP: a.managementTAP, MAC: a.managementMAC, Addresses: []netip.Addr{netip.MustParseAddr(a.managementIP)}}
}

func (a addresses) tenantNIC() daemon.BootNIC {
	return daemon.BootNIC{TAP: a.tenantTAP, MAC: a.tenantMAC, Addresses: []netip.Addr{netip.MustParseAddr(a.tenantIP)}}
}

// nestedNIC is what the host daemon keeps the guest in the guest to. All that
// comes out of its TAP is from that one: the guest itself only passes it on.
func (a addresses) nestedNIC() daemon.BootNIC {
	return daemon.BootNIC{TAP: a.nestedTAP, MAC: a.nestedMAC, Addresses: []netip.Addr{netip.MustParseAddr(a.nestedIP)}}
}

// plan returns the addresses of the guest of the given index.
func plan(index int) addresses {
	return addresses{
		managementIP:  fmt.Sprintf("10.200.0.%d", index+1),
		managementMAC: fmt.Sprintf("52:54:00:c8:00:%02x", index),
		managementTAP: fmt.Sprintf("g%dmgmt", index),
		tenantIP:      fmt.Sprintf("10.201.0.%d", index+1),
		tenantMAC:     fmt.Sprintf("52:54:00:c9:00:%02x", index),
		tenantTAP:     fmt.Sprintf("g%dtenant", index),
		nestedIP:      fmt.Sprintf("10.201.255.%d", index+1),
		nestedMAC:     fmt.Sprintf("52:54:00:ca:00:%02x", index),
		nestedTAP:     fmt.Sprintf("g%dnested", index),
		uplinkMAC:     fmt.Sprintf("52:54:00:cb:00:%02x", index),
	}
}

// config returns the guest's configuration, without its NICs.
func (f *Fleet) config(o Options, p addresses, c identity.Credentials, dir string) (guest.Config, error) {
	_, hostKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return guest.Config{}, err
	}
	config := guest.Config{
		Name: o.Name, Dir: dir, Arch: o.Image.Arch, Image: o.Image, Accel: o.Accel, VCPUs: o.VCPUs, Memory: o.Memory, Slots: o.Slots,
		Shares: o.Shares, Export: o.Export,
		Address: net.JoinHostPort(p.managementIP, "22"),
		Seed: guest.Seed{
			Hostname: o.Name, HostKey: hostKey, Authorized: f.key.PublicKey(),
			Interfaces: []guest.Interface{
				{MAC: p.managementMAC, Name: "mgmt", Address: fmt.Sprintf("%s/%d", p.managementIP, lab.ManagementPrefix)},
				{MAC: p.tenantMAC, Name: "eth0", Address: fmt.Sprintf("%s/%d", p.tenantIP, lab.TenantPrefix), Gateway: lab.TenantGateway},
			},
			Files: map[string]string{
				"/etc/unnest/ca.crt":                                    string(f.authority.CertificatePEM()),
				"/etc/unnest/client.crt":                                string(c.CertificatePEM),
				"/etc/unnest/client.key":                                string(c.KeyPEM),
				"/etc/unnest/brfusion.json":                             asJSON(brfusion("1.1.0", map[string]any{"name": Network})), // for STATUS
				"/etc/cni/net.d/50-" + Network + ".conflist":            cniConfig(Network, nil),
				"/etc/cni/net.d/51-" + ColdNetwork + ".conflist":        cniConfig(ColdNetwork, map[string]any{"pool": false}),
				"/etc/cni/net.d/52-" + TrunkNetwork + ".conflist":       cniConfig(TrunkNetwork, map[string]any{"mode": "trunk"}),
				"/etc/cni/net.d/53-" + HostloNetwork + ".conflist":      f.hostloConfig(HostloNetwork, netconf.Unicast),
				"/etc/cni/net.d/54-" + HostloPlainNetwork + ".conflist": f.hostloConfig(HostloPlainNetwork, netconf.Plain),
			},
		},
	}
	if o.Nested != nil {
		config.Disks = guest.NestingDisks(*o.Nested)
	}
	if (o.Nested != nil || o.Nesting) && o.Accel == guest.TCG {
		config.CPU = guest.NestingCPU
	}
	return config, nil
}

// cniVersion is the newest that the guests' own plugins know.
const cniVersion = "1.0.0"

// cniConfig returns a network configuration list for a guest's container engine.
func cniConfig(name string, keys map[string]any) string { return conflist(name, brfusion("", keys)) }

// hostloConfig returns that of a segment of the network's own name: all containers
// of the network are fractions of one pod, one in each guest.
func (f *Fleet) hostloConfig(name, mode string) string {
	return conflist(name, map[string]any{
		"type": "hostlo", "server": daemonAddress, "credentials": "/etc/unnest",
		"segment": name, "key": f.segmentKey, "mode": mode,
	})
}

func conflist(name string, plugin map[string]any) string {
	return asJSON(map[string]any{"cniVersion": cniVersion, "name": name, "plugins": []map[string]any{plugin}})
}

// brfusion returns the plugin's configuration with more keys.
func brfusion(version string, keys map[string]any) map[string]any {
	c := map[string]any{
		"type": "brfusion", "server": daemonAddress, "credentials": "/etc/unnest",
		"capabilities": map[string]bool{"bandwidth": true},
		"ipam":         map[string]any{"type": "hostd"},
	}
	if version != "" {
		c["cniVersion"] = version
	}
	maps.Copy(c, keys)
	return c
}

func asJSON(v any) string {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("network plan: %v", err)) // plain data always marshals
	}
	return string(text) + "\n"
}

// plug opens the TAPs of the guest's two NICs, and of a third one for a guest in
// it.
func (f *Fleet) plug(c *guest.Config, p addresses, nested bool) error {
	type device struct{ tap, bridge, mac string }
	devices := []device{
		{p.managementTAP, lab.ManagementBridge, p.managementMAC},
		{p.tenantTAP, lab.TenantBridge, p.tenantMAC},
	}
	if nested {
		devices = append(devices, device{p.nestedTAP, lab.TenantBridge, p.uplinkMAC})
	}
	return lab.Do(f.Lab.HostNS(), func() error {
		for _, d := range devices {
			file, err := tap.Open(tap.Device{Name: d.tap, Bridge: d.bridge, MTU: lab.MTU})
			if err != nil {
				for _, nic := range c.NICs {
					err = errors.Join(err, nic.TAP.Close())
				}
				return err
			}
			c.NICs = append(c.NICs, guest.NIC{TAP: file, MAC: d.mac})
		}
		return nil
	})
}
