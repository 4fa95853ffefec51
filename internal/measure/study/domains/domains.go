// Package domains is the study of domains that run next to each other: VMs and containers with a web server
// each, of which the active ones are loaded at the same time.
package domains

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/measure/workload"
	"unnest.io/unnest/internal/testbed/place"
)

// Study is the study of domains that run next to each other: VMs and containers with a web
// server each, of which the active ones are loaded at the same time.
//
// All domains of all configurations are up for the whole run, each on the processors and in the
// control group that the study gives it. An execution resumes the VMs of its configuration and
// pauses all others.
type Study struct {
	*machines.Set
	apache     workload.Workload
	onHost     *machine.Machine
	processors string // of the domains
	generators string // processors of the load generators
	sources    []string
	counters   []counter
	domains    map[string]*guestDomain
	full       map[fullOf]float64 // requests/s
	mu         sync.Mutex         // while domains start
	onXen      *machines.XenHost  // that the domains are on; nil: they are on this host
}

// New returns the study on machines of which none is up.
func New(b *machines.Set) *Study {
	w, err := workload.Lookup("apache")
	if err != nil {
		panic(err) // it is built in
	}
	return &Study{Set: b, apache: w, domains: map[string]*guestDomain{}, full: map[fullOf]float64{}}
}

// divide says who has which processors. A Xen host that would have a single one has all: its own
// processors would wait for each other, and its domains answer so little that the load generators
// need next to nothing.
func (s *Study) divide() {
	switch {
	case s.away():
		s.Holds(fmt.Sprintf("The load generators had processor %s of this machine.", s.generators))
	case s.Spec.Configurations[0].Domains[0].Type.Stack().Xen() && !strings.Contains(s.processors, ",") && s.processors != s.generators:
		s.processors += "," + s.generators
		s.Holds(fmt.Sprintf("The Xen host had processors %s of this machine, of which the load generators used %s, too.", s.processors, s.generators))
	default:
		s.Holds(fmt.Sprintf("The domains had processor %s of this machine, the load generators processor %s.", s.processors, s.generators))
	}
}

// Check returns an error unless the study can measure the configuration.
func (s *Study) Check(c stack.Configuration) error {
	if c.Domains == nil {
		return errors.New("key domains is missing")
	}
	return s.checkXenDomains(c)
}

// Needs says what has to be up before Begin.
func (s *Study) Needs() machines.Needs { return machines.Needs{} }

// Begin enters this host's user space, starts all domains, a few at a time, and finds their full
// loads.
func (s *Study) Begin(ctx context.Context) (err error) {
	if s.processors, s.generators, _, err = splitProcessors(); err != nil {
		return err
	}
	s.Fleet.Pausing = true
	if err := s.EnterHost(ctx); err != nil {
		return err
	}
	s.onHost, s.counters = s.Host.Machine(), s.chooseCounters()
	if _, s.onHost.Boot, err = machine.Describe(ctx, s.onHost.Place, "host"); err != nil {
		return err
	}
	if err := s.addSources(); err != nil {
		return err
	}
	if err := s.FindVersion(ctx, s.onHost.Place, s.apache); err != nil {
		return err
	}
	s.divide()
	if err := s.startDomains(ctx); err != nil {
		return err
	}
	return s.findFullLoads(ctx)
}

// addSources gives the load generators an address for each client. In the network of this process they have
// only the address of this machine.
func (s *Study) addSources() (err error) {
	if s.away() {
		return nil
	}
	clients := 1
	for _, c := range s.Spec.Cases {
		clients = max(clients, c.Params.Clients)
	}
	s.sources, err = s.Lab.AddClients(clients)
	return err
}

// away reports whether the domains are on a host of the user's. The network of this process loads them then.
func (s *Study) away() bool { return s.Spec.Configurations[0].Host != "" }

// startDomains brings up the domains of all configurations, as many at a time as this machine has
// processors.
func (s *Study) startDomains(ctx context.Context) error {
	for _, c := range s.Spec.Configurations {
		for i, name := range c.DomainNames() {
			if s.domains[name] == nil {
				s.domains[name] = &guestDomain{name: name, kind: c.Domains[i].Type, port: firstDomainPort + len(s.domains)}
			}
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.NumCPU())
	for _, name := range slices.Sorted(maps.Keys(s.domains)) {
		group.Go(func() error {
			s.mu.Lock()
			s.Options.Progress.Phase("start domain " + name)
			s.mu.Unlock()
			d := s.domains[name]
			if err := s.bringUpDomain(ctx, d); err != nil {
				return err
			}
			return d.pause(ctx)
		})
	}
	return group.Wait()
}

// Start does nothing: begin has started all domains.
func (s *Study) Start(context.Context, stack.Configuration) error { return nil }

// sizes are those of the documents that the domains serve.
func (s *Study) sizes() (all []int) {
	for _, c := range s.Spec.Cases {
		all = append(all, c.Size)
	}
	for _, c := range s.Spec.Configurations {
		for _, d := range c.Domains {
			all = append(all, d.Size)
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(size int) bool { return size == 0 })
}

// sizeOf is the size of the document that a domain serves in a case.
func sizeOf(d stack.Domain, c experiment.Case) int {
	if d.Size > 0 {
		return d.Size
	}
	return c.Size
}

// Renew has the servers restarted, each before its domain's next execution.
func (s *Study) Renew(context.Context, experiment.Execution) error {
	for _, d := range s.domains {
		d.stale = true
	}
	return nil
}

// present gives an execution its domains: it pauses all others, lets these run with their
// weights, and starts their servers where that is needed.
func (s *Study) present(ctx context.Context, c stack.Configuration) ([]*guestDomain, error) {
	names := c.DomainNames()
	for name, d := range s.domains {
		if !slices.Contains(names, name) {
			if err := d.pause(ctx); err != nil {
				return nil, fmt.Errorf("pause %s: %w", name, err)
			}
		}
	}
	var here []*guestDomain
	weights := c.Weights()
	for i, name := range names {
		d := s.domains[name]
		if err := s.share(ctx, d, weights[i]); err != nil {
			return nil, err
		}
		if err := s.serve(ctx, d); err != nil {
			return nil, fmt.Errorf("domain %s: %w", name, err)
		}
		here = append(here, d)
	}
	return here, nil
}

// clientPlace is where the load generators run: in the clients' network, on their processors.
func (s *Study) clientPlace() place.Place {
	return place.Within{
		Place: s.ClientNetwork(s.Spec.Configurations[0]), Enter: []string{"taskset", "--cpu-list", s.generators}, Name: "the clients",
	}
}

// clientCommand is the command of a load generator. Each generator has a thread for every processor of the generators:
// one generator can then use them all, as two of a pair can together, and 90 % of them is the same limit for both.
func (s *Study) clientCommand(p workload.Params, d *guestDomain, rate int) []string {
	p.Threads = 1 + strings.Count(s.generators, ",")
	command := workload.DomainClient(p, workload.Endpoint{Address: d.machine.Address, Port: d.port}, rate, s.sources[:min(max(p.Clients, 1), len(s.sources))])
	command[0] = filepath.Join(s.Options.Binaries, filepath.Base(workload.Generator))
	return command
}

// Down ends the servers and takes the domains down.
func (s *Study) Down() error {
	for _, d := range s.domains {
		if d.service != nil {
			d.service.StopServers()
		}
	}
	return s.Set.Down()
}

// fullOf is what a full load is of: the throughput that a domain of the type reaches alone.
type fullOf struct {
	kind stack.DomainType
	size int
}

// The load of the steps by which the full loads are found.
const (
	stepWarmup   = 300 * time.Millisecond
	stepDuration = 1200 * time.Millisecond
)

// findFullLoads raises the load of one domain of each type and size that the cases load with a
// share of the full load, alone, until its throughput falls.
func (s *Study) findFullLoads(ctx context.Context) error {
	for _, c := range s.Spec.Configurations {
		for _, i := range c.Active() {
			for _, k := range s.Spec.Cases {
				of := fullOf{c.Domains[i].Type, sizeOf(c.Domains[i], k)}
				if k.Intensity == 0 || s.full[of] > 0 {
					continue
				}
				s.Options.Progress.Phase(fmt.Sprintf("find the full load of %s with %d B", strings.ToUpper(string(of.kind)), of.size))
				if err := s.findFullLoad(ctx, of, k); err != nil {
					return fmt.Errorf("find the full load of %s with %d B: %w", of.kind, of.size, err)
				}
			}
		}
	}
	return nil
}

func (s *Study) findFullLoad(ctx context.Context, of fullOf, k experiment.Case) error {
	k.Params.Intensity, k.Params.Warmup, k.Params.Duration, k.Size = 0, stepWarmup, stepDuration, of.size
	alone := stack.Configuration{Name: string(of.kind), Stack: of.kind.Stack(), Domains: []stack.Domain{{Type: of.kind}}}
	peak, err := s.whileAlive(ctx, experiment.Execution{Configuration: alone, Case: k}, s.raise)
	if err != nil {
		return err
	}
	s.full[of] = peak.loads[0].throughput()
	text := fmt.Sprintf("The full load of %s with documents of %d B was %.0f requests/s.", strings.ToUpper(string(of.kind)), of.size, s.full[of])
	s.Holds(text)
	if peak.limit != "" {
		s.Note(text + " The load generator was at its limit or late, or the steps ended too early: " + peak.limit + ".")
	}
	return nil
}

// splitProcessors divides the processors that this process may use: the domains get all but a
// quarter, which the load generators get. Both are lists such as "0,1". With one processor, both
// have it.
func splitProcessors() (domains, generators string, n int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return "", "", 0, fmt.Errorf("find the processors of this process: %w", err)
	}
	var all []string
	for i := 0; len(all) < set.Count(); i++ {
		if set.IsSet(i) {
			all = append(all, strconv.Itoa(i))
		}
	}
	apart := max(1, len(all)/4)
	if len(all) == 1 {
		return all[0], all[0], 1, nil
	}
	return strings.Join(all[:len(all)-apart], ","), strings.Join(all[len(all)-apart:], ","), len(all) - apart, nil
}
