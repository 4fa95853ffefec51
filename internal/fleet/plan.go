package fleet

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"

	"unnest/internal/guest"
	"unnest/internal/identity"
	"unnest/internal/lab"
	"unnest/internal/tap"
)

// maxGuests is how many guests the network plan has addresses for.
const maxGuests = 200

// DaemonPort is where the host daemon listens on the management gateway.
const DaemonPort = "7443"

// daemonAddress is where guests find the host daemon.
var daemonAddress = net.JoinHostPort(lab.ManagementGateway, DaemonPort)

// Network is the name of the CNI network by which a container in a guest gets a
// NIC of its own.
const Network = "brfusion"

// addresses are a guest's own part of the network plan.
type addresses struct {
	managementIP, managementMAC, managementTAP string
	tenantIP, tenantMAC, tenantTAP             string
	podFirst, podLast                          string // the range of its pods' addresses
}

// plan returns the addresses of the guest of the given index. Pods' addresses
// are on the tenant network too, since their NICs are on its bridge.
func plan(index int) addresses {
	return addresses{
		managementIP:  fmt.Sprintf("10.200.0.%d", index+1),
		managementMAC: fmt.Sprintf("52:54:00:c8:00:%02x", index),
		managementTAP: fmt.Sprintf("g%dmgmt", index),
		tenantIP:      fmt.Sprintf("10.201.0.%d", index+1),
		tenantMAC:     fmt.Sprintf("52:54:00:c9:00:%02x", index),
		tenantTAP:     fmt.Sprintf("g%dtenant", index),
		podFirst:      fmt.Sprintf("10.201.%d.1", index),
		podLast:       fmt.Sprintf("10.201.%d.254", index),
	}
}

// config returns the guest's configuration, without its NICs.
func (f *Fleet) config(o Options, p addresses, c identity.Credentials, dir string) (guest.Config, error) {
	_, hostKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return guest.Config{}, err
	}
	return guest.Config{
		Name: o.Name, Dir: dir, Image: o.Image, Accel: o.Accel, VCPUs: o.VCPUs, Memory: o.Memory, Slots: o.Slots,
		Address: net.JoinHostPort(p.managementIP, "22"),
		Seed: guest.Seed{
			Hostname: o.Name, HostKey: hostKey, Authorized: f.key.PublicKey(),
			Interfaces: []guest.Interface{
				{MAC: p.managementMAC, Name: "mgmt", Address: fmt.Sprintf("%s/%d", p.managementIP, lab.ManagementPrefix)},
				{MAC: p.tenantMAC, Name: "eth0", Address: fmt.Sprintf("%s/%d", p.tenantIP, lab.TenantPrefix), Gateway: lab.TenantGateway},
			},
			Files: map[string]string{
				"/etc/unnest/ca.crt":                         string(f.authority.CertificatePEM()),
				"/etc/unnest/client.crt":                     string(c.CertificatePEM),
				"/etc/unnest/client.key":                     string(c.KeyPEM),
				"/etc/cni/net.d/50-" + Network + ".conflist": cniConfig(p),
			},
		},
	}, nil
}

// cniConfig returns the network configuration list for a guest's container
// engine.
func cniConfig(p addresses) string {
	type object = map[string]any
	tenant := fmt.Sprintf("%s/%d", lab.TenantGateway, lab.TenantPrefix)
	_, subnet, err := net.ParseCIDR(tenant)
	if err != nil {
		panic(fmt.Sprintf("network plan: %v", err))
	}
	list, err := json.MarshalIndent(object{
		"cniVersion": "1.0.0",
		"name":       Network,
		"plugins": []object{{
			"type":        "brfusion",
			"server":      daemonAddress,
			"credentials": "/etc/unnest",
			"ipam": object{
				"type": "host-local",
				"ranges": [][]object{{{
					"subnet": subnet.String(), "rangeStart": p.podFirst, "rangeEnd": p.podLast, "gateway": lab.TenantGateway,
				}}},
				"routes": []object{{"dst": "0.0.0.0/0"}},
			},
		}},
	}, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("network plan: %v", err)) // plain data always marshals
	}
	return string(list) + "\n"
}

// plug opens the TAPs of the guest's two NICs.
func (f *Fleet) plug(c *guest.Config, p addresses) error {
	return lab.Do(f.Lab.HostNS(), func() error {
		for _, d := range []struct{ tap, bridge, mac string }{
			{p.managementTAP, lab.ManagementBridge, p.managementMAC},
			{p.tenantTAP, lab.TenantBridge, p.tenantMAC},
		} {
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
