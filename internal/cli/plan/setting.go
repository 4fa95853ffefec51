package plan

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"unnest/internal/cli/usage"
	"unnest/internal/plan/cluster"
	"unnest/internal/plan/pack"
	"unnest/internal/plan/summary"
	"unnest/internal/plan/trace"
	"unnest/internal/plan/use"
)

type setting struct {
	catalogue cluster.Catalogue
	plan      pack.Options
	trace     trace.Options
	sources   []source
	shard     *summary.Shard
	opts      Options
	today     *today // nil: there are no nodes
	uses      []useSource
	sizing    *use.Sizing // nil: the use is unknown
	fewest    int         // samples of a container in it
	daemons   bool        // --daemonsets says what runs on every VM
	scheme    string      // plan whose split pods are kept; empty: none
	pairs     float64
	links     string       // where they are from, for --frontier
	linkFile  *trace.Links // nil: none
}

// Sources of links that are not a file.
const (
	linksAll         = "all"         // every two containers of a pod, with weight 1
	linksAnnotations = "annotations" // of the pods in a kubectl dump
)

type source struct {
	format string
	paths  []string
}

func newSetting(ctx context.Context, opts Options) (s setting, err error) {
	s.plan, s.opts = opts.Plan, opts
	if opts.Manifests == "" && opts.Explain == "" && len(opts.Uses) == 0 {
		s.plan.Bundle = mostSingle
	}
	if opts.Kubeconfig != "" {
		opts.Traces = append(opts.Traces, "kubectl:"+liveCluster)
	}
	if s.sources, err = parseTraces(opts.Traces); err != nil {
		return s, err
	}
	if s.trace, err = traceOptions(opts); err != nil {
		return s, err
	}
	if opts.Shard != "" {
		if s.shard, err = parseShard(opts.Shard); err != nil {
			return s, err
		}
	}
	if opts.Host != "" {
		if s.plan.Host, _, err = parseResources("host", opts.Host, false); err != nil {
			return s, err
		}
	}
	if opts.Plan.Rounds < 0 || opts.Plan.Effort < 0 {
		return s, usage.Errorf("--rounds %d, --effort %d: want 0 or more", opts.Plan.Rounds, opts.Plan.Effort)
	}
	if opts.Manifests != "" {
		if s.plan.Oversize == pack.Cut {
			return s, usage.Errorf("--write-manifests with --oversize cut: a part of a pod has no manifest: omit --oversize, or use larger VMs")
		}
		s.scheme = opts.Scheme
	}
	if s.uses, err = parseUses(opts); err != nil {
		return s, err
	}
	if err := s.takeLinks(ctx, opts); err != nil {
		return s, err
	}
	if err := checkReplay(opts); err != nil {
		return s, err
	}
	if s.catalogue, err = loadCatalogue(opts); err != nil {
		return s, err
	}
	s.daemons = opts.Daemons != ""
	_, err = pack.Kubernetes(cluster.User{}, s.catalogue, s.plan) // checks the options
	return s, err
}

// mostSingle is the most containers of a user that are planned one by one, so that a user of
// millions takes minutes and a few GB.
const mostSingle = 200_000

// ownerCluster is the owner that pays for a cluster as a whole.
const ownerCluster = "cluster"

// options returns how to read a format. Without --owner, a kubectl dump has one owner.
func (s setting) options(format string) trace.Options {
	o := s.trace
	if format == "kubectl" && s.opts.Owner == "" {
		o.OneOwner = true
	}
	return o
}

// takeLinks checks the flags of --frontier and finds the source of links.
func (s *setting) takeLinks(ctx context.Context, opts Options) (err error) {
	switch {
	case !opts.Frontier && (opts.Links != linksAll || opts.HostloRun != ""):
		return usage.Errorf("--links and --hostlo-run need --frontier: add it")
	case opts.HostloRun == "" && (opts.HostloCase != "" || opts.LinkCPU != defaultLinkCPU):
		return usage.Errorf("--hostlo-case and --link-cpu need --hostlo-run: add it")
	case !(opts.LinkCPU > 0) || opts.LinkCPU > 1e6:
		return usage.Errorf("--link-cpu %v: want a number of vCPUs above 0", opts.LinkCPU)
	case !opts.Frontier:
		return nil
	}
	s.links = opts.Links
	switch opts.Links {
	case linksAll:
		s.pairs = 1
	case linksAnnotations:
		for _, from := range s.sources {
			if from.format != "kubectl" {
				return usage.Errorf("--links annotations with --trace %s:%s: only kubectl dumps have annotations: name a CSV file", from.format, from.paths[0])
			}
		}
		s.trace.Links = true
	default:
		if s.linkFile, err = trace.ReadLinks(ctx, opts.Links); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("--links %w: name a CSV file, %s or %s", err, linksAll, linksAnnotations)
		}
	}
	return err
}

// generated is the format of random users.
const generated = "generated"

func parseTraces(traces []string) ([]source, error) {
	formats := append(trace.Formats(), generated)
	if len(traces) == 0 {
		return nil, usage.Errorf("missing --trace FORMAT:PATH, such as --trace generated:1; the formats are %s", strings.Join(formats, ", "))
	}
	var sources []source
	stdin := 0
	for _, t := range traces {
		format, path, ok := strings.Cut(t, ":")
		if !ok || path == "" {
			return nil, usage.Errorf("--trace %s: want FORMAT:PATH, such as csv:pods.csv; the formats are %s", t, strings.Join(formats, ", "))
		}
		if !slices.Contains(formats, format) {
			return nil, usage.Errorf("--trace %s: unknown format %q%s; the formats are %s", t, format, usage.Suggest(format, "", formats), strings.Join(formats, ", "))
		}
		at := slices.IndexFunc(sources, func(s source) bool { return s.format == format })
		if at < 0 {
			at, sources = len(sources), append(sources, source{format: format})
		}
		sources[at].paths = append(sources[at].paths, path)
		if path == "-" {
			stdin++
		}
		if stdin > 1 {
			return nil, usage.Errorf("--trace %s: standard input is named twice: it can be read once", t)
		}
	}
	return sources, nil
}

func traceOptions(opts Options) (o trace.Options, err error) {
	o.MaxBroken, o.MaxContainers, o.Stdin = opts.MaxBroken, opts.MaxContainers, opts.Streams.In
	if o.MaxContainers < 0 {
		return o, usage.Errorf("--max-containers %d: want a number above 0", o.MaxContainers)
	}
	if opts.MaxBroken > 0 {
		o.MaxBrokenShare = -1 // the number alone decides
	}
	label, isLabel := strings.CutPrefix(opts.Owner, "label=")
	switch {
	case isLabel && label != "":
		o.OwnerLabel = label
	case opts.Owner == ownerCluster:
		o.OneOwner = true
	case opts.Owner != "namespace" && opts.Owner != "":
		return o, usage.Errorf("--owner %s: want namespace, label=KEY or cluster", opts.Owner)
	}
	if opts.At != "" {
		o.Period, err = parsePeriod(opts.At)
	}
	return o, err
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

func parseShard(text string) (*summary.Shard, error) {
	index, of, ok := strings.Cut(text, "/")
	i, errI := strconv.Atoi(index)
	n, errN := strconv.Atoi(of)
	if !ok || errI != nil || errN != nil || i < 0 || i >= n {
		return nil, usage.Errorf("--shard %s: want I/N with I from 0 to N-1, such as 0/8", text)
	}
	return &summary.Shard{Index: i, Of: n}, nil
}
