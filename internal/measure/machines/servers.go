package machines

import (
	"errors"
	"fmt"
	"slices"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/stack"
)

// Server is a kind of server that cases load.
type Server int

// The kinds of servers.
const (
	ToolServer        Server = iota // of a tool in a Debian package, such as iperf3
	ApplicationServer               // of a workload, in our container image
	SuiteServer                     // of a case of a suite, in our container image
)

// drives say from where a server can be loaded.
type drives []stack.Drive

var (
	nowhere    = drives{}
	outside    = drives{"", stack.Remote}
	outsidePod = drives{"", stack.Remote, stack.Pod}
	inside     = drives{"", stack.Local}
	everywhere = drives{"", stack.Local, stack.Remote}
)

// kinds is the one table of which server runs on which kind of machine, and from where it is loaded there.
var kinds = []kind{
	// stack, servers of tools, applications and suites, whether the host gives a container a NIC or a segment,
	// and whether the machine can have another architecture
	{"metal", outside, outside, everywhere, false, false},
	{"metal/containerd", outside, outside, everywhere, false, false},
	{"vm", outside, outside, everywhere, false, true},
	{"vm/containerd", outsidePod, outsidePod, everywhere, true, false},
	{"vm/docker", outsidePod, outsidePod, everywhere, true, false},
	{"vm/podman", outsidePod, outsidePod, everywhere, true, false},
	{"vm/vm", outside, outside, inside, false, false},
	{"vm/vm/containerd", outside, outside, inside, false, false},
	{"ssh", outside, nowhere, nowhere, false, false}, // it does not have our image
	{"ssh/containerd", outside, outside, everywhere, false, false},
	{"ssh/docker", outside, outside, everywhere, false, false},
	{"xen-pv", outside, outside, everywhere, false, false},
	{"xen-pvh", outside, outside, everywhere, false, false},
	{"xen-hvm", outside, outside, everywhere, false, false},
}

// kind is a kind of machine, with a container or without one.
type kind struct {
	stack                       string
	tools, applications, suites drives
	nics                        bool
	foreign                     bool
}

// from says from where a server is loaded on the machine.
func (k kind) from(s Server) drives {
	switch s {
	case ApplicationServer:
		return k.applications
	case SuiteServer:
		return k.suites
	}
	return k.tools
}

// CheckServer returns an error unless the server runs in the configuration and its load reaches it there.
func (b *Set) CheckServer(c stack.Configuration, s Server) error {
	if err := b.checkXenHosts(c); err != nil {
		return err
	}
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.stack == c.Stack.String() })
	switch {
	case i < 0:
		return fmt.Errorf("stack %s: clients cannot reach it yet: use metal, vm, vm/vm or ssh, or a container of containerd in it", c.Stack)
	case len(kinds[i].from(s)) == 0:
		return fmt.Errorf("stack %s: the servers of applications come with our container image: use ssh/containerd or ssh/docker", c.Stack)
	case c.Architecture() != stack.X8664 && !kinds[i].foreign:
		return fmt.Errorf("arch %s: its guests run no containers and no guests: use stack vm", c.Architecture())
	case s == SuiteServer:
		return checkSuite(kinds[i], c)
	}
	return checkClients(kinds[i], c, s)
}

// checkSuite checks from where a case of a suite loads its server.
func checkSuite(k kind, c stack.Configuration) error {
	_, contained := c.Stack.Engine()
	switch {
	case c.Drive == stack.Pod:
		return errors.New("drive pod: the load runs in the configuration itself or on this host: want local or remote")
	case !slices.Contains(k.suites, c.Drive):
		return fmt.Errorf("stack %s: the load cannot reach it from outside: use drive local", c.Stack)
	case !ofHost(c.Network):
		return fmt.Errorf("network %s: want host or nat", c.Network)
	case c.Drive == stack.Remote && contained && c.Network == "":
		return errors.New("key network is missing: want host or nat")
	}
	return nil
}

// checkClients checks from where the clients of a workload load their server.
func checkClients(k kind, c stack.Configuration, s Server) error {
	_, contained := c.Stack.Engine()
	switch {
	case c.Drive == stack.Local:
		return errors.New("drive local: the clients of workloads run in a network of their own: leave it out")
	case !slices.Contains(k.from(s), c.Drive) || !k.nics && !ofHost(c.Network):
		return fmt.Errorf("stack %s: the host gives a guest in a guest no NICs and no segments: use network host or nat, and no drive pod", c.Stack)
	case contained && c.Network == "" && c.Stack.Remote():
		return errors.New("key network is missing: want host or nat")
	case contained && c.Network == "":
		return errors.New("key network is missing: want host, nat or brfusion")
	}
	return nil
}

// ofHost reports whether a network needs nothing but the machine of the container.
func ofHost(n stack.Network) bool { return n == "" || n == stack.HostNetwork || n == stack.NAT }

// checkXenHosts refuses a second Xen host of the user's if load generators on this host load the domains of both: domains
// have the same addresses on every Xen host.
func (b *Set) checkXenHosts(c stack.Configuration) error {
	reached := func(c stack.Configuration) bool { return c.Stack.Xen() && c.Host != "" && b.reaches(c) }
	for _, other := range b.Spec.Configurations {
		if other.Host != c.Host && reached(c) && reached(other) {
			return fmt.Errorf("domains at %s and %s: clients reach those of one Xen host at a time: write the others into another file", c.Host, other.Host)
		}
	}
	return nil
}

// reaches reports whether a load generator on this host loads a configuration. That of a workload does.
func (b *Set) reaches(c stack.Configuration) bool {
	return c.Drive == stack.Remote || slices.ContainsFunc(b.Spec.Cases, func(k experiment.Case) bool { return k.Local == nil && k.Probe == "" })
}
