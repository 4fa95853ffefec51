package stack

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Network is the way to reach a container from outside its machine.
type Network string

// The networks of a container. Empty means that the measured work does not use one.
const (
	HostNetwork   Network = "host"           // the container uses its machine's network
	NAT           Network = "nat"            // a bridge and port forwarding in the container's machine
	DockerBridge  Network = "docker-bridge"  // the same on a network that a user of Docker makes: with Docker's DNS
	BrFusion      Network = "brfusion"       // its own NIC, hot-plugged by the VMM (Bacou et al. 2019, §3)
	BrFusionCold  Network = "brfusion-cold"  // the same, always plugged on demand, never taken from a pool
	BrFusionTrunk Network = "brfusion-trunk" // its own VLAN on a NIC that the pods of a machine share
)

// The networks between the containers of one pod, which need drive Pod. NAT can be used
// with it too (Bacou et al. 2019, §5.1).
const (
	Localhost      Network = "localhost"      // one network namespace: the pod's loopback in one machine
	OverlayNetwork Network = "overlay"        // a VXLAN between two machines, like that of Docker's overlay driver
	Hostlo         Network = "hostlo"         // a loopback across two machines, provided by the VMM (§4)
	HostloPlain    Network = "hostlo-plain"   // the same as in the paper: every frame goes to every machine
	HostloNetwork  Network = "hostlo-network" // the same without the VMM: a tunnel between two machines
	DockerOverlay  Network = "docker-overlay" // Docker's overlay driver, in a swarm of two machines
)

// The networks of a pod of a cluster, besides HostNetwork and BrFusion.
const (
	PodNetwork Network = "pod"     // that of a pod without a RuntimeClass
	Service    Network = "service" // the same, reached at the address of a Service
)

// Reached reports whether a container on the network has its own address.
func (n Network) Reached() bool {
	return n == BrFusion || n == BrFusionCold || n == BrFusionTrunk
}

func (n Network) known() bool { return n == "" || networks[n] != "" }

// OfCluster reports whether a pod of a cluster can have the network.
func (n Network) OfCluster() bool {
	return n == HostNetwork || n == BrFusion || n == PodNetwork || n == Service
}

// ofPod reports whether the network is only between the containers of a pod.
func (n Network) ofPod() bool {
	return n == Localhost || n == OverlayNetwork || n == DockerOverlay || n == Hostlo || n == HostloPlain || n == HostloNetwork
}

// Storage is the place of a container's working files.
type Storage string

// The storages of a container. Empty is the engine's default, Overlay.
const (
	Overlay Storage = "overlay" // copy-on-write layers over its image, aufs in the papers
	Volume  Storage = "volume"  // a directory of its machine, mnt in the papers
)

// Drive is the place of the client of a case.
type Drive string

// The places of a client. Empty is the default of the case: outside if it has a client,
// else local.
const (
	Local  Drive = "local"  // in the measured configuration
	Remote Drive = "remote" // in another network namespace, or on another host
	Pod    Drive = "pod"    // in another container of the measured pod
)

// Start is how the guests of a configuration begin.
type Start string

// The starts of guests. With one of them, the configuration has guests of its own. Empty is the
// way that the run chooses, in guests that configurations share.
const (
	Booted   Start = "booted"
	Restored Start = "restored" // from a snapshot
)

// Arch is the architecture of a processor, as printed by uname -m.
type Arch string

// The architectures of guests. Empty is X8664.
const (
	X8664   Arch = "x86_64"
	S390x   Arch = "s390x"
	AArch64 Arch = "aarch64"
)

// Release is a release of Debian, by its code name.
type Release string

// The releases of guests. Empty is Bookworm.
const (
	Bookworm Release = "bookworm" // Debian 12
	Trixie   Release = "trixie"   // Debian 13
)

// Limits of a configuration. MaxVHostPoll and MaxQueues are also those of the host daemon.
const (
	MaxVCPUs     = 1024
	MaxVHostPoll = 10 * time.Millisecond
	MaxQueues    = 16
	maxMemory    = 1 << 50 // bytes
)

// Configuration is a stack with its options: one column of a result table.
type Configuration struct {
	Name    string // the paper's name, such as "BrFusion", or the notation
	Stack   Stack
	Network Network // only with a container
	Storage Storage // only with a container
	Drive   Drive
	Start   Start   // of its VMs, only with one
	Arch    Arch    // of every VM, only with one
	Release Release // likewise
	VCPUs   int     // of the guest, or usable by a case without guest. 0: as in the experiment
	Memory  int64   // bytes, likewise
	// VHostPoll is how long vhost-net polls for the next frame of each NIC of the VMs, in whole
	// microseconds. The configuration then has VMs of its own. 0: not at all.
	VHostPoll time.Duration
	// Queues is how many pairs of queues the NICs of the containers have. The configuration then has VMs of its own. 0: one.
	Queues   int
	Host     string // address of a stack on ssh, see ParseHost
	Identity string // private key file of a stack on ssh. Empty: ssh's default

	// Domains run next to each other, each with the stack of its type. Stack is that of the
	// first one. Nil: the configuration is a single stack.
	Domains []Domain
}

type option struct{ key, value string }

// options lists the options that are set, in the order of the notation.
func (c Configuration) options() []option {
	set := []option{
		{"network", string(c.Network)}, {"storage", string(c.Storage)}, {"drive", string(c.Drive)},
		{"start", string(c.Start)}, {"arch", string(c.Arch)}, {"release", string(c.Release)},
	}
	if c.VCPUs != 0 {
		set = append(set, option{"vcpus", strconv.Itoa(c.VCPUs)})
	}
	if c.Memory != 0 {
		set = append(set, option{"memory", FormatBytes(c.Memory)})
	}
	if c.VHostPoll != 0 {
		set = append(set, option{"vhost_poll", c.VHostPoll.String()})
	}
	if c.Queues != 0 {
		set = append(set, option{"queues", strconv.Itoa(c.Queues)})
	}
	set = append(set, option{"host", c.Host}, option{"identity", c.Identity}, option{"domains", c.domainNotation()})
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

// String returns the notation, preceded by the name and "=" if they differ.
func (c Configuration) String() string {
	if notation := c.Notation(); notation != c.Name {
		return c.Name + "=" + notation
	}
	return c.Name
}

// Options returns the options that are set, by their key.
func (c Configuration) Options() map[string]string {
	options := map[string]string{}
	for _, o := range c.options() {
		options[o.key] = o.value
	}
	return options
}

// Architecture returns the architecture of the guests, by default X8664.
func (c Configuration) Architecture() Arch { return cmp.Or(c.Arch, X8664) }

// Level returns the degree of virtualization, see Stack.Level.
func (c Configuration) Level() int { return c.Stack.Level() }

// Split reports whether the configuration is a pod with containers on two machines.
func (c Configuration) Split() bool { return c.Drive == Pod && c.Network != Localhost }

// The descriptions of options.
var (
	networks = map[Network]string{
		HostNetwork:    ", on its machine's network",
		NAT:            ", behind a bridge and NAT",
		DockerBridge:   ", behind a bridge of docker network create and NAT",
		BrFusion:       ", with a NIC of its own from the VMM",
		BrFusionCold:   ", with a NIC of its own that the VMM plugs on demand",
		BrFusionTrunk:  ", with a VLAN of its own on a NIC from the VMM",
		Localhost:      ", on its pod's loopback",
		OverlayNetwork: ", on a VXLAN overlay",
		DockerOverlay:  ", on Docker's overlay network",
		Hostlo:         ", on its pod's loopback, which the VMM backs",
		PodNetwork:     ", on the network of pods",
		Service:        ", on the network of pods, reached by a Service",
		HostloPlain:    ", on its pod's loopback, which the VMM backs by sending all frames to all",
		HostloNetwork:  ", on its pod's loopback, which a tunnel between the VMs backs",
	}
	storages = map[Storage]string{Overlay: ", files in layers over its image", Volume: ", files in a mounted directory"}
	drives   = map[Drive]string{
		Local: ", driven locally", Remote: ", driven from outside", Pod: ", driven from another container of its pod",
	}
	starts = map[Start]string{Booted: ", the VM booted for it alone", Restored: ", the VM restored from a snapshot for it alone"}
)

// Describe describes the configuration. Run directories contain the description, so it
// does not change.
func (c Configuration) Describe() string {
	words := c.Stack.Describe()
	if len(c.Domains) > 0 {
		words = c.describeDomains()
	}
	words += networks[c.Network] + storages[c.Storage] + drives[c.Drive]
	if c.Split() {
		words += " in another VM"
	}
	words += starts[c.Start]
	if c.Arch != "" {
		words += ", on " + string(c.Arch)
	}
	if c.Release != "" {
		words += ", with Debian " + string(c.Release)
	}
	switch {
	case c.VCPUs == 1:
		words += ", 1 vCPU"
	case c.VCPUs != 0:
		words += fmt.Sprintf(", %d vCPUs", c.VCPUs)
	}
	if c.Memory != 0 {
		words += ", " + FormatBytes(c.Memory) + " of memory"
	}
	if c.VHostPoll != 0 {
		words += ", vhost-net polls for " + c.VHostPoll.String()
	}
	if c.Queues != 0 {
		words += fmt.Sprintf(", %d queues of its NIC", c.Queues)
	}
	if c.Host != "" {
		words += ", at " + c.Host
	}
	if c.Identity != "" {
		words += ", by the key " + c.Identity
	}
	return words
}

// byteUnits are the units of memory, the largest first.
var byteUnits = []struct {
	suffix string
	bytes  int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// FormatBytes formats n for yamldoc.Bytes, in the largest unit that gives a whole number.
func FormatBytes(n int64) string {
	for _, u := range byteUnits {
		if n != 0 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(n, 10)
}
