package plan

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/costing"
	"unnest.io/unnest/internal/plan/fleet"
	"unnest.io/unnest/internal/plan/kubernetes"
	"unnest.io/unnest/internal/plan/summary"
	"unnest.io/unnest/internal/plan/synthetic"
	"unnest.io/unnest/internal/plan/trace"
)

// Formats that have options of their own.
const (
	formatKubectl = "kubectl"
	generated     = "generated" // random users
)

// source is the files of a format. Without one, the content of the file tells it.
type source struct {
	format string
	paths  []string
}

func (c *command) takeColumns() error {
	if c.opts.Columns == "" {
		return nil
	}
	data, err := os.ReadFile(c.opts.Columns)
	if err != nil {
		return fmt.Errorf("--columns: %w", err)
	}
	c.columns, err = trace.ParseColumns(c.opts.Columns, data)
	return err
}

func (c *command) takeTraces() error {
	formats := append(trace.Formats(), generated)
	if c.columns != nil {
		formats = append(formats, c.columns.Name())
	}
	if c.opts.Kubeconfig != "" {
		c.sources = []source{{formatKubectl, []string{liveCluster}}}
	}
	if len(c.opts.Traces)+len(c.sources) == 0 {
		return usage.Errorf("missing --trace [FORMAT:]PATH, such as --trace generated:1; the formats are %s", strings.Join(formats, ", "))
	}
	stdin := 0
	for _, t := range c.opts.Traces {
		format, path, err := parseTrace(t, formats)
		if err != nil {
			return err
		}
		if format == "" && c.columns != nil {
			format = c.columns.Name()
		}
		c.sources = append(c.sources, source{format, []string{path}})
		if path == "-" {
			stdin++
		}
		if stdin > 1 {
			return usage.Errorf("--trace %s: standard input is named twice: it can be read once", t)
		}
	}
	return nil
}

// parseTrace returns the format, which is empty if the content is to tell it, and the path.
func parseTrace(text string, formats []string) (format, path string, err error) {
	format, path, ok := strings.Cut(text, ":")
	_, missing := os.Stat(text)
	switch {
	case !ok && slices.Contains(formats, text) && missing != nil, ok && path == "":
		return "", "", usage.Errorf("--trace %s: want FORMAT:PATH, such as csv:pods.csv; the formats are %s", text, strings.Join(formats, ", "))
	case !ok || missing == nil && !slices.Contains(formats, format):
		return "", text, nil
	case format == "parquet":
		return "", "", usage.Errorf("--trace %s: Parquet files are not read: write a CSV file with DuckDB, as docs/plan.md shows, and name it csv:PATH", text)
	case !slices.Contains(formats, format):
		return "", "", usage.Errorf("--trace %s: unknown format %q%s; the formats are %s", text, format, usage.Suggest(format, "", formats), strings.Join(formats, ", "))
	}
	return format, path, nil
}

// guess finds the formats of sources without one, and puts sources of one format together.
func (c *command) guess(ctx context.Context) error {
	var all []source
	for _, s := range c.sources {
		if s.format == "" {
			var err error
			if s.format, c.trace.Stdin, err = trace.Guess(ctx, s.paths[0], c.trace.Stdin); err != nil {
				return err
			}
		}
		if at := slices.IndexFunc(all, func(other source) bool { return other.format == s.format }); at >= 0 {
			all[at].paths = append(all[at].paths, s.paths...)
		} else {
			all = append(all, s)
		}
	}
	c.sources = all
	for _, s := range c.sources {
		switch {
		case s.format == formatKubectl || s.cluster():
		case len(c.uses) > 0:
			return usage.Errorf("--use with --trace %s:%s: want a dump of kubectl: other traces do not name pods as metrics do", s.format, s.paths[0])
		case c.links.from == linksAnnotations:
			return usage.Errorf("--links annotations with --trace %s:%s: only kubectl dumps have annotations: name a CSV file", s.format, s.paths[0])
		case c.opts.Replay != "" && s.format == generated:
			return usage.Errorf("--replay --trace %s:%s: want google2011:PATH or sorted columns: only events sorted by time can be replayed", s.format, s.paths[0])
		}
	}
	return nil
}

func (s source) cluster() bool {
	return s.format == generated && strings.HasPrefix(s.paths[0], eksNodes)
}

// input is users to plan.
type input struct {
	users    iter.Seq[cluster.User]
	count    int // an upper bound, for the progress
	readings []summary.Reading
	pods     []cluster.Pod // of a cluster, also those on nodes that stay
}

// read reads all traces. With several formats, users are named FORMAT/USER. The users of a cluster
// with nodes are its pools: see costing.Today.
func (c *command) read(ctx context.Context, p *progress) (input, error) {
	if len(c.sources) == 1 && c.sources[0].format == generated && !c.sources[0].cluster() {
		return c.generate(c.sources[0].paths)
	}
	in := input{}
	var all []cluster.User
	for _, from := range c.sources {
		if from.format == generated && len(c.sources) > 1 {
			return in, usage.Errorf("--trace %s:%s: cannot be combined with a trace: plan them one after the other", generated, from.paths[0])
		}
		p.phase("reading " + strings.Join(from.paths, ", "))
		opened, err := c.open(ctx, from)
		if err != nil {
			return in, err
		}
		users, report, err := trace.Read(ctx, opened.format, opened.paths, opened.options)
		if err != nil {
			return in, err
		}
		if opened.remark != "" {
			report.Remarks = append(report.Remarks, opened.remark)
		}
		if len(report.Nodes) > 0 && opened.options.OneOwner && len(c.sources) == 1 && c.shard == nil {
			return c.cluster(users, report)
		}
		in.readings = append(in.readings, c.reading(report, users))
		for _, u := range users {
			if len(c.sources) > 1 {
				u.Name = from.format + "/" + u.Name
			}
			if c.shard.Has(u.Name) {
				all = append(all, u)
			}
		}
	}
	// The largest first, so that all processors end at about the same time.
	slices.SortStableFunc(all, func(a, b cluster.User) int { return cmp.Compare(summary.Containers(b), summary.Containers(a)) })
	in.users, in.count = slices.Values(all), len(all)
	return in, nil
}

// cluster returns the pools of a cluster with nodes.
func (c *command) cluster(users []cluster.User, r trace.Report) (in input, err error) {
	var pods []cluster.Pod
	for _, u := range users {
		pods = append(pods, u.Pods...)
	}
	dump := fleet.Cluster{Nodes: r.Nodes, Pods: pods, DaemonSets: r.DaemonSets, Bound: r.Bound, Selectors: r.Selectors, Limits: r.Limits}
	today, err := costing.NewToday(dump, r.Rules, c.offer)
	if err != nil {
		return in, err
	}
	reading := newReading(r)
	reading.Remarks = append(reading.Remarks, today.Remarks...)
	today.MinSaving = summary.Dollars(c.opts.Least * float64(cluster.Dollar))
	c.setting.Today = today
	return input{today.Users(), len(today.Pools), []summary.Reading{reading}, pods}, nil
}

// opened is a source that can be read.
type opened struct {
	format  string
	paths   []string
	options trace.Options
	remark  string
}

// open returns how to read a source, with what it prints on standard input if it is no file.
func (c *command) open(ctx context.Context, from source) (o opened, err error) {
	o = opened{format: from.format, paths: from.paths, options: c.trace}
	switch {
	case len(from.paths) == 1 && from.paths[0] == liveCluster:
		var text []byte
		if text, o.remark, err = dump(ctx, c.opts); err != nil {
			return o, err
		}
		o.stream(bytes.NewReader(text))
	case from.format == generated:
		cluster, err := syntheticCluster(from.paths)
		if err != nil {
			return o, err
		}
		var text bytes.Buffer
		if err := cluster.WriteDump(&text); err != nil {
			return o, err
		}
		o.format = formatKubectl
		o.stream(&text)
	}
	if o.format == formatKubectl && c.opts.Owner == "" {
		o.options.OneOwner = true
	}
	return o, nil
}

func (o *opened) stream(r io.Reader) { o.paths, o.options.Stdin = []string{"-"}, r }

// eksNodes begins the path of a generated cluster.
const eksNodes = "eks="

func syntheticCluster(paths []string) (c kubernetes.SyntheticCluster, err error) {
	nodes, seed, _ := strings.Cut(strings.TrimPrefix(paths[0], eksNodes), ",")
	n, err := strconv.Atoi(nodes)
	first, errSeed := strconv.ParseUint(cmp.Or(seed, "1"), 10, 64)
	if err != nil || errSeed != nil || n < 3 || n > 10_000 || len(paths) > 1 {
		return c, usage.Errorf("--trace %s:%s: want one eks=NODES or eks=NODES,SEED with 3 to 10000 nodes, such as eks=50", generated, strings.Join(paths, " "))
	}
	return kubernetes.SyntheticCluster{Seed: first, Nodes: n}, nil
}

// generate returns random users, one at a time, so memory does not grow with the scale.
func (c *command) generate(paths []string) (input, error) {
	const usersOfOne = 507
	scale, seed, _ := strings.Cut(paths[0], ",")
	n, err := strconv.Atoi(scale)
	first, errSeed := strconv.ParseUint(cmp.Or(seed, "1"), 10, 64)
	if err != nil || errSeed != nil || n < 1 || len(paths) > 1 {
		return input{}, usage.Errorf("--trace %s:%s: want one SCALE or SCALE,SEED; %s:1 has 507 users", generated, strings.Join(paths, " "), generated)
	}
	users := func(yield func(cluster.User) bool) {
		for u := range (synthetic.Users{Seed: first, Scale: n}).All() {
			if c.shard.Has(u.Name) && !yield(u) {
				return
			}
		}
	}
	count := usersOfOne * n
	if c.shard != nil {
		count /= c.shard.Of
	}
	reading := summary.Reading{Format: fmt.Sprintf("%s, scale %d, seed %d", generated, n, first), Excluded: []summary.Reason{}, Notes: []summary.Reason{}, Examples: []string{}}
	return input{users: users, count: count, readings: []summary.Reading{reading}}, nil
}
