package vlan

import (
	"errors"
	"fmt"
)

// MaxVLAN is the highest VLAN of a port (IEEE 802.1Q, table 9-2: 0 is none, 4095
// is reserved); 1 is the lowest.
const MaxVLAN = 4094

// ErrNoVLAN says that a trunk has no VLAN left.
var ErrNoVLAN = errors.New("all VLANs of the trunk are in use")

// NextVLAN chooses the VLAN of a new port: the first after last, round robin,
// that is not used, or ErrNoVLAN. last is the one chosen before, 0 at first. So a
// VLAN rests as long as possible after its pod has gone, and what is left of that
// pod in the guest does not meet a new one.
func NextVLAN(last int, used func(vlan int) bool) (int, error) {
	for i := range MaxVLAN {
		if vlan := (last+i)%MaxVLAN + 1; !used(vlan) {
			return vlan, nil
		}
	}
	return 0, ErrNoVLAN
}

// MAC is the address of a VLAN's pod, for the guest with the given MAC prefix.
// Its fourth byte is 0, which is no slot of a hot-plugged NIC.
func MAC(prefix [3]byte, vlan int) string {
	return fmt.Sprintf("%02x:%02x:%02x:00:%02x:%02x", prefix[0], prefix[1], prefix[2], byte(vlan>>8), byte(vlan))
}
