package plan

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"unnest/internal/cli/usage"
	"unnest/internal/plan/catalogue"
	"unnest/internal/plan/cluster"
	"unnest/internal/plan/pack"
	"unnest/internal/plan/summary"
	"unnest/internal/plan/trace"
)

type setting struct {
	catalogue cluster.Catalogue
	plan      pack.Options
	trace     trace.Options
	sources   []source
	shard     *summary.Shard
	scheme    string // plan whose split pods are kept; empty: none
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
	s.plan = opts.Plan
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
	if err := s.takeLinks(ctx, opts); err != nil {
		return s, err
	}
	if err := checkReplay(opts); err != nil {
		return s, err
	}
	if s.catalogue, err = loadCatalogue(opts); err != nil {
		return s, err
	}
	_, err = pack.Kubernetes(cluster.User{}, s.catalogue, s.plan) // checks the options
	return s, err
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
	case opts.Owner != "namespace" && opts.Owner != "":
		return o, usage.Errorf("--owner %s: want namespace or label=KEY", opts.Owner)
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

// loadCatalogue returns the models on sale, with what is allocatable to pods.
func loadCatalogue(opts Options) (cluster.Catalogue, error) {
	var all cluster.Catalogue
	for _, name := range opts.Catalogues {
		c, err := oneCatalogue(name)
		if err != nil {
			return nil, err
		}
		all = append(all, c...)
	}
	all, err := choose(all, opts.Models)
	if err != nil {
		return nil, err
	}
	reserve := catalogue.Reserve{}
	if opts.KubeReserved != "none" {
		reserve.Kube = catalogue.Reservation(opts.KubeReserved)
	}
	if opts.SystemReserved != "" {
		if reserve.System, _, err = parseResources("system-reserved", opts.SystemReserved, false); err != nil {
			return nil, err
		}
	}
	if opts.Daemons != "" {
		if reserve.DaemonSets, reserve.DaemonPods, err = parseResources("daemonsets", opts.Daemons, true); err != nil {
			return nil, err
		}
	}
	return catalogue.Allocatable(all, reserve)
}

// oneCatalogue returns the built-in catalogue of that name, or reads the file.
func oneCatalogue(name string) (cluster.Catalogue, error) {
	if !slices.Contains(catalogue.Names(), name) {
		data, err := os.ReadFile(name)
		if err == nil {
			return catalogue.Parse(name, data)
		}
		if !os.IsNotExist(err) {
			return nil, fmt.Errorf("catalogue: %w", err)
		}
	}
	return catalogue.Builtin(name)
}

// choose keeps the named models; no names keep all.
func choose(c cluster.Catalogue, names []string) (cluster.Catalogue, error) {
	if len(names) == 0 {
		return c, nil
	}
	var kept cluster.Catalogue
	for _, name := range names {
		at := slices.IndexFunc(c, func(m cluster.Model) bool { return m.Name == name })
		if at < 0 {
			var known []string
			for _, m := range c {
				known = append(known, m.Name)
			}
			return nil, fmt.Errorf("model %q is not in the catalogue: want one of %s", name, strings.Join(known, ", "))
		}
		kept = append(kept, c[at])
	}
	return kept, nil
}

// parseResources reads VCPU,MEMORY or VCPU,MEMORY,PODS in the notation of Kubernetes.
func parseResources(flag, text string, pods bool) (r cluster.Resources, n int, err error) {
	want, form := 2, "VCPU,MEMORY, such as 4,16Gi"
	if pods {
		want, form = 3, "VCPU,MEMORY,PODS, such as 0.3,500Mi,4"
	}
	wrong := usage.Errorf("--%s %s: want %s", flag, text, form)
	parts := strings.Split(text, ",")
	if len(parts) != want {
		return r, 0, wrong
	}
	cpu, errCPU := resource.ParseQuantity(parts[0])
	memory, errMemory := resource.ParseQuantity(parts[1])
	if errCPU != nil || errMemory != nil || cpu.Sign() < 0 || memory.Sign() < 0 {
		return r, 0, wrong
	}
	if cpu.Cmp(resource.MustParse("1M")) > 0 || memory.Cmp(resource.MustParse("1Pi")) > 0 {
		return r, 0, wrong
	}
	if pods {
		if n, err = strconv.Atoi(parts[2]); err != nil || n < 0 {
			return r, 0, wrong
		}
	}
	return cluster.Resources{CPU: cpu.ScaledValue(resource.Nano), Memory: memory.Value()}, n, nil
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
