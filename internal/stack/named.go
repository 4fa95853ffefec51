package stack

import "slices"

// named are the configurations that the papers name and that stand on our
// container engine. The papers' containers are Docker's.
var named = []Configuration{
	{Name: "NoCont", Stack: Stack{VM}},
	{Name: "NAT", Stack: Stack{VM, Containerd}, Network: NAT},
	{Name: "BrFusion", Stack: Stack{VM, Containerd}, Network: BrFusion},
	{Name: "L0", Stack: Stack{Metal}},
	{Name: "L1", Stack: Stack{VM}},
	{Name: "L2", Stack: Stack{VM, VM}},
}

// Named returns the configuration that a paper gave this name: NoCont, NAT and
// BrFusion (Bacou et al. 2019, §5.1), L0, L1 and L2 (levels of nested VMs).
func Named(name string) (Configuration, bool) {
	for _, c := range named {
		if c.Name == name {
			c.Stack = slices.Clone(c.Stack)
			return c, true
		}
	}
	return Configuration{}, false
}
