package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path"
	"slices"
	"strings"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/result"
	"unnest/internal/measure/stack"
	"unnest/internal/measure/workload"
	"unnest/internal/testbed/fleet"
	"unnest/internal/testbed/lab"
	"unnest/internal/testbed/place"
	"unnest/internal/testbed/xen"
)

// domain is a guest domain with a server. It is up for the whole run. Where an execution does not
// have it, its VM is paused; the server of a container then waits for clients.
type domain struct {
	name    string
	kind    stack.DomainType
	port    int // of its server
	group   *group
	machine *machine
	xen     *xen.Domain // in place of group: it is a domain of Xen
	service *service
	paused  bool
	stale   bool // its server has to be started again
}

// firstDomainPort is the lowest port of a domain's server. Domains on this host share an address.
const firstDomainPort = 8081

// bringUpDomain starts the VM or the container of a domain, and its server.
func (s *domainStudy) bringUpDomain(ctx context.Context, d *domain) (err error) {
	if !d.kind.Stack().Xen() {
		if d.group, err = makeGroup(groupRoot, path.Join(groupOf(s.lab.ID()), d.name), s.processors); err != nil {
			return err
		}
	}
	switch {
	case d.group == nil:
		err = s.startXen(ctx, d)
	case d.kind.Stack().Level() > 0:
		err = s.startVM(ctx, d)
	default:
		d.machine = s.onHost
	}
	if err != nil {
		return fmt.Errorf("domain %s: %w", d.name, err)
	}
	if err := s.startService(ctx, d); err != nil {
		return fmt.Errorf("domain %s: %w", d.name, d.machine.explain(err))
	}
	if d.machine.node != nil {
		return d.group.join(d.machine.node.PID)
	}
	return nil
}

// startVM boots or restores the VM of a domain.
func (s *domainStudy) startVM(ctx context.Context, d *domain) error {
	size, err := s.spec.Resources(stack.Configuration{Stack: d.kind.Stack()})
	if err != nil {
		return err
	}
	o := fleet.Options{
		Name: d.name, Image: s.images.inner, Accel: s.options.Accel, VCPUs: size.VCPUs, Memory: size.Memory, Emulated: d.kind.Emulated(),
	}
	if s.options.Restore && !o.Emulated {
		o.Snapshots = s.snapshots()
	}
	node, err := s.launchVM(ctx, o)
	if err != nil {
		return err
	}
	if d.machine, err = newGuest(ctx, s.fleet, node, node.Err, node); err != nil {
		return err
	}
	m := d.machine
	if m.facts, m.boot, err = describeMachine(ctx, m.place, d.name); err != nil {
		return m.explain(err)
	}
	m.facts.Start = result.Booted
	if node.Restored() {
		m.facts.Start = result.Restored
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[d.name] = m
	s.facts.Guests = append(s.facts.Guests, m.facts)
	return nil
}

// launchVM starts a VM, one at a time.
func (s *domainStudy) launchVM(ctx context.Context, o fleet.Options) (*fleet.Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	node, err := s.fleet.Launch(ctx, o)
	if err == nil {
		s.nodes = append(s.nodes, node)
	}
	return node, err
}

// startService starts the container of a domain, if it has one, and its server.
func (s *domainStudy) startService(ctx context.Context, d *domain) error {
	m := d.machine
	listen := workload.Endpoint{Address: m.listen, Port: d.port}
	in := m.place
	var err error
	if _, contained := d.kind.Stack().Engine(); contained {
		listen.Address = ""
		in, err = s.startContainer(ctx, d)
	} else if d.kind == stack.HOST {
		in = d.group.within(m.place)
	}
	if err != nil {
		return err
	}
	command := serverCommand{
		args: workload.DocumentServer(s.sizes(), listen), ready: s.apache.Ready(), name: fmt.Sprintf("apache of %s", d.name),
	}
	one := &server{key: d.name, command: command, timeout: serverTimeout}
	if d.kind.Stack()[0].Xen() {
		one.timeout = slowServerTimeout
	}
	d.service = &service{machines: machines{m}, place: in, address: m.address, servers: []*server{one}}
	return d.service.startServers(ctx)
}

// startContainer starts the container of a domain behind the bridge and NAT of its engine.
func (s *domainStudy) startContainer(ctx context.Context, d *domain) (place.Place, error) {
	m := d.machine
	s.mu.Lock() // the containers on this host share their engine
	defer s.mu.Unlock()
	if err := m.start(ctx); err != nil {
		return nil, err
	}
	options := networkArgs(stack.NAT, []workload.Port{{Protocol: workload.TCP, Number: d.port}})
	if _, err := m.container(ctx, d.name, options...); err != nil {
		return nil, err
	}
	shorten := `[ ! -e "$1" ] || echo 1 >"$1"`
	if err := place.Run(ctx, m.place, "sh", "-c", shorten, "shorten", lab.ClosedConnections); err != nil {
		return nil, err
	}
	if m.node != nil {
		return enter(ctx, m, d.name)
	}
	out, err := place.Output(ctx, m.place, engine, "inspect", "--format", "{{.State.Pid}}", d.name)
	if err != nil {
		return nil, err
	}
	return place.Within{
		Place: d.group.within(m.place), Enter: []string{"nsenter", "--all", "--target", strings.TrimSpace(string(out))},
		Name: fmt.Sprintf("container %s in %s", d.name, m.place),
	}, nil
}

// within returns p with all its commands in the group.
func (g *group) within(p place.Place) place.Place {
	const join = `while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs" || exit; shift; done; shift; exec "$@"`
	return place.Within{Place: p, Enter: slices.Concat([]string{"sh", "-c", join, "join"}, g.joined, []string{"--"}), Name: p.String()}
}

// pausable is a VM whose processors can be stopped.
type pausable interface {
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
}

// vm is the VM of a domain; nil: it has none.
func (d *domain) vm() pausable {
	switch {
	case d.xen != nil:
		return d.xen
	case d.machine.node != nil:
		return d.machine.node
	}
	return nil
}

// pause stops the VM of a domain, if it has one and runs.
func (d *domain) pause(ctx context.Context) error {
	vm := d.vm()
	if vm == nil || d.paused {
		return nil
	}
	if err := vm.Pause(ctx); err != nil {
		return d.machine.explain(err)
	}
	d.paused = true
	return nil
}

// serve lets a domain take part in an execution: its VM runs and its server listens.
func (s *domainStudy) serve(ctx context.Context, d *domain) error {
	if d.paused {
		if err := d.vm().Resume(ctx); err != nil {
			return d.machine.explain(err)
		}
		d.paused = false
	}
	if !d.stale {
		conn, err := s.dial(ctx, d.address())
		if err == nil {
			return conn.Close()
		}
		s.note(fmt.Sprintf("The server of %s took no connections and was started again.", d.name))
	}
	if err := d.service.startServers(ctx); err != nil {
		return d.machine.explain(err)
	}
	d.stale = false
	return nil
}

// dial connects to a server, as the load generators will.
func (s *domainStudy) dial(ctx context.Context, address string) (net.Conn, error) {
	if s.away() {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	return s.lab.Dial(ctx, "tcp", address)
}

func (d *domain) address() string { return fmt.Sprintf("%s:%d", d.machine.address, d.port) }

// Restart starts the VMs that have ended again, see experiment.Restarter.
func (s *domainStudy) Restart(ctx context.Context) error {
	for _, d := range s.domains {
		if d.machine.died == nil || d.machine.died() == nil {
			continue
		}
		d.service.stopServers()
		if d.xen != nil {
			if err := s.restartXen(ctx, d); err != nil {
				return err
			}
			continue
		}
		err := errors.Join(d.machine.leave(), d.machine.node.Kill(), s.lab.RemoveGuest(d.machine.node.Name))
		if err != nil {
			return err
		}
		s.nodes = slices.DeleteFunc(s.nodes, func(n *fleet.Node) bool { return n == d.machine.node })
		delete(s.running, d.name)
		d.paused, d.stale = false, false
		if err := s.bringUpDomain(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// The interfaces that the engine looks for.
var (
	_ experiment.Restarter = (*domainStudy)(nil)
	_ experiment.Renewer   = (*domainStudy)(nil)
)
