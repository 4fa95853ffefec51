package stack

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Network is how a container is reached from outside the machine it runs in.
type Network string

// The networks of a container. Empty means that nobody asks, because what is
// measured does not leave the container.
const (
	HostNetwork   Network = "host"           // the container uses its machine's network
	NAT           Network = "nat"            // a bridge and port forwarding in the container's machine
	BrFusion      Network = "brfusion"       // a NIC of its own, hot-plugged by the VMM (Bacou et al. 2019, §3)
	BrFusionCold  Network = "brfusion-cold"  // the same, always plugged on demand, never taken from a pool
	BrFusionTrunk Network = "brfusion-trunk" // a VLAN of its own on a NIC that the pods of a machine share
)

// The networks between the containers of one pod, only with the drive Pod; NAT can
// be one too (Bacou et al. 2019, §5.1).
const (
	Localhost      Network = "localhost"    // one network namespace: the pod's loopback in one machine
	OverlayNetwork Network = "overlay"      // a VXLAN between two machines, as Docker's overlay driver makes it
	Hostlo         Network = "hostlo"       // a loopback across two machines, which the VMM backs (§4)
	HostloPlain    Network = "hostlo-plain" // the same as in the paper: every frame goes to every machine
)

// Reached reports whether a container on the network is reached at an address of
// its own, not at its machine's.
func (n Network) Reached() bool {
	return n == BrFusion || n == BrFusionCold || n == BrFusionTrunk
}

// known reports whether there is such a network.
func (n Network) known() bool {
	return n == "" || n == HostNetwork || n == NAT || n.Reached() || n.ofPod()
}

// ofPod reports whether the network is one between the containers of a pod only.
func (n Network) ofPod() bool {
	return n == Localhost || n == OverlayNetwork || n == Hostlo || n == HostloPlain
}

// Storage is where a container keeps the files that it works on.
type Storage string

// The storages of a container. Empty is the engine's default, Overlay.
const (
	Overlay Storage = "overlay" // copy-on-write layers over its image, the papers' aufs
	Volume  Storage = "volume"  // a directory of its machine, the papers' mnt
)

// Drive is where the client of a case runs.
type Drive string

// The places of a client. Empty means what the case does by itself: a client
// loads its server from outside, and what needs no client runs where it is.
const (
	Local  Drive = "local"  // beside what is measured
	Remote Drive = "remote" // in another network namespace, or on another host
	Pod    Drive = "pod"    // in another container of the pod that what is measured is part of
)

// Arch is the architecture of a processor, as uname -m says it.
type Arch string

// The architectures of guests. Empty is X8664.
const (
	X8664   Arch = "x86_64"
	S390x   Arch = "s390x"
	AArch64 Arch = "aarch64"
)

// Limits of what a configuration can ask for.
const (
	MaxVCPUs  = 1024
	maxMemory = 1 << 50 // bytes
)

// Configuration is a stack with its options: one column of a result table.
type Configuration struct {
	Name     string // the paper's name, "BrFusion", or the notation when there is none
	Stack    Stack
	Network  Network // only with a container
	Storage  Storage // only with a container
	Drive    Drive
	Arch     Arch   // of every VM, only with one
	VCPUs    int    // of a guest; without one: what a case may use of its machine. 0: as the experiment says
	Memory   int64  // bytes, likewise
	Host     string // of a stack on ssh: its address, see ParseHost
	Identity string // of a stack on ssh: the file of the private key. Empty: what ssh would take
}

// option is one option that is set, as it is written.
type option struct{ key, value string }

// options lists what is set, in the order in which it is written.
func (c Configuration) options() []option {
	set := []option{
		{"network", string(c.Network)}, {"storage", string(c.Storage)}, {"drive", string(c.Drive)}, {"arch", string(c.Arch)},
	}
	if c.VCPUs != 0 {
		set = append(set, option{"vcpus", strconv.Itoa(c.VCPUs)})
	}
	if c.Memory != 0 {
		set = append(set, option{"memory", FormatBytes(c.Memory)})
	}
	set = append(set, option{"host", c.Host}, option{"identity", c.Identity})
	return slices.DeleteFunc(set, func(o option) bool { return o.value == "" })
}

// Notation returns the configuration without its name:
// "vm/containerd:network=brfusion".
func (c Configuration) Notation() string {
	var written []string
	for _, o := range c.options() {
		written = append(written, o.key+"="+o.value)
	}
	if len(written) == 0 {
		return c.Stack.String()
	}
	return c.Stack.String() + ":" + strings.Join(written, ",")
}

// String returns the notation, after the name and "=" when they differ.
func (c Configuration) String() string {
	if notation := c.Notation(); notation != c.Name {
		return c.Name + "=" + notation
	}
	return c.Name
}

// Options returns the options that are set, by their key, as they are written.
func (c Configuration) Options() map[string]string {
	options := map[string]string{}
	for _, o := range c.options() {
		options[o.key] = o.value
	}
	return options
}

// Architecture returns the architecture of the guests, which is X8664 unless Arch
// says otherwise.
func (c Configuration) Architecture() Arch { return cmp.Or(c.Arch, X8664) }

// Level returns the degree of virtualization, see Stack.Level.
func (c Configuration) Level() int { return c.Stack.Level() }

// Split reports whether the configuration is a pod whose containers are on two
// machines.
func (c Configuration) Split() bool { return c.Drive == Pod && c.Network != Localhost }

// Describe says the configuration in plain words.
func (c Configuration) Describe() string {
	words := c.Stack.Describe()
	switch c.Network {
	case HostNetwork:
		words += ", on its machine's network"
	case NAT:
		words += ", behind a bridge and NAT"
	case BrFusion:
		words += ", with a NIC of its own from the VMM"
	case BrFusionCold:
		words += ", with a NIC of its own that the VMM plugs on demand"
	case BrFusionTrunk:
		words += ", with a VLAN of its own on a NIC from the VMM"
	case Localhost:
		words += ", on its pod's loopback"
	case OverlayNetwork:
		words += ", on a VXLAN overlay"
	case Hostlo:
		words += ", on its pod's loopback, which the VMM backs"
	case HostloPlain:
		words += ", on its pod's loopback, which the VMM backs by sending all frames to all"
	}
	switch c.Storage {
	case Overlay:
		words += ", files in layers over its image"
	case Volume:
		words += ", files in a mounted directory"
	}
	switch c.Drive {
	case Local:
		words += ", driven locally"
	case Remote:
		words += ", driven from outside"
	case Pod:
		words += ", driven from another container of its pod"
	}
	if c.Split() {
		words += " in another VM"
	}
	if c.Arch != "" {
		words += ", on " + string(c.Arch)
	}
	return words + c.describeSize()
}

func (c Configuration) describeSize() string {
	words := ""
	switch {
	case c.VCPUs == 1:
		words += ", 1 vCPU"
	case c.VCPUs != 0:
		words += fmt.Sprintf(", %d vCPUs", c.VCPUs)
	}
	if c.Memory != 0 {
		words += ", " + FormatBytes(c.Memory) + " of memory"
	}
	if c.Host != "" {
		words += ", at " + c.Host
	}
	if c.Identity != "" {
		words += ", by the key " + c.Identity
	}
	return words
}
