package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"unnest/internal/measure/result"
	"unnest/internal/measure/stack"
	"unnest/internal/testbed/xen"
)

// checkXenDomains refuses domains of Xen next to others: Xen divides the processors of its host
// among its domains, and this host's kernel knows only the one QEMU that they are all in.
func (s *domainStudy) checkXenDomains(c stack.Configuration) error {
	for _, one := range s.spec.Configurations {
		for _, d := range one.Domains {
			if d.Type.Stack().Xen() != c.Domains[0].Type.Stack().Xen() {
				return fmt.Errorf("domains of Xen have a host of their own: write the others into another file")
			}
		}
		if one.Host != c.Host {
			return fmt.Errorf("host %q, but %q in configuration %s: all domains of a file have one host", c.Host, one.Host, one.Name)
		}
	}
	return nil
}

// startXen creates the domain d on the Xen host of this run. The host's processors are those that
// the study gives domains.
func (s *domainStudy) startXen(ctx context.Context, d *domain) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.single(d)
	h, err := s.xenHost(ctx, c)
	if err != nil {
		return err
	}
	if s.onXen == nil && h.own {
		if err := s.xenGroup(h); err != nil {
			return err
		}
	}
	if s.onXen != h {
		s.onXen, s.counters = h, s.chooseXenCounters(ctx, h)
	}
	size, err := s.spec.Resources(c)
	if err != nil {
		return err
	}
	config := xen.Config{Name: d.name, Kind: kindOf(c.Stack), VCPUs: size.VCPUs, Memory: size.Memory}
	m, err := h.bringUp(ctx, config, s.options.Progress)
	if err != nil {
		return err
	}
	d.xen, d.machine = m.domain, m
	if m.facts, m.boot, err = describeMachine(ctx, m.place, d.name); err != nil {
		return m.explain(err)
	}
	s.running[d.name] = m
	s.facts.Guests = append(s.facts.Guests, m.facts)
	return nil
}

// single is the configuration of a domain alone.
func (s *domainStudy) single(d *domain) stack.Configuration {
	of := s.spec.Configurations[0]
	return stack.Configuration{Name: d.name, Stack: d.kind.Stack(), Host: of.Host, Identity: of.Identity}
}

// xenGroup keeps the Xen host on the processors of the domains.
func (s *domainStudy) xenGroup(h *xenHost) error {
	g, err := makeGroup(groupRoot, groupOf(s.lab.ID())+"/"+xenNode, s.processors)
	if err != nil {
		return err
	}
	return g.join(h.dom0.node.PID)
}

// share gives a domain its weight, and a container its limit.
func (s *domainStudy) share(ctx context.Context, d *domain, weight int) error {
	if d.xen != nil {
		return d.xen.Weigh(ctx, weight)
	}
	limit := 0
	if d.kind == stack.CON {
		limit = s.spec.Guest.VCPUs
	}
	return errors.Join(d.group.weigh(weight), d.group.limit(limit))
}

// restartXen creates a domain again that has ended.
func (s *domainStudy) restartXen(ctx context.Context, d *domain) error {
	if err := s.onXen.dom0.died(); err != nil {
		return err
	}
	if err := errors.Join(d.machine.leave(), d.xen.Destroy(ctx)); err != nil {
		return err
	}
	delete(s.running, d.name)
	s.facts.Guests = slices.DeleteFunc(s.facts.Guests, func(m result.Machine) bool { return m.Name == d.name })
	d.paused, d.stale = false, false
	return s.bringUpDomain(ctx, d)
}
