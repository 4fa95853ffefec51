package trace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"unnest/internal/plan/cluster"
)

// rowAlibaba is a row of either table of the traces of 2017 and 2018.
type rowAlibaba struct {
	batch     bool
	user, pod string
	name      string
	instances int64  // of a task
	at        int64  // of an event of a container
	change    change // likewise
	request
}

// readAlibaba2017 reads the tables batch_task and container_event of cluster-trace-v2017 in
// github.com/alibaba/clusterdata (columns: schema.csv). Batch CPUs are in hundredths
// (github.com/alibaba/clusterdata/issues/11). Memory is a fraction of the largest machine. The trace names no
// owners: all jobs belong to the user "batch", a job is a pod, and the instances of its tasks
// are containers. Online instances belong to the user "online", each a pod of one container.
func readAlibaba2017(ctx context.Context, paths []string, o *Options, rep *Report) ([]cluster.User, error) {
	return readAlibaba(ctx, paths, o, rep, parseAlibaba2017, "batch_task", "container_event")
}

// readAlibaba2018 reads the tables batch_task and container_meta of cluster-trace-v2018
// (schema.txt there). CPUs are in hundredths, memory in percent of the largest machine, where
// -1 and 101 mark invalid values. Jobs are as in 2017. A container is a pod, and its
// application (app_du) is the user.
func readAlibaba2018(ctx context.Context, paths []string, o *Options, rep *Report) ([]cluster.User, error) {
	return readAlibaba(ctx, paths, o, rep, parseAlibaba2018, "batch_task", "container_meta")
}

func readAlibaba(ctx context.Context, paths []string, o *Options, rep *Report,
	parser func(*Options, span) parse[rowAlibaba], names ...string) ([]cluster.User, error) {
	found, err := tables(paths, names...)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, name := range append(names, "") {
		files = append(files, found[name]...)
	}
	g := newGrouping(o)
	l := newTaskStates[string](o.Period.span(1e9), false)
	err = eachLine(ctx, files, o, rep, func() parse[rowAlibaba] { return parser(o, l.span) }, func(r *rowAlibaba) error {
		if !r.batch {
			l.event(r.pod, r.at, r.change, r.request, r.user)
			return nil
		}
		if !rep.count(r.request) {
			return nil
		}
		return g.task(r)
	})
	if err != nil {
		return nil, err
	}
	l.finish(rep)
	for _, id := range slices.Sorted(maps.Keys(l.tasks)) {
		t := l.tasks[id]
		if !rep.count(t.request) {
			continue
		}
		if err := g.add(t.owner, id, id, t.Resources); err != nil {
			return nil, err
		}
	}
	return g.sorted(), nil
}

// task adds the instances of a task to the pod of the job.
func (g *grouping) task(r *rowAlibaba) error {
	if err := g.room(r.instances); err != nil {
		return err
	}
	p := g.user(r.user).pod(r.pod)
	p.Containers = slices.Grow(p.Containers, int(r.instances))
	for i := range int(r.instances) {
		name := r.name
		if r.instances > 1 {
			name += "/" + index(i)
		}
		p.Containers = append(p.Containers, cluster.Container{Name: name, Request: r.Resources})
	}
	return nil
}

func parseAlibaba2017(o *Options, s span) parse[rowAlibaba] {
	var c [8][]byte
	pods := names{}
	return func(line []byte, r *rowAlibaba) (_ Reason, err error) {
		if err := exactly(line, c[:], "an alibaba2017 task or container event"); err != nil {
			return kept, err
		}
		switch kind := string(c[1]); kind {
		case "Create", "Remove":
			*r = rowAlibaba{user: "online", pod: string(c[2]), change: starts}
			if kind == "Remove" {
				r.change = ends
			}
			if r.request, err = o.alibaba(c[4], cluster.VCPU, c[5], 0); err != nil {
				return kept, err
			}
			return r.event(o, s, c[0])
		}
		*r = rowAlibaba{batch: true, user: "batch", pod: pods.of(c[2]), name: pods.of(c[3])}
		if r.request, err = o.alibaba(c[6], cluster.VCPU/100, c[7], 0); err != nil {
			return kept, err
		}
		return r.task(o, s, c[4], c[5], c[0], c[1])
	}
}

func parseAlibaba2018(o *Options, s span) parse[rowAlibaba] {
	var c [9][]byte
	seen := names{}
	return func(line []byte, r *rowAlibaba) (_ Reason, err error) {
		switch n := columns(line, c[:]); n {
		case 9:
			*r = rowAlibaba{batch: true, user: "batch", pod: seen.of(c[2]), name: seen.of(c[0])}
			if r.request, err = o.alibaba(c[7], cluster.VCPU/100, c[8], 2); err != nil {
				return kept, err
			}
			return r.task(o, s, c[1], c[4], c[5], c[6])
		case 8:
			*r = rowAlibaba{user: seen.of(c[3]), pod: string(c[0]), change: starts}
			if string(c[4]) == "stopped" {
				r.change = ends
			}
			if r.request, err = o.alibaba(c[5], cluster.VCPU/100, c[7], 2); err != nil {
				return kept, err
			}
			return r.event(o, s, c[2])
		default:
			return kept, fmt.Errorf("has %d columns: want 9 for an alibaba2018 batch_task or 8 for a container_meta", n)
		}
	}
}

// event completes a row of a container.
func (r *rowAlibaba) event(o *Options, s span, at []byte) (_ Reason, err error) {
	if r.at, err = whole("time", at); err != nil {
		return kept, err
	}
	o.saw(r.at, 1e9)
	if r.at > s.to {
		return Outside, nil
	}
	return kept, nil
}

// task completes a row of a task. A start of 0 is before the trace, an end of 0 is after it.
func (r *rowAlibaba) task(o *Options, s span, instances, status, start, end []byte) (Reason, error) {
	n, err := parseNumber(instances)
	if err == nil {
		r.instances, err = n.times(1)
	}
	if err != nil || n.why != kept {
		return kept, inColumn("number of instances", instances, errors.New("want a whole number from 0"))
	}
	from, err := whole("start time", start)
	if err != nil {
		return kept, err
	}
	to, err := whole("end time", end)
	if err != nil {
		return kept, err
	}
	o.saw(max(from, to), 1e9)
	if to == 0 {
		to = math.MaxInt64
	}
	waits := string(status) == "Waiting" || string(status) == "Ready"
	if !o.Period.all() && (waits || !s.overlaps(from, to)) {
		return Outside, nil
	}
	return kept, nil
}

// alibaba reads the request of either year. It marks memory in percent outside 0 to 100 as
// Invalid.
func (o *Options) alibaba(cpu []byte, unit int64, memory []byte, percent int) (request, error) {
	c, err := amountOf("CPU request", cpu, unit, 0)
	if err != nil {
		return request{}, err
	}
	m, err := amountOf("memory request", memory, o.Largest.Memory, percent)
	if percent > 0 && (m.why == Negative || m.value > o.Largest.Memory) {
		return request{why: Invalid}, err
	}
	return o.request(c, m), err
}
