package plan

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"unnest/internal/plan/cluster"
	"unnest/internal/plan/manifest"
	"unnest/internal/plan/study"
	"unnest/internal/plan/summary"
	page "unnest/internal/report/document"
	"unnest/internal/report/plans"
)

// run reads, plans and prints. It writes nothing before all is planned.
func run(ctx context.Context, opts Options) error {
	s, err := newSetting(ctx, opts)
	if err != nil {
		return err
	}
	if err := opts.writable(); err != nil {
		return err
	}
	var price *summary.CutPrice
	if opts.HostloRun != "" {
		latency, err := readLatency(opts.HostloRun, opts.HostloCase)
		if err != nil {
			return err
		}
		price = summary.NewCutPrice(latency, opts.LinkCPU, s.catalogue)
	}
	p := newProgress(opts.Streams.Err, opts.Streams.ErrWidth)
	defer p.clear()
	if opts.Replay {
		return s.replay(ctx, opts, p)
	}
	c, err := s.read(ctx, p)
	if err != nil {
		return err
	}
	if s.today = c.today; s.today != nil {
		s.plan.Bundle = 0 // every container has a place
	}
	if opts.Explain != "" {
		doc, err := s.explain(c, opts.Explain)
		if err != nil {
			return err
		}
		p.clear()
		return opts.Output.write(opts.Streams, doc)
	}
	if opts.Frontier {
		result, err := s.frontier(ctx, c, price, newSettings(opts, s), p)
		if err != nil {
			return fmt.Errorf("plan: %w", err)
		}
		p.clear()
		return opts.Output.write(opts.Streams, plans.Frontier(result))
	}
	if c.today != nil {
		s.catalogue = c.today.Models
	}
	if c.users, err = s.readUse(ctx, c, p); err != nil {
		return err
	}
	all, err := s.compare(ctx, c, p)
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	p.clear()
	users, split, pools := parts(all)
	if err := summary.Addable(users); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	result := summary.Sum(users, newSettings(opts, s), c.readings, s.shard)
	if c.today != nil {
		result.Today = c.today.summary(pools)
	}
	if s.sizing != nil {
		result.TakeUse(s.useSummary(all))
	}
	if opts.Requests != "" {
		if err := writeFiles(opts.Requests, "requests", manifest.Requests(result.Use.Changes)); err != nil {
			return err
		}
	}
	if opts.Manifests != "" {
		if err := writeFiles(opts.Manifests, "manifests", manifest.Files(split)); err != nil {
			return err
		}
	}
	if opts.VMs != "" {
		if c.today == nil {
			return errors.New("--write-vms: the input has no nodes: name a dump of kubectl get nodes,pods -A -o json")
		}
		if err := writeFiles(opts.VMs, "VMs", manifest.VMs(*result.Today, opts.Scheme == "whole")); err != nil {
			return err
		}
	}
	return opts.Output.write(opts.Streams, plans.Plan(result))
}

// writable returns an error unless all output files can be written.
func (o Options) writable() error {
	for dir, what := range map[string]string{o.Manifests: "manifests", o.VMs: "VMs", o.Requests: "requests"} {
		if dir == "" {
			continue
		}
		if err := mayFill(dir, what); err != nil {
			return err
		}
	}
	return o.Output.check()
}

func parts(all []planned) (users []summary.User, split []manifest.Pod, pools []summary.PoolCost) {
	for _, p := range all {
		if p.pool != nil {
			pools = append(pools, *p.pool)
		}
		users = append(users, p.row)
		split = append(split, p.split...)
	}
	return users, split, pools
}

// explain plans one user and explains every step.
func (s setting) explain(c input, name string) (page.Document, error) {
	s.today = c.today
	var near []string
	namespace := cluster.User{Name: name}
	explain := func(u cluster.User) (page.Document, error) {
		s.plan.Explain = true
		models, err := s.models(u)
		if err != nil {
			return page.Document{}, err
		}
		compared, low, err := study.Of(u, models, s.plan, s.start(u)...)
		if err != nil {
			return page.Document{}, err
		}
		return plans.Explain(compared, models, summary.Dollars(low)), nil
	}
	for u := range c.users {
		if u.Name == name {
			return explain(u)
		}
		near = append(near, u.Name)
		for _, p := range u.Pods {
			if p.Origin != nil && p.Origin.Namespace == name {
				p.Name = p.Origin.Name
				namespace.Pods, namespace.PerVM = append(namespace.Pods, p), u.PerVM
			}
		}
	}
	if len(namespace.Pods) > 0 {
		s.today = nil
		return explain(namespace)
	}
	if len(near) == 0 {
		return page.Document{}, fmt.Errorf("explain %s: the trace has no users", name)
	}
	slices.Sort(near)
	more := ""
	if len(near) > 3 {
		near, more = near[:3], " …; --json lists all"
	}
	return page.Document{}, fmt.Errorf("explain %s: the trace has no such user: want one such as %s%s", name, strings.Join(near, ", "), more)
}

// mayFill returns an error unless the directory is empty or does not exist.
func mayFill(dir, what string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("write %s: %w: name a new directory", what, err)
	case len(entries) > 0:
		return fmt.Errorf("write %s: %s is not empty: name a new directory", what, dir)
	}
	return nil
}
