package plan

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/plan/catalogue"
	"unnest.io/unnest/internal/plan/costing"
	"unnest.io/unnest/internal/plan/pack"
	"unnest.io/unnest/internal/plan/summary"
	"unnest.io/unnest/internal/plan/trace"
)

// command is what the flags ask for.
type command struct {
	opts       Options
	sources    []source
	columns    *trace.Columns // nil: none
	trace      trace.Options
	shard      *summary.Shard // nil: all users
	offer      catalogue.Offer
	setting    costing.Setting
	uses       []useSource
	links      links
	hostlo     hostloRun
	migrations int
	target     target
}

// parse returns what the flags ask for. It reads the files of catalogues, columns and links.
func parse(opts Options) (c command, err error) {
	c.opts = opts
	for _, take := range []func(*command) error{
		(*command).takeColumns, (*command).takeTraces, (*command).takeTraceOptions, (*command).takeShard, (*command).takePacking,
		(*command).takeWrite, (*command).takeUses, (*command).takeLinks, (*command).takeReplay, (*command).takeOffer,
	} {
		if err := take(&c); err != nil {
			return c, err
		}
	}
	return c, nil
}

// ownerCluster is the owner that pays for a cluster as a whole.
const ownerCluster = "cluster"

func (c *command) takeTraceOptions() (err error) {
	c.trace.Stdin, c.trace.Columns = c.opts.Streams.In, c.columns
	label, isLabel := strings.CutPrefix(c.opts.Owner, "label=")
	switch {
	case isLabel && label != "":
		c.trace.OwnerLabel = label
	case c.opts.Owner == ownerCluster:
		c.trace.OneOwner = true
	case c.opts.Owner != "namespace" && c.opts.Owner != "":
		return usage.Errorf("--owner %s: want namespace, label=KEY or cluster", c.opts.Owner)
	}
	if c.opts.At != "" {
		c.trace.Period, err = parsePeriod(c.opts.At)
	}
	return err
}

func parsePeriod(text string) (*trace.Period, error) {
	from, to, isSpan := strings.Cut(text, "..")
	if !isSpan {
		to = from
	}
	a, errA := time.ParseDuration(from)
	b, errB := time.ParseDuration(to)
	if errA != nil || errB != nil || a < 0 || b < a {
		return nil, usage.Errorf("--at %s: want a time since the trace's 0, such as 0 or 50m, or two, such as 1h..2h", text)
	}
	return &trace.Period{From: a, To: b}, nil
}

func (c *command) takeShard() (err error) {
	if c.opts.Shard != "" {
		c.shard, err = parseShard(c.opts.Shard)
	}
	return err
}

func parseShard(text string) (*summary.Shard, error) {
	index, of, ok := strings.Cut(text, "/")
	i, errI := strconv.Atoi(index)
	n, errN := strconv.Atoi(of)
	if !ok || errI != nil || errN != nil || i < 0 || i >= n {
		return nil, usage.Errorf("--shard %s: want I/N with I from 0 to N-1, such as 0/8", text)
	}
	return &summary.Shard{Index: i, Of: n}, nil
}

func (c *command) takePacking() (err error) {
	if least := c.opts.Least; !(least >= 0 && least < 1e6) {
		return usage.Errorf("--min-saving %v: want dollars for an hour, such as 0.5", least)
	}
	if c.setting.Packing, err = pack.Parse(c.opts.Packing); err != nil {
		return usage.Errorf("--packing %w", err)
	}
	c.setting.Packing.Oversize = pack.Oversize(c.opts.Oversize)
	return nil
}

// target is a directory to write to, and the plan that is written.
type target struct{ scheme, dir string }

func (c *command) takeWrite() error {
	if c.opts.Write == "" {
		return nil
	}
	c.target = target{"best", c.opts.Write}
	if scheme, dir, ok := strings.Cut(c.opts.Write, ":"); ok && slices.Contains([]string{"best", "spread", "hostlo", "whole"}, scheme) {
		c.target = target{scheme, dir}
	}
	if c.target.dir == "" {
		return usage.Errorf("--write %s: want [PLAN:]DIR, such as whole:vms", c.opts.Write)
	}
	if c.setting.Packing.Oversize == pack.Cut {
		return usage.Errorf("--write with --oversize cut: a part of a pod has no manifest: omit --oversize, or use larger VMs")
	}
	c.setting.Scheme = c.target.scheme
	return nil
}

func (c *command) takeReplay() (err error) {
	if c.opts.Replay == "" {
		return nil
	}
	if c.migrations, err = strconv.Atoi(c.opts.Replay); err != nil || c.migrations < 0 {
		return usage.Errorf("--replay=%s: want a number of containers from 0, such as --replay=20", c.opts.Replay)
	}
	if c.opts.At != "" && !strings.Contains(c.opts.At, "..") {
		return usage.Errorf("--replay --at %s: want two times, such as 0..1h", c.opts.At)
	}
	return nil
}

// settings says what the figures depend on.
func (c *command) settings() summary.Settings {
	s := c.setting.Settings(c.offer)
	s.At = c.opts.At
	if c.trace.OwnerLabel != "" {
		s.Owner = c.opts.Owner
	}
	return s
}
