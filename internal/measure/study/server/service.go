package server

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/measure/cputime"
	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/machines/sshhost"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/place"
)

// Service is a configuration whose servers run.
type Service struct {
	Machines  machine.List
	Place     place.Place      // of the servers
	Container *place.Container // that the servers run in; nil: none
	Client    place.Place      // the clients' container in the same pod; nil: they run outside
	Address   string           // where the clients find the servers
	Ports     map[string]int   // server, as Key, -> port
	Servers   []*Server
	meter     *machine.Meter // of the servers' CPU time; nil: not started yet
	login     io.Closer      // of the servers on a machine that is reached over SSH; nil: none
}

// LogIn logs in once more, for the commands in the place of the servers. Each server is a command, and sshd
// runs at most ten commands over a connection (MaxSessions in sshd_config).
func (s *Service) LogIn(ctx context.Context, c stack.Configuration) error {
	in, err := sshhost.Login(ctx, c)
	if err != nil {
		return err
	}
	s.login = in
	if inside, ok := s.Place.(place.Container); ok {
		inside.Place = sshhost.On(in, c)
		s.Place, s.Container = inside, &inside
	} else {
		s.Place = sshhost.On(in, c)
	}
	return nil
}

// Leave ends the servers and the commands in their place.
func (s *Service) Leave() error {
	s.StopServers()
	if s.meter != nil {
		s.meter.Stop()
	}
	if s.login == nil {
		return nil
	}
	return s.login.Close()
}

// Assigned are those that one configuration runs. Their ports are unique in the whole
// bench, because configurations can share the address of their machine.
type Assigned struct {
	Ports     map[string]int
	Published []workload.Port
	List      []*Server
}

// Command is how a server starts.
type Command struct {
	Args  []string
	Ready string // what the server prints when it accepts clients
	Name  string // for people; empty: the arguments
	Alone bool   // it runs only while its client does
}

// FirstPort is the lowest port of a server.
const FirstPort = 5001

// Assign gives each server that the cases need a port of its own, the lowest is port. The servers
// listen on an address; empty: on all.
func Assign(cases []experiment.Case, port int, listen string) Assigned {
	assigned := Assigned{Ports: map[string]int{}}
	for _, c := range cases {
		key, w := Key(c), c.Workload()
		if _, ok := assigned.Ports[key]; ok {
			continue
		}
		assigned.Ports[key] = port
		assigned.Published = append(assigned.Published, w.Ports(c.Params, port)...)
		command := Command{Args: w.Server(c.Params, workload.Endpoint{Address: listen, Port: port}), Ready: w.Ready()}
		if len(w.Programs()) > 0 { // its arguments are a script
			command.Name = fmt.Sprintf("%s on port %d", w.Name(), port)
		}
		one := &Server{Key: key, Command: command, Timeout: Timeout}
		if one.Command.Alone = workload.ExtraOf(w).Alone; one.Command.Alone {
			one.Timeout = SlowTimeout
		}
		assigned.List = append(assigned.List, one)
		port++
	}
	return assigned
}

// Key identifies the server that a case needs. Cases with the same key share
// the server.
func Key(c experiment.Case) string {
	// Each protocol has its own server, even where one could serve both.
	return strings.Join(c.Workload().Server(c.Params, workload.Endpoint{}), " ") + " " + string(c.Params.Protocol)
}

// Endpoint returns where the clients of a case find its server.
func (s *Service) Endpoint(c experiment.Case) workload.Endpoint {
	key := Key(c)
	return workload.Endpoint{Address: s.Address, Port: s.Ports[key]}
}

func (e Command) String() string {
	return cmp.Or(e.Name, strconv.Quote(strings.Join(e.Args, " ")))
}

// ProcessTimes are the CPU times of an application's processes since their start: of the VMs
// as this host sees them, and of the server inside (Bacou et al. 2019, Figures 6 and 7).
type ProcessTimes struct {
	vms    *cputime.Times // nil: none
	server cputime.Times
}

// ProcessTimes reads the CPU times for a case. It returns nil if its workload is no
// application.
func (s *Service) ProcessTimes(ctx context.Context, c experiment.Case) (*ProcessTimes, error) {
	one := s.serverOf(c)
	if one == nil || len(c.Workload().Programs()) == 0 {
		return nil, nil
	}
	var t ProcessTimes
	var err error
	if t.server, err = s.serverTimes(ctx, one); err != nil {
		return nil, fmt.Errorf("server %s: %w", one.Command, err)
	}
	t.vms, err = s.Machines.VMTimes()
	return &t, err
}

// serverTimes reads the CPU time of a server, in its place.
func (s *Service) serverTimes(ctx context.Context, one *Server) (_ cputime.Times, err error) {
	if s.meter == nil {
		if s.meter, err = machine.StartMeter(context.WithoutCancel(ctx), s.Place, machine.ProcessMeter); err != nil {
			return cputime.Times{}, err
		}
	}
	line, err := s.meter.Read(ctx, one.process)
	if err != nil {
		s.meter.Stop()
		s.meter = nil
		return cputime.Times{}, err
	}
	return cputime.ParseProcess(line)
}

// PerOperation divides the CPU time since before by the operations done.
func (t ProcessTimes) PerOperation(before ProcessTimes, operations float64) ([]workload.Value, error) {
	server, err := t.server.Sub(before.server)
	if err != nil {
		return nil, fmt.Errorf("server's CPU time: %w", err)
	}
	var vms cputime.Times
	if t.vms != nil && before.vms != nil {
		if vms, err = t.vms.Sub(*before.vms); err != nil {
			return nil, fmt.Errorf("VM's CPU time: %w", err)
		}
	}
	spent, err := cputime.ProcessValues(vms.Breakdown(), server.Breakdown(), operations)
	return slices.DeleteFunc(spent, func(v workload.Value) bool { return t.vms == nil && strings.HasPrefix(v.Metric, "vm_") }), err
}
