package stack

import "slices"

// named are the configurations that the papers name and that stand on our
// container engine. The papers' containers are Docker's.
var named = []Configuration{
	{Name: "NoCont", Stack: Stack{VM}},
	{Name: "NAT", Stack: Stack{VM, Containerd}, Network: NAT},
	{Name: "BrFusion", Stack: Stack{VM, Containerd}, Network: BrFusion},
	{Name: "SameNode", Stack: Stack{VM, Containerd}, Network: Localhost, Drive: Pod},
	{Name: "Overlay", Stack: Stack{VM, Containerd}, Network: OverlayNetwork, Drive: Pod},
	{Name: "Hostlo", Stack: Stack{VM, Containerd}, Network: Hostlo, Drive: Pod},
	{Name: "L0", Stack: Stack{Metal}},
	{Name: "L1", Stack: Stack{VM}},
	{Name: "L2", Stack: Stack{VM, VM}},

	{Name: "metal.local", Stack: Stack{Metal}, Drive: Local},
	{Name: "metal.remote", Stack: Stack{Metal}, Drive: Remote},
	{Name: "metal.aufs", Stack: Stack{Metal, Containerd}, Storage: Overlay, Drive: Local},
	{Name: "metal.mnt", Stack: Stack{Metal, Containerd}, Storage: Volume, Drive: Local},
	{Name: "metal.aufs.nat", Stack: Stack{Metal, Containerd}, Network: NAT, Storage: Overlay, Drive: Remote},
	{Name: "metal.aufs.host", Stack: Stack{Metal, Containerd}, Network: HostNetwork, Storage: Overlay, Drive: Remote},
	{Name: "metal.mnt.nat", Stack: Stack{Metal, Containerd}, Network: NAT, Storage: Volume, Drive: Remote},
	{Name: "metal.mnt.host", Stack: Stack{Metal, Containerd}, Network: HostNetwork, Storage: Volume, Drive: Remote},
	{Name: "vm.local", Stack: Stack{VM}, Drive: Local},
	{Name: "vm.remote", Stack: Stack{VM}, Drive: Remote},
	{Name: "vm.aufs", Stack: Stack{VM, Containerd}, Storage: Overlay, Drive: Local},
	{Name: "vm.mnt", Stack: Stack{VM, Containerd}, Storage: Volume, Drive: Local},
	{Name: "vm.aufs.nat", Stack: Stack{VM, Containerd}, Network: NAT, Storage: Overlay, Drive: Remote},
	{Name: "vm.aufs.host", Stack: Stack{VM, Containerd}, Network: HostNetwork, Storage: Overlay, Drive: Remote},
	{Name: "vm.mnt.nat", Stack: Stack{VM, Containerd}, Network: NAT, Storage: Volume, Drive: Remote},
	{Name: "vm.mnt.host", Stack: Stack{VM, Containerd}, Network: HostNetwork, Storage: Volume, Drive: Remote},
}

// Named returns the configuration that a paper gave this name: NoCont, NAT,
// BrFusion, SameNode, Overlay and Hostlo (Bacou et al. 2019, §5.1, where NAT beside
// the last three has drive Pod), L0, L1 and L2 (FitzGerald 2014, §2.3), and
// the 16 of Lubomski et al. (§3.1, Table 1), (metal|vm).(local|remote|aufs|mnt|
// aufs.nat|aufs.host|mnt.nat|mnt.host), of which .local, .aufs and .mnt are driven
// locally, the others from outside (Table 7).
func Named(name string) (Configuration, bool) {
	for _, c := range named {
		if c.Name == name {
			c.Stack = slices.Clone(c.Stack)
			return c, true
		}
	}
	return Configuration{}, false
}
