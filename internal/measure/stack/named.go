package stack

import "slices"

// named are the configurations that the papers name, with containers of containerd instead
// of Docker, and those with Docker's own networks.
var named = append(lubomski(), []Configuration{
	{Name: "NoCont", Stack: Stack{VM}},
	{Name: "NAT", Stack: Stack{VM, Containerd}, Network: NAT},
	{Name: "BrFusion", Stack: Stack{VM, Containerd}, Network: BrFusion},
	{Name: "SameNode", Stack: Stack{VM, Containerd}, Network: Localhost, Drive: Pod},
	{Name: "Overlay", Stack: Stack{VM, Containerd}, Network: OverlayNetwork, Drive: Pod},
	{Name: "DockerNAT", Stack: Stack{VM, Docker}, Network: NAT},
	{Name: "DockerOverlay", Stack: Stack{VM, Docker}, Network: DockerOverlay, Drive: Pod},
	{Name: "Hostlo", Stack: Stack{VM, Containerd}, Network: Hostlo, Drive: Pod},
	{Name: "L0", Stack: Stack{Metal}},
	{Name: "L1", Stack: Stack{VM}},
	{Name: "L2", Stack: Stack{VM, VM}},
}...)

// lubomski returns the 16 configurations of Lubomski et al., Table 1.
func lubomski() (all []Configuration) {
	for _, machine := range []Layer{Metal, VM} {
		add := func(name string, c Configuration) {
			c.Name, c.Stack = string(machine)+"."+name, Stack{machine}
			if c.Storage != "" {
				c.Stack = Stack{machine, Containerd}
			}
			all = append(all, c)
		}
		add("local", Configuration{Drive: Local})
		add("remote", Configuration{Drive: Remote})
		for name, storage := range map[string]Storage{"aufs": Overlay, "mnt": Volume} {
			add(name, Configuration{Storage: storage, Drive: Local})
			add(name+".nat", Configuration{Network: NAT, Storage: storage, Drive: Remote})
			add(name+".host", Configuration{Network: HostNetwork, Storage: storage, Drive: Remote})
		}
	}
	return all
}

// Named returns the configuration with a name of the papers: NoCont, NAT, BrFusion,
// SameNode, Overlay and Hostlo (Bacou et al. 2019, §5.1, where NAT has drive Pod when
// compared with the last three), DockerNAT and DockerOverlay, which are NAT and Overlay by Docker itself, L0, L1 and L2 (FitzGerald 2014, §2.3), and the 16 of
// Lubomski et al. (§3.1, Table 1), (metal|vm).(local|remote|aufs|mnt|aufs.nat|aufs.host|
// mnt.nat|mnt.host), of which .local, .aufs and .mnt are driven locally, the others from
// outside (Table 7).
func Named(name string) (Configuration, bool) {
	for _, c := range named {
		if c.Name == name {
			c.Stack = slices.Clone(c.Stack)
			return c, true
		}
	}
	return Configuration{}, false
}
