package stack

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode"
)

// Validate returns an error unless the name and the stack are valid and the stack supports
// the options: network and storage need a container, a BrFusion network and a pod need one
// in a VM, a start and an architecture need a VM, and a machine reached over SSH its address.
func (c Configuration) Validate() error {
	if err := c.validate(); err != nil {
		return fmt.Errorf("configuration %q: %w", c.Name, err)
	}
	return nil
}

func (c Configuration) validate() error {
	if err := validateName(c, c.Name); err != nil {
		return err
	}
	if err := c.Stack.Validate(); err != nil {
		return err
	}
	return cmp.Or(c.validateDomains(), c.validateNetwork(), c.validateStorage(), c.validateEngine(), c.validateMachine(), c.validateStart(), c.validateHost())
}

func (c Configuration) validateStorage() error {
	if c.Storage != "" && storages[c.Storage] == "" {
		return fmt.Errorf("unknown storage %q: want overlay or volume", string(c.Storage))
	}
	if _, ok := c.Stack.Engine(); !ok && c.Storage != "" {
		return fmt.Errorf("storage %s needs a container: use a stack such as %s/containerd", c.Storage, c.Stack)
	}
	return nil
}

// validateMachine checks the place of the client and the size of the guests.
func (c Configuration) validateMachine() error {
	if c.Drive != "" && drives[c.Drive] == "" {
		return fmt.Errorf("unknown drive %q: want local, remote or pod", string(c.Drive))
	}
	switch c.Arch {
	case "", X8664, S390x, AArch64:
	default:
		return fmt.Errorf("unknown architecture %q: want x86_64, s390x or aarch64", string(c.Arch))
	}
	switch c.Release {
	case "", Bookworm, Trixie:
	default:
		return fmt.Errorf("unknown release %q: want bookworm or trixie", string(c.Release))
	}
	switch {
	case c.Release == Trixie && c.onXen():
		return errors.New("release trixie: Debian 13 has no Xen: want bookworm")
	case c.Release != "" && (c.Level() != 1 || len(c.Domains) > 0 || c.Architecture() != X8664):
		return fmt.Errorf("release %s needs a VM of %s on this host: use a stack such as vm or vm/containerd", c.Release, X8664)
	case c.Arch != "" && c.Stack.Xen():
		return fmt.Errorf("architecture %s: domains of Xen have that of their host: leave it out", c.Arch)
	case c.Arch != "" && c.Level() == 0:
		return fmt.Errorf("architecture %s needs a VM: an existing machine has its own", c.Arch)
	case c.VHostPoll != 0 && (c.Level() != 1 || c.Stack.Xen()):
		return fmt.Errorf("vhost_poll %v needs a VM on this host: use a stack such as vm or vm/containerd", c.VHostPoll)
	case c.VHostPoll < 0 || c.VHostPoll > MaxVHostPoll:
		return fmt.Errorf("vhost_poll %v: want 0 to %v", c.VHostPoll, MaxVHostPoll)
	case c.Queues != 0 && (c.Level() != 1 || c.Stack.Xen() || !c.Network.Reached()):
		return fmt.Errorf("queues %d: they are of a NIC that the VMM plugs into a VM on this host: use stack vm/containerd and network brfusion", c.Queues)
	case c.Queues < 0 || c.Queues > MaxQueues:
		return fmt.Errorf("queues %d: want 1 to %d", c.Queues, MaxQueues)
	case c.VCPUs < 0 || c.VCPUs > MaxVCPUs:
		return fmt.Errorf("vcpus %d: want a whole number from 1 to %d", c.VCPUs, MaxVCPUs)
	case c.Memory < 0 || c.Memory > maxMemory:
		return fmt.Errorf("memory %d: want 1 to %s", c.Memory, FormatBytes(maxMemory))
	}
	return nil
}

func (c Configuration) validateStart() error {
	switch {
	case c.Start == "":
		return nil
	case starts[c.Start] == "":
		return fmt.Errorf("unknown start %q: want booted or restored", string(c.Start))
	case c.Level() == 0 || c.Stack.Xen():
		return fmt.Errorf("start %s needs a VM: use a stack such as vm or vm/containerd", c.Start)
	case c.Start == Restored && (c.Level() > 1 || c.Architecture() != X8664):
		return fmt.Errorf("start restored: only a VM of %s that runs no VM can be restored: want booted", X8664)
	}
	return nil
}

func (c Configuration) validateHost() error {
	switch {
	case c.Stack.Remote() && c.Host == "":
		return fmt.Errorf("stack %s has no host: add host=ssh://user@address:port", c.Stack)
	case !c.Stack.Remote() && !c.onXen() && c.Host != "":
		return fmt.Errorf("host %s needs a machine reached over SSH: use stack ssh or ssh/containerd", c.Host)
	case c.Host == "" && c.Identity != "":
		return fmt.Errorf("identity %s needs a machine reached over SSH: use stack ssh or ssh/containerd", c.Identity)
	case strings.ContainsFunc(c.Identity, func(r rune) bool { return r == ',' || !unicode.IsPrint(r) }):
		return fmt.Errorf("identity %q: want the path of a file without commas", c.Identity)
	case c.Host == "":
		return nil
	}
	_, err := ParseHost(c.Host)
	return err
}

func (c Configuration) validateNetwork() error {
	switch {
	case c.Stack.Pod() && !c.Network.OfCluster():
		return fmt.Errorf("network %q: a pod of a cluster has host, pod, service or brfusion", string(c.Network))
	case c.Stack.Pod() && (c.Drive != "" || c.VCPUs != 0 || c.Memory != 0):
		return errors.New("drive, vcpus and memory: leave them out, the client is a pod and the nodes are the cluster's")
	case c.Stack.Pod():
		return nil
	case c.Network == PodNetwork || c.Network == Service:
		return fmt.Errorf("network %s is of a cluster: use stack kubernetes", c.Network)
	}
	if !c.Network.known() {
		return fmt.Errorf("unknown network %q: want host, nat, brfusion, brfusion-cold, brfusion-trunk, localhost, overlay, docker-bridge, docker-overlay, hostlo, hostlo-plain or hostlo-network", string(c.Network))
	}
	if _, ok := c.Stack.Engine(); !ok && c.Network != "" {
		return fmt.Errorf("network %s needs a container: use a stack such as %s/containerd", c.Network, c.Stack)
	}
	if c.Network == DockerBridge && c.Level() == 0 {
		return fmt.Errorf("network %s is made in VMs only: use stack vm/docker", c.Network)
	}
	if c.Network.Reached() && c.Level() == 0 {
		return fmt.Errorf("network %s needs a container in a VM: its VMM plugs the NIC; use a stack such as vm/containerd", c.Network)
	}
	return c.validatePod()
}

// validateEngine checks that the engine has the network.
func (c Configuration) validateEngine() error {
	engine, _ := c.Stack.Engine()
	switch {
	case (c.Network == DockerBridge || c.Network == DockerOverlay) && engine != Docker:
		return fmt.Errorf("network %s is Docker's: use stack vm/docker", c.Network)
	case engine == Docker && (c.Network == BrFusionCold || c.Network == BrFusionTrunk):
		return fmt.Errorf("network %s: Docker has one network of NICs: want brfusion, or stack vm/containerd", c.Network)
	case engine == Podman && c.Release == Trixie && c.Network != "" && c.Network != HostNetwork && c.Network != NAT && c.Network != BrFusion && c.Network != Localhost:
		return fmt.Errorf("network %s: Podman of Debian 13 has no CNI: want host, nat, brfusion or localhost, or release bookworm", c.Network)
	}
	return nil
}

// validatePod checks that a pod has containers in VMs, and a network between them.
func (c Configuration) validatePod() error {
	_, contained := c.Stack.Engine()
	switch {
	case c.Drive != Pod && c.Network.ofPod():
		return fmt.Errorf("network %s is between the containers of a pod: add drive=pod", c.Network)
	case c.Drive != Pod:
		return nil
	case !contained || c.Level() == 0:
		return fmt.Errorf("drive pod needs a container in a VM: use a stack such as vm/containerd")
	case !c.Network.ofPod() && c.Network != NAT:
		return fmt.Errorf("drive pod needs a network between the pod's containers: want localhost, nat, overlay, docker-overlay, hostlo, hostlo-plain or hostlo-network")
	}
	return nil
}

// validateName accepts the notation of the configuration, or a word that cannot be
// mistaken for a notation.
func validateName(c Configuration, name string) error {
	if name == "" {
		return errors.New("it has no name")
	}
	if name == c.Notation() {
		return nil
	}
	for _, r := range name {
		if r <= ' ' || r > '~' || strings.ContainsRune("=:/,", r) {
			return fmt.Errorf("character %q in its name: use letters, digits and punctuation other than = : / ,", r)
		}
	}
	return nil
}

// Host is the address and the user of an existing machine.
type Host struct {
	User    string // default: root
	Address string // name or IP address, without brackets
	Port    int    // default: 22
}

// ParseHost parses "ssh://user@address:port"; user and port are optional. It refuses a
// password, because reports would contain it.
func ParseHost(text string) (Host, error) {
	wrong := func(why string) (Host, error) {
		return Host{}, fmt.Errorf("host %q %s: want ssh://user@address:port", text, why)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || !unicode.IsPrint(r) }) {
		return wrong("has a comma, a space or a character that cannot be printed")
	}
	u, err := url.Parse(text)
	if err != nil {
		return wrong("is not an address")
	}
	if _, password := u.User.Password(); password {
		text = u.Redacted()
		return wrong("has a password")
	}
	switch {
	case u.Scheme != "ssh":
		return wrong("does not begin with ssh://")
	case u.Hostname() == "":
		return wrong("has no address")
	case u.Path != "" || u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#"):
		return wrong("continues after the port")
	}
	h := Host{User: "root", Address: u.Hostname(), Port: 22}
	if u.User != nil {
		h.User = u.User.Username()
	}
	if h.User == "" || strings.HasPrefix(h.User, "-") || strings.HasPrefix(h.Address, "-") {
		return wrong("has a user or address that is empty or begins with a dash")
	}
	if _, after, _ := strings.Cut(u.Host, h.Address); strings.HasSuffix(after, ":") {
		return wrong("has no port after the colon")
	}
	if u.Port() != "" {
		if h.Port, err = strconv.Atoi(u.Port()); err != nil || h.Port < 1 || h.Port > 65535 {
			return wrong("has a port that is not between 1 and 65535")
		}
	}
	return h, nil
}
