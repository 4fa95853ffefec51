package qemu

import (
	"context"

	"unnest.io/unnest/internal/vmm"
)

// OwnNICs lists the NICs on TAPs that QEMU has opened by name.
func (v *VMM) OwnNICs(ctx context.Context) ([]vmm.NIC, error) {
	taps, err := v.client.TAPs(ctx)
	if err != nil || len(taps) == 0 {
		return nil, err
	}
	all, err := v.client.NICs(ctx)
	if err != nil {
		return nil, err
	}
	var nics []vmm.NIC
	for _, n := range all {
		if tap, ok := taps[n.Netdev]; ok {
			nics = append(nics, vmm.NIC{TAP: tap, MAC: n.MAC})
		}
	}
	return nics, nil
}
