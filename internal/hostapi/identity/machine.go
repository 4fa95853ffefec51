package identity

import (
	"net"
	"slices"
	"strings"

	"google.golang.org/grpc/metadata"
)

// machineKey is the key of a request's metadata under which a guest says the MAC addresses of its NICs. So the daemon
// refuses a clone of a guest, which has its credentials, at once; a guest that lies harms itself only.
const machineKey = "unnest-machine"

// maxMachine is how many addresses count.
const maxMachine = 32

// MachineMetadata is the metadata of the requests of a machine with NICs of these addresses. Both are in lower case.
func MachineMetadata(macs []string) metadata.MD {
	return metadata.MD{machineKey: macs[:min(len(macs), maxMachine)]}
}

// Machine returns the MAC addresses that the metadata of a request says, sorted. None: the client is too old, or knows none.
func Machine(m metadata.MD) (macs []string) {
	all := m.Get(machineKey)
	for _, text := range all[:min(len(all), maxMachine)] {
		if mac, err := net.ParseMAC(text); err == nil {
			macs = append(macs, strings.ToLower(mac.String()))
		}
	}
	slices.Sort(macs)
	return slices.Compact(macs)
}
