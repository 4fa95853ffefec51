package plan

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/plan/catalogue"
	"unnest.io/unnest/internal/plan/cluster"
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
	if c.opts.Owner != "" {
		return usage.Errorf("--replay --owner %s: the users of the trace pay: omit --owner", c.opts.Owner)
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

// takeOffer reads what is on sale.
func (c *command) takeOffer() (err error) {
	if c.offer, err = readOffer(c.opts.Catalogues); err != nil {
		return err
	}
	if c.setting.Models, err = c.offer.Allocatable(); err != nil {
		return err
	}
	c.setting.OwnDaemons, c.setting.Packing.Host = c.offer.OwnDaemons, c.offer.Host
	_, err = pack.Kubernetes(cluster.User{}, c.setting.Models, c.setting.Packing) // checks the options
	return err
}

// readOffer reads catalogues, and the offer of a YAML file among them.
func readOffer(names []string) (catalogue.Offer, error) {
	offer := catalogue.Offer{BillingMinimum: catalogue.BillingMinimum}
	read, dirs := "", map[string]string{}
	for _, name := range names {
		if extension := filepath.Ext(name); extension != ".yaml" && extension != ".yml" {
			offer.Catalogues = append(offer.Catalogues, catalogue.Table{Name: name})
			continue
		}
		if read != "" {
			return offer, usage.Errorf("--catalogue %s and %s: want one YAML file: write all into it", read, name)
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return offer, fmt.Errorf("catalogue: %w", err)
		}
		read = name
		before := offer.Catalogues
		if offer, err = catalogue.ParseOffer(name, data); err != nil {
			return offer, err
		}
		for _, t := range offer.Catalogues {
			dirs[t.Name] = filepath.Dir(name)
		}
		offer.Catalogues = append(before, offer.Catalogues...)
	}
	for i, t := range offer.Catalogues {
		if err := readTable(&offer.Catalogues[i], dirs[t.Name]); err != nil {
			return offer, err
		}
	}
	return offer, nil
}

// readTable reads a catalogue that is not built in. A name in a YAML file is relative to dir.
func readTable(t *catalogue.Table, dir string) error {
	if slices.Contains(catalogue.Names(), t.Name) {
		return nil
	}
	if dir != "" && !filepath.IsAbs(t.Name) && strings.ContainsAny(t.Name, "./") {
		t.Name = filepath.Join(dir, t.Name)
	}
	data, err := os.ReadFile(t.Name)
	switch {
	case os.IsNotExist(err):
		_, err = catalogue.Builtin(t.Name) // which says what is built in
		return usage.Wrap(err)
	case err != nil:
		return fmt.Errorf("catalogue: %w", err)
	}
	t.CSV = append([]byte{}, data...)
	return nil
}
