package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"unnest/internal/measure/experiment"
	"unnest/internal/measure/stack"
	"unnest/internal/measure/workload"
	"unnest/internal/testbed/place"
)

// domainStudy is the study of domains that run next to each other: VMs and containers with a web
// server each, of which the active ones are loaded at the same time.
//
// All domains of all configurations are up for the whole run, each on the processors and in the
// control group that the study gives it. An execution resumes the VMs of its configuration and
// pauses all others.
type domainStudy struct {
	*Bench
	apache     workload.Workload
	onHost     *machine
	processors string // of the domains
	generators string // processors of the load generators
	sources    []string
	counters   []counter
	domains    map[string]*domain
	full       map[fullOf]float64 // requests/s
	mu         sync.Mutex         // while domains start
	onXen      *xenHost           // that the domains are on; nil: they are on this host
}

// fullOf is what a full load is of: the throughput that a domain of the type reaches alone.
type fullOf struct {
	kind stack.DomainType
	size int
}

func newDomainStudy(b *Bench) *domainStudy {
	w, err := workload.Lookup("apache")
	if err != nil {
		panic(err) // it is built in
	}
	return &domainStudy{Bench: b, apache: w, domains: map[string]*domain{}, full: map[fullOf]float64{}}
}

// divide says who has which processors. A Xen host that would have a single one has all: its own
// processors would wait for each other, and its domains answer so little that the load generators
// need next to nothing.
func (s *domainStudy) divide() {
	switch {
	case s.away():
		s.holds(fmt.Sprintf("The load generators had processor %s of this machine.", s.generators))
	case s.spec.Configurations[0].Domains[0].Type.Stack().Xen() && !strings.Contains(s.processors, ",") && s.processors != s.generators:
		s.processors += "," + s.generators
		s.holds(fmt.Sprintf("The Xen host had processors %s of this machine, of which the load generators used %s, too.", s.processors, s.generators))
	default:
		s.holds(fmt.Sprintf("The domains had processor %s of this machine, the load generators processor %s.", s.processors, s.generators))
	}
}

func (s *domainStudy) check(c stack.Configuration) error {
	if c.Domains == nil {
		return errors.New("key domains is missing")
	}
	return s.checkXenDomains(c)
}

func (s *domainStudy) needs() needs { return needs{} }

// begin enters this host's user space, starts all domains, a few at a time, and finds their full
// loads.
func (s *domainStudy) begin(ctx context.Context) (err error) {
	if s.processors, s.generators, _, err = splitProcessors(); err != nil {
		return err
	}
	s.fleet.Pausing = true
	if s.host, err = newHost(ctx, s.lab, s.images.builder, s.images.recipe); err != nil {
		return err
	}
	s.onHost, s.counters = s.host.machine(), s.chooseCounters()
	if _, s.onHost.boot, err = describeMachine(ctx, s.onHost.place, "host"); err != nil {
		return err
	}
	if err := s.addSources(); err != nil {
		return err
	}
	out, err := place.Output(ctx, s.onHost.place, s.apache.VersionArgs()...)
	if err == nil {
		s.facts.Tools[s.apache.Name()], err = s.apache.ParseVersion(out)
	}
	if err != nil {
		return fmt.Errorf("find the version of %s: %w", s.apache.Name(), err)
	}
	s.divide()
	if err := s.startDomains(ctx); err != nil {
		return err
	}
	return s.findFullLoads(ctx)
}

// addSources gives the load generators an address for each client. In the network of this process they have
// only the address of this machine.
func (s *domainStudy) addSources() (err error) {
	if s.away() {
		return nil
	}
	clients := 1
	for _, c := range s.spec.Cases {
		clients = max(clients, c.Params.Clients)
	}
	s.sources, err = s.lab.AddClients(clients)
	return err
}

// away reports whether the domains are on a host of the user's. The network of this process loads them then.
func (s *domainStudy) away() bool { return s.spec.Configurations[0].Host != "" }

// startDomains brings up the domains of all configurations, as many at a time as this machine has
// processors.
func (s *domainStudy) startDomains(ctx context.Context) error {
	for _, c := range s.spec.Configurations {
		for i, name := range c.DomainNames() {
			if s.domains[name] == nil {
				s.domains[name] = &domain{name: name, kind: c.Domains[i].Type, port: firstDomainPort + len(s.domains)}
			}
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.NumCPU())
	for _, name := range slices.Sorted(maps.Keys(s.domains)) {
		group.Go(func() error {
			s.mu.Lock()
			s.options.Progress.Phase("start domain " + name)
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

// start does nothing: begin has started all domains.
func (s *domainStudy) start(context.Context, stack.Configuration) error { return nil }

// sizes are those of the documents that the domains serve.
func (s *domainStudy) sizes() (all []int) {
	for _, c := range s.spec.Cases {
		all = append(all, c.Size)
	}
	for _, c := range s.spec.Configurations {
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
func (s *domainStudy) Renew(context.Context, experiment.Execution) error {
	for _, d := range s.domains {
		d.stale = true
	}
	return nil
}

// present gives an execution its domains: it pauses all others, lets these run with their
// weights, and starts their servers where that is needed.
func (s *domainStudy) present(ctx context.Context, c stack.Configuration) ([]*domain, error) {
	names := c.DomainNames()
	for name, d := range s.domains {
		if !slices.Contains(names, name) {
			if err := d.pause(ctx); err != nil {
				return nil, fmt.Errorf("pause %s: %w", name, err)
			}
		}
	}
	var here []*domain
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
func (s *domainStudy) clientPlace() place.Place {
	return place.Within{
		Place: s.clientNetwork(s.spec.Configurations[0]), Enter: []string{"taskset", "--cpu-list", s.generators}, Name: "the clients",
	}
}

// clientCommand is the command of a load generator.
func (s *domainStudy) clientCommand(p workload.Params, d *domain, rate int) []string {
	command := workload.DomainClient(p, workload.Endpoint{Address: d.machine.address, Port: d.port}, rate, s.sources[:min(max(p.Clients, 1), len(s.sources))])
	command[0] = filepath.Join(s.options.Binaries, filepath.Base(workload.Generator))
	return command
}

// Down ends the servers and takes the domains down.
func (s *domainStudy) Down() error {
	for _, d := range s.domains {
		if d.service != nil {
			d.service.stopServers()
		}
	}
	return s.Bench.Down()
}

// The load of the steps by which the full loads are found.
const (
	stepWarmup   = 300 * time.Millisecond
	stepDuration = 1200 * time.Millisecond
)

// findFullLoads raises the load of one domain of each type and size that the cases load with a
// share of the full load, alone, until its throughput falls.
func (s *domainStudy) findFullLoads(ctx context.Context) error {
	for _, c := range s.spec.Configurations {
		for _, i := range c.Active() {
			for _, k := range s.spec.Cases {
				of := fullOf{c.Domains[i].Type, sizeOf(c.Domains[i], k)}
				if k.Intensity == 0 || s.full[of] > 0 {
					continue
				}
				s.options.Progress.Phase(fmt.Sprintf("find the full load of %s with %d B", strings.ToUpper(string(of.kind)), of.size))
				if err := s.findFullLoad(ctx, of, k); err != nil {
					return fmt.Errorf("find the full load of %s with %d B: %w", of.kind, of.size, err)
				}
			}
		}
	}
	return nil
}

func (s *domainStudy) findFullLoad(ctx context.Context, of fullOf, k experiment.Case) error {
	k.Params.Intensity, k.Params.Warmup, k.Params.Duration, k.Size = 0, stepWarmup, stepDuration, of.size
	alone := stack.Configuration{Name: string(of.kind), Stack: of.kind.Stack(), Domains: []stack.Domain{{Type: of.kind}}}
	peak, err := s.raise(ctx, experiment.Execution{Configuration: alone, Case: k})
	if err != nil {
		return err
	}
	s.full[of] = peak.loads[0].throughput()
	text := fmt.Sprintf("The full load of %s with documents of %d B was %.0f requests/s.", strings.ToUpper(string(of.kind)), of.size, s.full[of])
	s.holds(text)
	if peak.limit != "" {
		s.note(text + " The load generator was at its limit or late: " + peak.limit + ".")
	}
	return nil
}
