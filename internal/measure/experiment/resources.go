package experiment

import (
	"cmp"
	"fmt"

	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/suite"
)

// Overcommit is a way to size nested machines (FitzGerald 2014, §2.4).
type Overcommit string

// The ways to size nested machines.
const (
	// Full gives each level all vCPUs and memory of the guest, so they are overcommitted.
	Full Overcommit = "full"
	// Reserved keeps one vCPU and 2 GiB of memory for each hypervisor: of 4 vCPUs
	// and 16 GiB, L1 has 3 and 14 GiB, L2 has 2 and 12 GiB. In a guest below 16 GiB a
	// hypervisor keeps an eighth, in whole MiB.
	Reserved Overcommit = "reserved"
)

// What a hypervisor keeps under Reserved.
const (
	keptVCPUs  = 1
	keptMemory = 2 << 30 // bytes, at most
	keptShare  = 8       // of the memory of the guest, the divisor
)

// Machines returns the resources of the machine of each level of c, from the host's
// level 0 up. Those of the host limit its cases, so that L0 does the same work as the
// levels above; the host itself is not limited. It fails when nothing is left for a
// level.
func (s *Spec) Machines(c stack.Configuration) ([]suite.Resources, error) {
	whole := suite.Resources{VCPUs: cmp.Or(c.VCPUs, s.Guest.VCPUs), Memory: cmp.Or(c.Memory, s.Guest.Memory)}
	machines := []suite.Resources{whole}
	for level := 1; level <= c.Level(); level++ {
		m := whole
		if s.Overcommit == Reserved {
			kept := keptOf(whole.Memory)
			m.VCPUs -= level * keptVCPUs
			m.Memory -= int64(level) * kept
			if m.VCPUs < 1 || m.Memory <= 0 {
				return nil, fmt.Errorf("overcommit reserved leaves nothing for level %d of stack %s: each hypervisor below keeps %d vCPU and %s, and the guest has vcpus %d and memory %s: raise them, or use overcommit full",
					level, c.Stack, keptVCPUs, stack.FormatBytes(kept), whole.VCPUs, stack.FormatBytes(whole.Memory))
			}
		}
		machines = append(machines, m)
	}
	return machines, nil
}

// keptOf returns the memory that a hypervisor keeps in a guest with this memory.
func keptOf(memory int64) int64 {
	const mebibyte = 1 << 20
	return min(keptMemory, memory/keptShare/mebibyte*mebibyte)
}

// Resources returns the resources of the innermost machine of c, which its cases use.
func (s *Spec) Resources(c stack.Configuration) (suite.Resources, error) {
	machines, err := s.Machines(c)
	if err != nil {
		return suite.Resources{}, err
	}
	return machines[len(machines)-1], nil
}
