package doctor

import (
	"context"
	"errors"
)

// kernel checks the parts of the host's kernel that networks are made of.
func kernel(_ context.Context, p Probes) []Check {
	checks := require(works("tun", "/dev/net/tun opens", p.OpenDevice("/dev/net/tun"),
		"modprobe tun; in a container, run it with --device /dev/net/tun --cap-add NET_ADMIN"))
	checks = append(checks, inNamespace(p)...)
	return append(checks,
		works("vhost-net", "/dev/vhost-net opens", p.OpenDevice("/dev/vhost-net"), "modprobe vhost_net; without it QEMU itself moves the packets"),
		works("ebpf", "a tc program loads", p.LoadProgram(), "run as root on a kernel with CONFIG_BPF_SYSCALL and CONFIG_NET_CLS_BPF"),
		typeInformation(p))
}

// attempt is one thing to try in a namespace.
type attempt struct {
	name, found, remedy string
	required            bool
	try                 func(Namespace) error
}

var attempts = []attempt{
	{"bridge", "a bridge can be added", "modprobe bridge", true, func(n Namespace) error { return n.AddLink("bridge") }},
	{"veth", "a pair can be added", "modprobe veth", true, func(n Namespace) error { return n.AddLink("veth") }},
	{"nftables", "a masquerade rule can be added", "modprobe nf_tables nft_masq nft_chain_nat", true, Namespace.Masquerade},
}

// errUntried stands where there was no namespace to try in.
var errUntried = errors.New("not tried: no network namespace")

// inNamespace checks network namespaces and, inside one, the rest.
func inNamespace(p Probes) []Check {
	errs := make([]error, len(attempts))
	for i := range errs {
		errs[i] = errUntried
	}
	err := p.Namespace(func(n Namespace) error {
		for i, a := range attempts {
			errs[i] = a.try(n)
		}
		return nil
	})
	checks := require(works("network namespaces", "one can be made", err, "run as root on a kernel with CONFIG_NET_NS"))
	for i, a := range attempts {
		c := works(a.name, a.found, errs[i], a.remedy)
		if errors.Is(errs[i], errUntried) {
			c.Remedy = "see network namespaces"
		}
		c.Required = a.required
		checks = append(checks, c)
	}
	return checks
}

// typeInformation checks for BTF, by which eBPF programs find their way in the
// structures of this kernel.
func typeInformation(p Probes) Check {
	const path = "/sys/kernel/btf/vmlinux"
	return works("btf", path, p.Stat(path), "use a kernel with CONFIG_DEBUG_INFO_BTF")
}
