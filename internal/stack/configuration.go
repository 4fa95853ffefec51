package stack

import (
	"fmt"
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

// Reached reports whether a container on the network is reached at an address of
// its own, not at its machine's.
func (n Network) Reached() bool {
	return n == BrFusion || n == BrFusionCold || n == BrFusionTrunk
}

// Storage is where a container keeps the files that it works on.
type Storage string

// The storages of a container. Empty is the engine's default, Image.
const (
	Image  Storage = "image"  // copy-on-write layers of its image, the papers' aufs
	Volume Storage = "volume" // a directory of its machine, the papers' mnt
)

// Configuration is a stack with its options: one column of a result table.
type Configuration struct {
	Name    string // the paper's name, "BrFusion", or the notation when there is none
	Stack   Stack
	Network Network // only with a container
	Storage Storage // only with a container
}

// ParseConfiguration reads what String writes, "BrFusion=vm/containerd:network=brfusion".
// The name may be left out; a name alone is looked up with Named.
func ParseConfiguration(text string) (Configuration, error) {
	if c, ok := Named(text); ok {
		return c, nil
	}
	name, notation, found := strings.Cut(text, "=")
	if !found || strings.ContainsAny(name, "/:") {
		name, notation = text, text
	}
	c := Configuration{Name: name}
	layers, options, hasOptions := strings.Cut(notation, ":")
	var err error
	if c.Stack, err = Parse(layers); err != nil {
		return Configuration{}, fmt.Errorf("configuration %q: %w", text, err)
	}
	if hasOptions {
		if err := c.setOptions(options); err != nil {
			return Configuration{}, fmt.Errorf("configuration %q: %w", text, err)
		}
	}
	if name == notation {
		c.Name = c.Notation()
	}
	if err := c.Validate(); err != nil {
		return Configuration{}, err
	}
	return c, nil
}

func (c *Configuration) setOptions(text string) error {
	seen := map[string]bool{}
	for option := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(option, "=")
		if value == "" {
			return fmt.Errorf("option %q has no value: write it as key=value", option)
		}
		if seen[key] {
			return fmt.Errorf("option %s is given twice", key)
		}
		seen[key] = true
		switch key {
		case "network":
			c.Network = Network(value)
		case "storage":
			c.Storage = Storage(value)
		default:
			return fmt.Errorf("unknown option %q: want network or storage", key)
		}
	}
	return nil
}

// Notation returns the configuration without its name:
// "vm/containerd:network=brfusion".
func (c Configuration) Notation() string {
	var options []string
	if c.Network != "" {
		options = append(options, "network="+string(c.Network))
	}
	if c.Storage != "" {
		options = append(options, "storage="+string(c.Storage))
	}
	if len(options) == 0 {
		return c.Stack.String()
	}
	return c.Stack.String() + ":" + strings.Join(options, ",")
}

// String returns the notation, after the name and "=" when they differ.
func (c Configuration) String() string {
	if notation := c.Notation(); notation != c.Name {
		return c.Name + "=" + notation
	}
	return c.Name
}

// Options returns the options that are set, by their key.
func (c Configuration) Options() map[string]string {
	options := map[string]string{}
	if c.Network != "" {
		options["network"] = string(c.Network)
	}
	if c.Storage != "" {
		options["storage"] = string(c.Storage)
	}
	return options
}

// Level returns the degree of virtualization, see Stack.Level.
func (c Configuration) Level() int { return c.Stack.Level() }

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
	}
	switch c.Storage {
	case Image:
		words += ", files in its image's layers"
	case Volume:
		words += ", files in a mounted directory"
	}
	return words
}

// Validate returns an error unless the stack is valid and the options fit it:
// options need a container, a BrFusion network needs a container in a VM.
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
	if err := c.validateNetwork(); err != nil {
		return err
	}
	switch c.Storage {
	case "", Image, Volume:
	default:
		return fmt.Errorf("unknown storage %q: want image or volume", string(c.Storage))
	}
	if _, ok := c.Stack.Engine(); !ok && c.Storage != "" {
		return fmt.Errorf("storage %s needs a container: put one on top of the stack, as in %s/containerd", c.Storage, c.Stack)
	}
	return nil
}

func (c Configuration) validateNetwork() error {
	switch c.Network {
	case "", HostNetwork, NAT, BrFusion, BrFusionCold, BrFusionTrunk:
	default:
		return fmt.Errorf("unknown network %q: want host, nat, brfusion, brfusion-cold or brfusion-trunk", string(c.Network))
	}
	if _, ok := c.Stack.Engine(); !ok && c.Network != "" {
		return fmt.Errorf("network %s needs a container: put one on top of the stack, as in %s/containerd", c.Network, c.Stack)
	}
	if c.Network.Reached() && c.Level() == 0 {
		return fmt.Errorf("network %s needs a container in a VM: its VMM plugs the NIC; use a stack such as vm/containerd", c.Network)
	}
	return nil
}

// validateName accepts the configuration's own notation, and else a word that
// cannot be mistaken for one and prints on one line.
func validateName(c Configuration, name string) error {
	if name == "" {
		return fmt.Errorf("it has no name")
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
