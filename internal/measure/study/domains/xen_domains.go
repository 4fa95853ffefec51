package domains

import (
	"context"
	"errors"
	"fmt"

	"unnest.io/unnest/internal/measure/machines"
	"unnest.io/unnest/internal/measure/machines/cgroup"
	"unnest.io/unnest/internal/measure/machines/machine"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/testbed/xen"
)

// checkXenDomains refuses domains of Xen next to others: Xen divides the processors of its host
// among its domains, and this host's kernel knows only the one QEMU that they are all in.
func (s *Study) checkXenDomains(c stack.Configuration) error {
	for _, one := range s.Spec.Configurations {
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
func (s *Study) startXen(ctx context.Context, d *guestDomain) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.single(d)
	h, err := s.XenHost(ctx, c)
	if err != nil {
		return err
	}
	if s.onXen == nil && h.Booted {
		if err := s.xenGroup(h); err != nil {
			return err
		}
	}
	if s.onXen != h {
		s.onXen, s.counters = h, s.chooseXenCounters(ctx, h)
	}
	size, err := s.Spec.Resources(c)
	if err != nil {
		return err
	}
	config := xen.Config{Name: d.name, Kind: machines.KindOf(c.Stack), VCPUs: size.VCPUs, Memory: size.Memory}
	m, err := h.BringUp(ctx, config, s.Options.Progress)
	if err != nil {
		return err
	}
	d.xen, d.machine = m.Domain, m
	if m.Facts, m.Boot, err = machine.Describe(ctx, m.Place, d.name); err != nil {
		return m.Explain(err)
	}
	s.Add(d.name, m)
	return nil
}

// single is the configuration of a domain alone.
func (s *Study) single(d *guestDomain) stack.Configuration {
	of := s.Spec.Configurations[0]
	return stack.Configuration{Name: d.name, Stack: d.kind.Stack(), Host: of.Host, Identity: of.Identity}
}

// xenGroup keeps the Xen host on the processors of the domains.
func (s *Study) xenGroup(h *machines.XenHost) error {
	g, err := cgroup.New(cgroup.Root, cgroup.OfLab(s.Lab.ID())+"/"+machines.XenNode, s.processors)
	if err != nil {
		return err
	}
	return g.Join(h.Machine.Node.PID)
}

// share gives a domain its weight, and a container its limit.
func (s *Study) share(ctx context.Context, d *guestDomain, weight int) error {
	if d.xen != nil {
		return d.xen.Weigh(ctx, weight)
	}
	limit := 0
	if d.kind == stack.CON {
		limit = s.Spec.Guest.VCPUs
	}
	return errors.Join(d.group.Weigh(weight), d.group.Limit(limit))
}

// remove removes the machine of a domain that has ended, that of Xen only while its host runs.
func (s *Study) remove(ctx context.Context, d *guestDomain) error {
	if d.xen == nil {
		return s.Remove(d.name, d.machine)
	}
	if err := s.onXen.Machine.Died(); err != nil {
		return err
	}
	return s.Destroy(ctx, d.name, d.machine)
}
