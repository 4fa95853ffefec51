package fleet

import (
	"fmt"
	"net"
	"net/netip"

	"unnest.io/unnest/internal/hostd/ipam"
	"unnest.io/unnest/internal/hostd/quota"
	"unnest.io/unnest/internal/hostd/record"
	"unnest.io/unnest/internal/testbed/lab"
)

// maxGuests is the largest number of guests in a lab. There are no more addresses.
const maxGuests = 200

// DaemonPort is the host daemon's port on the management gateway.
const DaemonPort = "7443"

// daemonAddress is the host daemon's address for guests.
var daemonAddress = net.JoinHostPort(lab.ManagementGateway, DaemonPort)

// Tenant is the only tenant of the default policy.
const Tenant = "default"

// The first and the last address of pods on the tenant network. Those of guests are
// lower.
const (
	firstPod = "10.201.1.0"
	lastPod  = "10.201.254.255"
)

// defaultPolicy is the policy of a lab whose guests trust each other.
func defaultPolicy() quota.Config {
	subnet := netip.MustParsePrefix(fmt.Sprintf("%s/%d", lab.TenantGateway, lab.TenantPrefix)).Masked()
	return quota.Config{
		Listen: netip.MustParseAddrPort(daemonAddress), Trunk: true, Pool: quota.DefaultPool,
		Tenants: []quota.Tenant{{
			Name: Tenant, Bridge: lab.TenantBridge, MTU: lab.MTU,
			Ranges: []ipam.Range{{
				Subnet: subnet, First: netip.MustParseAddr(firstPod), Last: netip.MustParseAddr(lastPod),
				Gateway: netip.MustParseAddr(lab.TenantGateway),
			}},
			ClaimRanges: []netip.Prefix{subnet}, ClaimMACs: []string{"02:42"}, Cooldown: quota.DefaultCooldown, Limits: quota.DefaultLimits,
		}},
	}
}

// addresses are the addresses and device names of one guest.
type addresses struct {
	managementIP, managementMAC, managementTAP string
	tenantIP, tenantMAC, tenantTAP             string
	nestedIP, nestedMAC, nestedTAP             string // of a guest in this one
	uplinkMAC                                  string // of this guest's NIC on nestedTAP, which has no address
}

// bootNIC is a NIC that a guest has when it boots, with the address that the host daemon lets it use. Every frame from the TAP of
// an inner guest comes from that guest: the outer one only forwards it.
func bootNIC(tap, mac, ip string) record.BootNIC {
	return record.BootNIC{TAP: tap, MAC: mac, Addresses: []netip.Addr{netip.MustParseAddr(ip)}}
}

func addressesOf(index int) addresses {
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
