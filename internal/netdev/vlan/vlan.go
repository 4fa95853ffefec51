// Package vlan is the host's side of trunk mode, in which pods have no NIC of their
// own, but a VLAN each on one NIC of the guest, the trunk. Each VLAN has a port,
// which the caller adds to the tenant's bridge.
//
// A port is a pair of veths. The outer end is the caller's: bridge, filter,
// bandwidth and alias are set on it as on the TAP of a pod with its own NIC. The
// inner end is connected to the trunk's TAP by eBPF programs at the ingress of both,
// which add and remove the VLAN tag. The kernel needs neither 802.1Q nor bridges
// with VLAN filtering. A frame without the tag of a port, or with a second tag, is
// dropped before the host's network stack sees it.
//
// Making the TAP, choosing who may have a port, and filtering do not belong here.
// All functions work on the network namespace of the calling thread.
package vlan

import (
	"errors"
	"fmt"
)

// MaxVLAN is the highest VLAN of a port (IEEE 802.1Q, table 9-2: 0 means no VLAN,
// 4095 is reserved); 1 is the lowest.
const MaxVLAN = 4094

// ErrNoVLAN says that a trunk has no free VLAN.
var ErrNoVLAN = errors.New("all VLANs of the trunk are in use")

// NextVLAN returns the VLAN of a new port: the first unused one after last, round
// robin, or ErrNoVLAN. last is the VLAN chosen before, 0 at first. Round robin
// delays the reuse of a VLAN, for which the guest may still hold state.
func NextVLAN(last int, used func(vlan int) bool) (int, error) {
	for i := range MaxVLAN {
		if vlan := (last+i)%MaxVLAN + 1; !used(vlan) {
			return vlan, nil
		}
	}
	return 0, ErrNoVLAN
}

// MAC returns the address of a VLAN's pod in the guest with the MAC prefix. Its fourth
// byte is 0, which is not the slot of a hot-plugged NIC.
func MAC(prefix [3]byte, vlan int) string {
	return fmt.Sprintf("%02x:%02x:%02x:00:%02x:%02x", prefix[0], prefix[1], prefix[2], byte(vlan>>8), byte(vlan))
}
