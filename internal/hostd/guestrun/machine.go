package guestrun

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// ErrMachine is the error of a request that another machine has sent with the guest's credentials.
var ErrMachine = errors.New("this machine is another one: give it credentials of its own by unnest hostd enroll, under a name of its own")

// machineInterval is the time between two questions to the VMM which NICs the guest has.
const machineInterval = 10 * time.Second

// machineNICs are the MAC addresses of the NICs that the guest has from its start, in lower case, as the configuration and the VMM
// say.
type machineNICs struct {
	macs  []string
	asked time.Time
}

// CheckMachine returns an error that wraps ErrMachine if a machine whose NICs have these addresses, in lower case, is
// not the guest: it has none of the guest's NICs. It cannot tell if the machine says none, or nobody knows those of the guest.
func (g *Guest) CheckMachine(ctx context.Context, macs []string) error {
	if len(macs) == 0 || g.isMachine(g.machine.Load(), macs) {
		return nil
	}
	known, err := call(ctx, g, func(ctx context.Context, answer func(*machineNICs, error)) { answer(g.findMachine(ctx), nil) })
	if err != nil || len(known.macs) == 0 || g.isMachine(known, macs) {
		return err
	}
	return fmt.Errorf("the credentials are those of guest %s, whose NICs have the addresses %s, and they came from a machine with %s: %w",
		g.Record.Name, strings.Join(known.macs, ", "), strings.Join(macs, ", "), ErrMachine)
}

// isMachine reports whether one of the addresses is that of a NIC of the guest. Those of its pods' NICs are not in
// the guest of another index.
func (g *Guest) isMachine(known *machineNICs, macs []string) bool {
	p := g.Record.MACPrefix()
	ours := fmt.Sprintf("%02x:%02x:%02x:", p[0], p[1], p[2])
	return slices.ContainsFunc(macs, func(mac string) bool {
		return strings.HasPrefix(mac, ours) || known != nil && slices.Contains(known.macs, mac)
	})
}

// findMachine asks for the NICs of the guest, unless it has just been told.
func (g *Guest) findMachine(ctx context.Context) *machineNICs {
	if known := g.machine.Load(); known != nil && time.Since(known.asked) < machineInterval {
		return known
	}
	ctx, cancel := context.WithTimeout(ctx, vmmTime)
	defer cancel()
	found := &machineNICs{asked: time.Now()}
	own, err := g.vmm.OwnNICs(ctx)
	if err != nil {
		g.log.Warn("find the guest's own NICs: a clone of the guest is not told from it", "error", err)
		g.machine.Store(found)
		return found
	}
	for _, n := range own {
		found.macs = append(found.macs, strings.ToLower(n.MAC))
	}
	for _, n := range g.Record.NICs {
		if n.MAC != "" {
			found.macs = append(found.macs, strings.ToLower(n.MAC))
		}
	}
	slices.Sort(found.macs)
	found.macs = slices.Compact(found.macs)
	g.machine.Store(found)
	return found
}
