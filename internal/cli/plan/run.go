package plan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"unnest/internal/cli/document"
	"unnest/internal/cli/terminal"
	"unnest/internal/plan/bound"
	"unnest/internal/plan/pack"
)

// run reads, plans and prints. Nothing is written before everything is planned.
func run(ctx context.Context, opts Options) error {
	s, err := newSetting(opts)
	if err != nil {
		return err
	}
	if err := opts.writable(); err != nil {
		return err
	}
	var price *CutPrice
	if opts.HostloRun != "" {
		if price, err = newCutPrice(opts, s.catalogue); err != nil {
			return err
		}
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
	if opts.Explain != "" {
		return s.explain(opts.Streams.Out, c, opts.Explain)
	}
	if opts.Frontier {
		result, err := s.frontier(ctx, c, price, newSetup(opts, s), p)
		if err != nil {
			return fmt.Errorf("plan: %w", err)
		}
		p.clear()
		return opts.Output.write(opts.Streams, result)
	}
	all, err := s.compare(ctx, c, p)
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	p.clear()
	users, split := parts(all)
	result := newResult(users, newSetup(opts, s), c.readings, s.shard)
	if opts.Manifests != "" {
		if err := writeManifests(opts.Manifests, split); err != nil {
			return err
		}
	}
	return opts.Output.write(opts.Streams, result)
}

// writable returns an error unless everything can be written that is asked for.
func (o Options) writable() error {
	if o.Manifests != "" {
		if err := mayFill(o.Manifests); err != nil {
			return err
		}
	}
	return o.Output.check()
}

func parts(all []planned) (users []User, split []splitPod) {
	for _, p := range all {
		users = append(users, p.row)
		split = append(split, p.split...)
	}
	return users, split
}

// printable is a result that every output can have.
type printable interface {
	Text(w io.Writer) error
	JSON(w io.Writer) error
	HTML(w io.Writer) error
}

// write prints the result wherever it was asked for.
func (o Output) write(streams terminal.Streams, r printable) error {
	if o.HTML != "" {
		if err := document.WriteFile(o.HTML, r.HTML); err != nil {
			return err
		}
	}
	show := r.Text
	if o.JSON {
		show = r.JSON
	}
	if o.File != "" {
		return document.WriteFile(o.File, show)
	}
	if err := show(streams.Out); err != nil {
		return fmt.Errorf("print the plan: %w", err)
	}
	return nil
}

// explain plans one user and tells every step.
func (s setting) explain(w io.Writer, c crowd, name string) error {
	var near []string
	for u := range c.users {
		if u.Name != name {
			near = append(near, u.Name)
			continue
		}
		s.plan.Explain = true
		study, err := pack.Compare(u, s.catalogue, s.plan)
		if err != nil {
			return err
		}
		bound := bound.Of(study.User, s.catalogue, bound.Options{Known: study.Best.Cost})
		return explainStudy(w, study, s.catalogue, dollars(bound.Best))
	}
	if len(near) == 0 {
		return fmt.Errorf("explain %s: the trace has no users: see the report without --explain", name)
	}
	slices.Sort(near)
	more := ""
	if len(near) > 3 {
		near, more = near[:3], " …; --json lists all"
	}
	return fmt.Errorf("explain %s: the trace has no such user: choose one such as %s%s", name, strings.Join(near, ", "), more)
}

// mayFill returns an error unless the directory is empty or not there.
func mayFill(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("write manifests: %w: name a new directory", err)
	case len(entries) > 0:
		return fmt.Errorf("write manifests: %s is not empty: name a new directory", dir)
	}
	return nil
}
