package stack

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// DomainType is a kind of guest domain: what the host runs and divides its processors between.
type DomainType string

// The types of domains.
const (
	HVM    DomainType = "hvm"     // a VM with emulated devices: e1000 NIC and AHCI disk, no paravirtual clock
	PVM    DomainType = "pvm"     // a VM with paravirtual devices: virtio
	CON    DomainType = "con"     // a container on the host
	HVMCON DomainType = "hvmcon"  // a container in an HVM
	PVMCON DomainType = "pvmcon"  // a container in a PVM
	HOST   DomainType = "host"    // processes on the host itself, for reference: Dom0 of Xen
	XPV    DomainType = "xen-pv"  // a domain of Xen: see Layer
	XPVH   DomainType = "xen-pvh" // likewise
	XHVM   DomainType = "xen-hvm" // likewise
)

// DomainTypes lists the types.
func DomainTypes() []DomainType {
	return []DomainType{HVM, PVM, CON, HVMCON, PVMCON, HOST, XPV, XPVH, XHVM}
}

// domainStacks are the layers of each type.
var domainStacks = map[DomainType]Stack{
	HVM: {VM}, PVM: {VM}, CON: {Metal, Containerd}, HVMCON: {VM, Containerd}, PVMCON: {VM, Containerd}, HOST: {Metal},
	XPV: {XenPV}, XPVH: {XenPVH}, XHVM: {XenHVM},
}

// Stack returns the layers of a domain of the type.
func (t DomainType) Stack() Stack { return slices.Clone(domainStacks[t]) }

// Emulated reports whether the devices of the domain's VM are emulated hardware.
func (t DomainType) Emulated() bool { return t == HVM || t == HVMCON || t == XHVM }

// Domain is one of the domains that a configuration runs next to each other.
type Domain struct {
	Type   DomainType
	Idle   bool // it serves nobody
	Size   int  // bytes of the document that it serves; 0: that of the case
	Weight int  // of its processor time, as cpu.shares; 0: see Weights
}

// The weights of domains. All VMs of the study have 256. A container has 256 where it is
// alone or among containers, and 1024 next to a VM, so that it can use as much as both
// processors of the VM.
const (
	LowWeight  = 256
	FullWeight = 1024
	maxWeight  = 262144 // of the kernel
	maxDomains = 16
)

// Weights returns the weight of each of the configuration's domains.
func (c Configuration) Weights() []int {
	guests := slices.ContainsFunc(c.Domains, func(d Domain) bool { return d.Type.Stack().Level() > 0 })
	weights := make([]int, len(c.Domains))
	for i, d := range c.Domains {
		weights[i] = LowWeight
		if d.Type == HOST || d.Type == CON && guests {
			weights[i] = FullWeight
		}
		weights[i] = cmp.Or(d.Weight, weights[i])
	}
	return weights
}

// DomainNames returns the name of each of the configuration's domains: its type and its
// number among those of its type, such as hvm2.
func (c Configuration) DomainNames() []string {
	names, seen := make([]string, len(c.Domains)), map[DomainType]int{}
	for i, d := range c.Domains {
		seen[d.Type]++
		names[i] = string(d.Type) + strconv.Itoa(seen[d.Type])
	}
	return names
}

// Active returns the indexes of the domains that serve clients.
func (c Configuration) Active() (active []int) {
	for i, d := range c.Domains {
		if !d.Idle {
			active = append(active, i)
		}
	}
	return active
}

// Singles returns a configuration for each stack: c itself, or one for each of its domains.
func (c Configuration) Singles() (all []Configuration) {
	if c.Domains == nil {
		return []Configuration{c}
	}
	for _, d := range c.Domains {
		all = append(all, Configuration{Name: c.Name, Stack: d.Type.Stack(), Host: c.Host, Identity: c.Identity})
	}
	return all
}

// onXen reports whether the configuration has domains of Xen only.
func (c Configuration) onXen() bool {
	return !slices.ContainsFunc(c.Singles(), func(one Configuration) bool { return !one.Stack.Xen() })
}

// domainNotation writes the domains: "hvm1+pvm1(1KiB)+hvm2(idle)".
func (c Configuration) domainNotation() string {
	var all []string
	names := c.DomainNames()
	for i, d := range c.Domains {
		var with []string
		if d.Idle {
			with = append(with, "idle")
		}
		if d.Size > 0 {
			with = append(with, FormatBytes(int64(d.Size)))
		}
		if d.Weight > 0 {
			with = append(with, "weight "+strconv.Itoa(d.Weight))
		}
		if len(with) > 0 {
			names[i] += "(" + strings.Join(with, " ") + ")"
		}
		all = append(all, names[i])
	}
	return strings.Join(all, "+")
}

// describeDomains describes the domains: "HVM and PVM side by side, 1 idle".
func (c Configuration) describeDomains() string {
	if len(c.Domains) == 0 {
		return ""
	}
	var active []string
	for _, i := range c.Active() {
		word := strings.ToUpper(string(c.Domains[i].Type))
		if size := c.Domains[i].Size; size > 0 {
			word += " serving " + FormatBytes(int64(size))
		}
		active = append(active, word)
	}
	words := strings.Join(active, " and ")
	if len(active) > 1 {
		words += " side by side"
	}
	if idle := len(c.Domains) - len(active); idle == 1 {
		words += ", next to an idle neighbour"
	} else if idle > 1 {
		words += fmt.Sprintf(", next to %d idle neighbours", idle)
	}
	return words
}

// validateDomains checks that some domain is active, and that no option of a single stack is set.
func (c Configuration) validateDomains() error {
	if len(c.Domains) == 0 {
		return nil
	}
	if len(c.Domains) > maxDomains {
		return fmt.Errorf("%d domains: want at most %d", len(c.Domains), maxDomains)
	}
	for i, d := range c.Domains {
		switch {
		case domainStacks[d.Type] == nil:
			return fmt.Errorf("unknown type of domain %q: want hvm, pvm, con, hvmcon, pvmcon, host, xen-pv, xen-pvh or xen-hvm", string(d.Type))
		case d.Weight < 0 || d.Weight == 1 || d.Weight > maxWeight:
			return fmt.Errorf("weight %d of domain %d: want 2 to %d", d.Weight, i+1, maxWeight)
		case d.Idle && d.Size > 0:
			return fmt.Errorf("domain %d is idle and has size %d: leave one out", i+1, d.Size)
		}
	}
	if len(c.Active()) == 0 {
		return errors.New("no domain is active: leave out active: false of one")
	}
	own := c
	own.Domains, own.VCPUs, own.Memory = nil, 0, 0
	if c.onXen() {
		own.Host, own.Identity = "", ""
	}
	if set := own.options(); len(set) > 0 {
		return fmt.Errorf("%s %s: domains have no such option: leave it out", set[0].key, set[0].value)
	}
	return nil
}
