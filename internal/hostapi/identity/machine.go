package identity

import (
	"context"
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

// bootKey is the key under which a guest says the boot ID of its kernel. bootLength is that of one.
const (
	bootKey    = "unnest-boot"
	bootLength = 36
)

// MachineMetadata is the metadata of the requests of a machine with NICs of these addresses, and with a boot ID; "": not known. All are in
// lower case.
func MachineMetadata(macs []string, boot string) metadata.MD {
	m := metadata.MD{machineKey: macs[:min(len(macs), maxMachine)]}
	if boot != "" {
		m.Set(bootKey, boot)
	}
	return m
}

// Boot returns the boot ID that the request of a context says; "": none.
func Boot(ctx context.Context) string {
	if said := metadata.ValueFromIncomingContext(ctx, bootKey); len(said) == 1 && len(said[0]) == bootLength {
		return said[0]
	}
	return ""
}

// Machine returns the MAC addresses that the request of a context says, sorted. None: the client is too old, or knows none.
func Machine(ctx context.Context) (macs []string) {
	all := metadata.ValueFromIncomingContext(ctx, machineKey)
	for _, text := range all[:min(len(all), maxMachine)] {
		if mac, err := net.ParseMAC(text); err == nil {
			macs = append(macs, strings.ToLower(mac.String()))
		}
	}
	slices.Sort(macs)
	return slices.Compact(macs)
}
