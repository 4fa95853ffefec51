package experiment

import (
	"fmt"

	"unnest/internal/measure/stack"
	"unnest/internal/measure/suite"
)

// Overcommit says what nested machines leave to the hypervisors below them.
type Overcommit string

// The ways to size nested machines (FitzGerald 2014, §2.4).
const (
	// Full gives each level all vCPUs and memory of the guest: with every level
	// busy, they are promised several times.
	Full Overcommit = "full"
	// Reserved leaves one vCPU and 2 GiB of memory to each hypervisor: of 4 vCPUs
	// and 16 GiB, L1 has 3 and 14 GiB, L2 has 2 and 12 GiB. Of a guest below
	// 16 GiB a hypervisor keeps the same share, an eighth, in whole MiB.
	Reserved Overcommit = "reserved"
)

// What a hypervisor keeps of its machine under Reserved.
const (
	keptVCPUs  = 1
	keptMemory = 2 << 30 // bytes, at most
	keptShare  = 8       // of the memory of the guest, the divisor
)

// Machines returns what the machine of each level of c has, from the host's level
// 0 up. That of the host is what its cases may use, so that L0 does the same work
// as the levels above; nothing is taken from the host. It fails when nothing would
// be left for a level.
func (s *Spec) Machines(c stack.Configuration) ([]suite.Resources, error) {
	whole := suite.Resources{VCPUs: s.Guest.VCPUs, Memory: s.Guest.Memory}
	if c.VCPUs > 0 {
		whole.VCPUs = c.VCPUs
	}
	if c.Memory > 0 {
		whole.Memory = c.Memory
	}
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

// keptOf returns the memory that a hypervisor keeps of a guest of this size.
func keptOf(memory int64) int64 {
	const mebibyte = 1 << 20
	return min(keptMemory, memory/keptShare/mebibyte*mebibyte)
}

// Resources returns what the innermost machine of c has: what its cases may use.
func (s *Spec) Resources(c stack.Configuration) (suite.Resources, error) {
	machines, err := s.Machines(c)
	if err != nil {
		return suite.Resources{}, err
	}
	return machines[len(machines)-1], nil
}
