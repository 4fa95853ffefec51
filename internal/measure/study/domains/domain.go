package domains

import (
	"context"
	"fmt"
	"net"
	"path"
	"strings"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines/cgroup"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/study/server"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/fleet"
	"unnest.io/unnest/internal/testbed/lab"
	"unnest.io/unnest/internal/testbed/place"
	"unnest.io/unnest/internal/testbed/xen"
)

// guestDomain is a guest domain with a server. It is up for the whole run. Where an execution does not
// have it, its VM, or the server of a container on this host, is paused.
type guestDomain struct {
	name    string
	kind    stack.DomainType
	port    int // of its server
	group   *cgroup.Group
	machine *machine.Machine
	xen     *xen.Domain // in place of group: it is a domain of Xen
	service *server.Service
	paused  bool
	stale   bool // its server has to be started again
}

// firstDomainPort is the lowest port of a domain's server. Domains on this host share an address.
const firstDomainPort = 8081

// bringUpDomain starts the VM or the container of a domain, and its server.
func (s *Study) bringUpDomain(ctx context.Context, d *guestDomain) (err error) {
	if !d.kind.Stack().Xen() {
		if d.group, err = cgroup.New(cgroup.Root, path.Join(cgroup.OfLab(s.Lab.ID()), d.name), s.processors); err != nil {
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
		return fmt.Errorf("domain %s: %w", d.name, d.machine.Explain(err))
	}
	if d.machine.Node != nil {
		return d.group.Join(d.machine.Node.PID)
	}
	return nil
}

// startVM boots or restores the VM of a domain.
func (s *Study) startVM(ctx context.Context, d *guestDomain) error {
	size, err := s.Spec.Resources(stack.Configuration{Stack: d.kind.Stack()})
	if err != nil {
		return err
	}
	o := fleet.Options{
		Name: d.name, Image: s.Images.Inner, Accel: s.Options.Accel, VCPUs: size.VCPUs, Memory: size.Memory, Emulated: d.kind.Emulated(),
	}
	if s.Options.Restore && !o.Emulated {
		o.Snapshots = s.Snapshots()
	}
	d.machine, err = s.BootGuest(ctx, d.name, o)
	return err
}

// startService starts the container of a domain, if it has one, and its server.
func (s *Study) startService(ctx context.Context, d *guestDomain) error {
	m := d.machine
	listen := workload.Endpoint{Address: m.Listen, Port: d.port}
	in := m.Place
	var err error
	if _, contained := d.kind.Stack().Engine(); contained {
		listen.Address = ""
		in, err = s.startContainer(ctx, d)
	} else if d.kind == stack.HOST {
		in = d.group.Within(m.Place)
	}
	if err != nil {
		return err
	}
	command := server.Command{
		Args: workload.DocumentServer(s.sizes(), listen), Ready: s.apache.Ready(), Name: fmt.Sprintf("apache of %s", d.name),
	}
	one := &server.Server{Key: d.name, Command: command, Timeout: server.Timeout}
	if d.kind.Stack()[0].Xen() {
		one.Timeout = server.SlowTimeout
	}
	d.service = &server.Service{Machines: machine.List{m}, Place: in, Address: m.Address, Servers: []*server.Server{one}}
	return d.service.StartServers(ctx)
}

// startContainer starts the container of a domain behind the bridge and NAT of its engine.
func (s *Study) startContainer(ctx context.Context, d *guestDomain) (place.Place, error) {
	m := d.machine
	s.mu.Lock() // the containers on this host share their engine
	defer s.mu.Unlock()
	if err := m.Start(ctx); err != nil {
		return nil, err
	}
	options := machine.NetworkArgs(stack.NAT, []workload.Port{{Protocol: workload.TCP, Number: d.port}})
	if _, err := m.StartContainer(ctx, d.name, options...); err != nil {
		return nil, err
	}
	shorten := `[ ! -e "$1" ] || echo 1 >"$1"`
	if err := place.Run(ctx, m.Place, "sh", "-c", shorten, "shorten", lab.ClosedConnections); err != nil {
		return nil, err
	}
	if m.Node != nil {
		return machine.Enter(ctx, m, d.name)
	}
	out, err := place.Output(ctx, m.Place, m.Engine(), "inspect", "--format", "{{.State.Pid}}", d.name)
	if err != nil {
		return nil, err
	}
	return place.Within{
		Place: d.group.Within(m.Place), Enter: []string{"nsenter", "--all", "--target", strings.TrimSpace(string(out))},
		Name: fmt.Sprintf("container %s in %s", d.name, m.Place),
	}, nil
}

// pausable can be stopped: a VM, or a control group.
type pausable interface {
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
}

// whole is the VM of a domain, or the control group of its server.
func (d *guestDomain) whole() pausable {
	switch {
	case d.xen != nil:
		return d.xen
	case d.machine.Node != nil:
		return d.machine.Node
	}
	return d.group
}

// pause stops a domain, if it runs.
func (d *guestDomain) pause(ctx context.Context) error {
	if d.paused {
		return nil
	}
	if err := d.whole().Pause(ctx); err != nil {
		return d.machine.Explain(err)
	}
	d.paused = true
	return nil
}

// serve lets a domain take part in an execution: it runs and its server listens.
func (s *Study) serve(ctx context.Context, d *guestDomain) error {
	if d.paused {
		if err := d.whole().Resume(ctx); err != nil {
			return d.machine.Explain(err)
		}
		d.paused = false
	}
	if !d.stale {
		conn, err := s.dial(ctx, d.address())
		if err == nil {
			return conn.Close()
		}
		s.Note(fmt.Sprintf("The server of %s took no connections and was started again.", d.name))
	}
	if err := d.service.StartServers(ctx); err != nil {
		return d.machine.Explain(err)
	}
	d.stale = false
	return nil
}

// dial connects to a server, as the load generators will.
func (s *Study) dial(ctx context.Context, address string) (net.Conn, error) {
	if s.away() {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	return s.Lab.Dial(ctx, "tcp", address)
}

func (d *guestDomain) address() string { return fmt.Sprintf("%s:%d", d.machine.Address, d.port) }

// Restart starts the VMs that have ended again, see experiment.Restarter.
func (s *Study) Restart(ctx context.Context) error {
	for _, d := range s.domains {
		if d.machine.Died == nil || d.machine.Died() == nil {
			continue
		}
		d.service.StopServers()
		if err := s.remove(ctx, d); err != nil {
			return err
		}
		d.paused, d.stale = false, false
		if err := s.bringUpDomain(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// The interfaces that the engine looks for.
var (
	_ experiment.Restarter = (*Study)(nil)
	_ experiment.Renewer   = (*Study)(nil)
)
