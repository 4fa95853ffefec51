package plan

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"

	"unnest/internal/cli/usage"
	"unnest/internal/plan/cluster"
	"unnest/internal/plan/summary"
	"unnest/internal/plan/trace"
)

func newReading(r trace.Report) summary.Reading {
	reading := summary.Reading{
		Format: r.Format, Files: r.Files, Unread: len(r.Unread), Rows: r.Rows, Kept: r.Kept, Broken: r.Broken,
		Users: r.Users, Pods: r.Pods, Containers: r.Containers,
		Excluded: reasons(r.Excluded), Notes: reasons(r.Notes), Remarks: r.Remarks, Examples: []string{},
	}
	for _, b := range r.Examples {
		reading.Examples = append(reading.Examples, b.String())
	}
	return reading
}

func reasons(counts []trace.Count) []summary.Reason {
	list := []summary.Reason{}
	for _, c := range counts {
		list = append(list, summary.Reason{Why: c.Reason.String(), Rows: c.Rows})
	}
	return list
}

type input struct {
	users    iter.Seq[cluster.User]
	count    int // an upper bound, for the progress
	readings []summary.Reading
	today    *today // nil: the nodes of the cluster are unknown
}

// read reads all traces. With several formats, users are named FORMAT/USER.
func (s setting) read(ctx context.Context, p *progress) (input, error) {
	if len(s.sources) == 1 && s.sources[0].format == generated && !strings.HasPrefix(s.sources[0].paths[0], eksNodes) {
		return s.generate(s.sources[0].paths)
	}
	c := input{}
	var all []cluster.User
	for _, from := range s.sources {
		if from.format == generated && len(s.sources) > 1 {
			return c, usage.Errorf("--trace %s:%s: cannot be combined with a trace: plan them one after the other", generated, from.paths[0])
		}
		p.phase("reading " + strings.Join(from.paths, ", "))
		source, err := s.open(ctx, from)
		if err != nil {
			return c, err
		}
		users, report, err := trace.Read(ctx, source.format, source.paths, source.options)
		if err != nil {
			return c, err
		}
		if source.remark != "" {
			report.Remarks = append(report.Remarks, source.remark)
		}
		if len(report.Nodes) > 0 {
			if source.options.OneOwner && len(s.sources) == 1 && s.shard == nil {
				return s.cluster(users, report)
			}
			report.Remarks = append(report.Remarks, "The nodes are not used: only a cluster as a whole, as with --owner cluster, is compared with its nodes.")
		}
		c.readings = append(c.readings, newReading(report))
		if len(report.DaemonSets) > 0 && len(users) > 0 {
			r := &c.readings[len(c.readings)-1]
			r.Remarks = append(r.Remarks, s.daemonRemark(report.DaemonSets, users[0].PerVM))
		}
		for _, u := range users {
			if len(s.sources) > 1 {
				u.Name = from.format + "/" + u.Name
			}
			if s.shard.Has(u.Name) {
				all = append(all, u)
			}
		}
	}
	// The largest first, so that all processors end at about the same time.
	slices.SortStableFunc(all, func(a, b cluster.User) int { return cmp.Compare(summary.Containers(b), summary.Containers(a)) })
	c.users, c.count = slices.Values(all), len(all)
	return c, nil
}

// cluster returns the pools of a cluster with nodes.
func (s setting) cluster(users []cluster.User, r trace.Report) (c input, err error) {
	c.readings = []summary.Reading{newReading(r)}
	if c.today, err = s.newToday(users, r); err != nil {
		return c, err
	}
	c.readings[0].Remarks = append(c.readings[0].Remarks, c.today.remarks...)
	c.users, c.count = c.today.users(), len(c.today.Pools)
	return c, nil
}

// daemonRemark says what counts on every VM.
func (s setting) daemonRemark(sets []cluster.DaemonSet, v cluster.PerVM) string {
	var names []string
	for _, d := range sets {
		names = append(names, d.Name)
	}
	list := strings.Join(names, ", ")
	if s.daemons {
		return "--daemonsets replaces what the DaemonSets of the dump request: " + list + "."
	}
	return fmt.Sprintf("Counted on every VM, from the dump: %s (%s).", list, v)
}

// generate returns random users, one at a time, so memory does not grow with the scale.
func (s setting) generate(paths []string) (input, error) {
	const usersOfOne = 507
	scale, seed, _ := strings.Cut(paths[0], ",")
	n, err := strconv.Atoi(scale)
	first, errSeed := strconv.ParseUint(cmp.Or(seed, "1"), 10, 64)
	if err != nil || errSeed != nil || n < 1 || len(paths) > 1 {
		return input{}, usage.Errorf("--trace %s:%s: want one SCALE or SCALE,SEED; %s:1 has 507 users", generated, strings.Join(paths, " "), generated)
	}
	users := func(yield func(cluster.User) bool) {
		for u := range (trace.Synthetic{Seed: first, Scale: n}).Users() {
			if s.shard.Has(u.Name) && !yield(u) {
				return
			}
		}
	}
	count := usersOfOne * n
	if s.shard != nil {
		count /= s.shard.Of
	}
	reading := summary.Reading{Format: fmt.Sprintf("%s, scale %d, seed %d", generated, n, first), Excluded: []summary.Reason{}, Notes: []summary.Reason{}, Examples: []string{}}
	return input{users: users, count: count, readings: []summary.Reading{reading}}, nil
}
