package plan

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/cli/document"
	"unnest.io/unnest/internal/cli/usage"
	"unnest.io/unnest/internal/measure/latency"
	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/summary"
	"unnest.io/unnest/internal/plan/trace"
	"unnest.io/unnest/internal/report/provenance"
)

// Sources of links that are not a file.
const (
	linksAll         = "all"         // every two containers of a pod, with weight 1
	linksAnnotations = "annotations" // of the pods in a kubectl dump
)

// links is where the links between containers are from.
type links struct {
	from  string  // empty: no frontier
	pairs float64 // weight of the link of every two containers of a pod
	file  *trace.Links
}

// defaultLinkCPU is the number of vCPUs that a link of weight 1 uses.
const defaultLinkCPU = 0.01

// hostloRun is a run directory with latencies.
type hostloRun struct {
	dir     string // empty: none
	only    string // a case; empty: all with figures
	linkCPU float64
}

// takeLinks takes --links and --hostlo-run.
func (c *command) takeLinks() (err error) {
	if c.links.from = c.opts.Links; c.links.from == "" {
		if c.opts.HostloRun != "" {
			return usage.Errorf("--hostlo-run needs --links: add --links all")
		}
		return nil
	}
	if c.hostlo, err = parseHostloRun(c.opts.HostloRun); err != nil {
		return err
	}
	switch c.links.from {
	case linksAll:
		c.links.pairs = 1
	case linksAnnotations:
		c.trace.Links = true
	default:
		if c.links.file, err = trace.ReadLinks(context.Background(), c.links.from); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("--links %w: name a CSV file, %s or %s", err, linksAll, linksAnnotations)
		}
	}
	return err
}

func parseHostloRun(text string) (hostloRun, error) {
	dir, more, _ := strings.Cut(text, ",")
	r := hostloRun{dir: dir, linkCPU: defaultLinkCPU}
	for _, part := range strings.Split(more, ",") {
		key, value, _ := strings.Cut(part, "=")
		var err error
		switch key {
		case "":
		case "case":
			r.only = value
		case "link-cpu":
			if r.linkCPU, err = strconv.ParseFloat(value, 64); err != nil || !(r.linkCPU > 0) || r.linkCPU > 1e6 {
				return r, usage.Errorf("--hostlo-run %s: link-cpu %s: want a number of vCPUs above 0", text, value)
			}
		default:
			return r, usage.Errorf("--hostlo-run %s: unknown key %q: want DIR[,case=CASE][,link-cpu=VCPUS]", text, key)
		}
	}
	return r, nil
}

// joined returns the users with their links, and says which were used.
func (l links) joined(users iter.Seq[cluster.User]) (iter.Seq[cluster.User], summary.LinkUse, error) {
	use := summary.LinkUse{From: l.from, Pairs: l.pairs}
	if l.file == nil {
		return users, use, nil
	}
	all := slices.Collect(users)
	unused, err := l.file.Join(all)
	use.Rows, use.Unused = l.file.Rows, unused
	return slices.Values(all), use, err
}

// read reads the ratio of latencies from the run directory, and the reasons to trust it less.
func (r hostloRun) read() (summary.Latency, error) {
	input, notes, err := document.Load(r.dir)
	if err != nil {
		return summary.Latency{}, err
	}
	l := summary.Latency{Run: input.Run.ID, Directory: r.dir, State: string(input.Run.State), Accelerator: input.Run.Accelerator,
		Notes: slices.Concat(provenance.Observe(input.Run, input.Samples).Verdict(), provenance.Warnings(input.Run, input.Samples), notes)}
	ratio, cases, err := latency.Compare(r.dir, input.Run, input.Samples, r.only)
	if err != nil {
		return l, err
	}
	l.Ratio = ratio
	for _, c := range cases {
		l.Cases = append(l.Cases, summary.CaseLatency{Case: c.Name, Unit: c.Unit, SameNode: c.SameNode, Hostlo: c.Hostlo, Ratio: c.Ratio, Low: c.Low, High: c.High, Blocks: c.Blocks})
	}
	return l, nil
}
