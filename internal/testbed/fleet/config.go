package fleet

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"

	"unnest.io/unnest/internal/hostapi/identity"
	"unnest.io/unnest/internal/hostapi/segment"
	"unnest.io/unnest/internal/netdev/tap"
	"unnest.io/unnest/internal/testbed/guest"
	"unnest.io/unnest/internal/testbed/lab"
)

// The CNI networks that give a container in a guest a NIC of its own: from the pool,
// plugged on demand, or as a VLAN of the guest's trunk NIC.
const (
	Network      = "brfusion"
	ColdNetwork  = "brfusion-cold"
	TrunkNetwork = "brfusion-trunk"
)

// The CNI networks that give containers in several guests one loopback. Each is a segment
// that sends frames to the guest that they are for or, as in the paper, to all guests.
const (
	HostloNetwork      = "hostlo"
	HostloPlainNetwork = "hostlo-plain"
)

// config returns the configuration of a guest without its NICs.
func (f *Fleet) config(o Options, p addresses, c identity.Credentials, dir string) (guest.Config, error) {
	config, err := f.baseConfig(o, dir, p.managementIP, nil,
		guest.Interface{MAC: p.managementMAC, Name: "mgmt", Address: fmt.Sprintf("%s/%d", p.managementIP, lab.ManagementPrefix)},
		guest.Interface{MAC: p.tenantMAC, Name: "eth0", Address: fmt.Sprintf("%s/%d", p.tenantIP, lab.TenantPrefix), Gateway: lab.TenantGateway})
	if err != nil {
		return guest.Config{}, err
	}
	config.Shares, config.Export, config.Emulated, config.CredentialDrive = o.Shares, o.Export, o.Emulated, o.Vouched
	config.VHostPoll = o.VHostPoll
	config.Seed.Files = map[string]string{
		"/etc/unnest/brfusion.json":                             asJSON(brfusion("1.1.0", map[string]any{"name": Network})), // for STATUS
		"/etc/cni/net.d/50-" + Network + ".conflist":            cniConfig(Network, nil),
		"/etc/cni/net.d/51-" + ColdNetwork + ".conflist":        cniConfig(ColdNetwork, map[string]any{"pool": false}),
		"/etc/cni/net.d/52-" + TrunkNetwork + ".conflist":       cniConfig(TrunkNetwork, map[string]any{"mode": "trunk"}),
		"/etc/cni/net.d/53-" + HostloNetwork + ".conflist":      f.hostloConfig(HostloNetwork, segment.Unicast),
		"/etc/cni/net.d/54-" + HostloPlainNetwork + ".conflist": f.hostloConfig(HostloPlainNetwork, segment.Plain),
	}
	if !o.Vouched {
		maps.Copy(config.Seed.Files, map[string]string{
			"/etc/unnest/ca.crt":     string(f.authority.CertificatePEM()),
			"/etc/unnest/client.crt": string(c.CertificatePEM),
			"/etc/unnest/client.key": string(c.KeyPEM),
		})
	}
	if o.Nested != nil {
		config.Disks = guest.NestingDisks(*o.Nested)
	}
	if o.Image.Hypervisor != "" { // the domains of a Xen host have its root file system
		config.Disks = []guest.Disk{guest.RootDisk(o.Image)}
	}
	switch {
	case o.Accel != guest.TCG:
	case o.Image.Hypervisor != "":
		config.CPU = guest.XenCPU
	case o.Nested != nil || o.Nesting:
		config.CPU = guest.NestingCPU
	}
	return config, nil
}

// baseConfig returns the configuration that inner guests have, too. address is that of
// the SSH server.
func (f *Fleet) baseConfig(o Options, dir, address string, nics []guest.NIC, interfaces ...guest.Interface) (guest.Config, error) {
	_, hostKey, err := ed25519.GenerateKey(rand.Reader)
	return guest.Config{
		Name: o.Name, Dir: dir, Arch: o.Image.Arch, Image: o.Image, Accel: o.Accel, VCPUs: o.VCPUs, Memory: o.Memory, Slots: o.Slots,
		Address: net.JoinHostPort(address, "22"), NICs: nics, Progress: f.Progress,
		Seed: guest.Seed{Hostname: o.Name, HostKey: hostKey, Authorized: f.key.PublicKey(), Interfaces: interfaces},
	}, err
}

// cniVersion is the newest version that Debian's CNI plugins support.
const cniVersion = "1.0.0"

// cniConfig returns a network configuration list of the plugin brfusion.
func cniConfig(name string, keys map[string]any) string { return conflist(name, brfusion("", keys)) }

// hostloConfig returns a network configuration list of the plugin hostlo, for the
// segment with the network's name. The containers of the network are fractions of one
// pod, one in each guest.
func (f *Fleet) hostloConfig(name, mode string) string {
	return conflist(name, map[string]any{
		"type": "hostlo", "server": daemonAddress, "credentials": "/etc/unnest",
		"segment": name, "key": f.segmentKey, "mode": mode,
	})
}

func conflist(name string, plugin map[string]any) string {
	return asJSON(map[string]any{"cniVersion": cniVersion, "name": name, "plugins": []map[string]any{plugin}})
}

// brfusion returns the plugin's configuration with additional keys. The plugin declares
// portMappings, ips and mac because it then refuses what it cannot give, and the runtime
// would otherwise ignore it.
func brfusion(version string, keys map[string]any) map[string]any {
	c := map[string]any{
		"type": "brfusion", "server": daemonAddress, "credentials": "/etc/unnest",
		"capabilities": map[string]bool{"bandwidth": true, "ips": true, "mac": true, "portMappings": true},
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
		panic(fmt.Sprintf("marshal configuration: %v", err)) // plain data always marshals
	}
	return string(text) + "\n"
}

// plug opens the TAPs of the guest's two NICs, and of a third one for a guest in it.
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
