package trace

import (
	"context"
	"math"

	"unnest/internal/plan/cluster"
)

// rowTable is one container of a table with a header.
type rowTable struct {
	user, pod, name string
	gpu             bool
	request
}

// readTable reads files in which each row is a container.
func readTable(ctx context.Context, paths []string, o *Options, rep *Report, parser func(*Options) parse[rowTable]) ([]cluster.User, error) {
	files, err := expand(paths)
	if err != nil {
		return nil, err
	}
	g := newGrouping(o)
	err = eachLine(ctx, files, o, rep, func() parse[rowTable] { return parser(o) }, func(r *rowTable) error {
		if !rep.count(r.request) {
			return nil
		}
		if r.gpu {
			rep.notes[GPU]++
		}
		return g.add(r.user, r.pod, r.name, r.Resources)
	})
	if err != nil {
		return nil, err
	}
	return g.sorted(), nil
}

// readOpenB reads the pod lists openb_pod_list_*.csv of cluster-trace-gpu-v2023 in
// github.com/alibaba/clusterdata (README.md there): CPUs in thousandths, memory in
// MiB, times in seconds. Each row is a pod of one container. The trace names no
// owners: all pods belong to the user "openb". GPUs are noted and not planned. A period contains the
// pods that were scheduled and not yet deleted.
func readOpenB(ctx context.Context, paths []string, o *Options, rep *Report) ([]cluster.User, error) {
	return readTable(ctx, paths, o, rep, parseOpenB)
}

func parseOpenB(o *Options) parse[rowTable] {
	s := o.Period.span(1e9)
	h := needs("name", "cpu_milli", "memory_mib", "scheduled_time", "deletion_time").orNot("num_gpu")
	return func(line []byte, r *rowTable) (Reason, error) {
		c, why, err := h.read(line)
		if err != nil || why != kept {
			return why, err
		}
		r.user, r.pod, r.gpu = "openb", string(c[0]), some(c[5])
		r.name = r.pod
		if r.request, err = o.parseRequest(field{"CPU request", c[1], cluster.VCPU / 1000, 0}, field{"memory request", c[2], 1 << 20, 0}); err != nil {
			return kept, err
		}
		return o.within(s, c[3], math.MaxInt64, c[4])
	}
}

// readDLRM reads disaggregated_DLRM_trace.csv of cluster-trace-gpu-v2025 in
// github.com/alibaba/clusterdata (README.md there): CPUs in vCPUs, memory in GiB,
// times in seconds, empty before and after the trace. The application is the user,
// an instance is a pod of one container. GPUs are noted and not planned.
func readDLRM(ctx context.Context, paths []string, o *Options, rep *Report) ([]cluster.User, error) {
	return readTable(ctx, paths, o, rep, parseDLRM)
}

func parseDLRM(o *Options) parse[rowTable] {
	s := o.Period.span(1e9)
	h, users := needs("instance_sn", "app_name", "cpu_request", "memory_request", "scheduled_time", "deletion_time").orNot("gpu_request"), names{}
	return func(line []byte, r *rowTable) (Reason, error) {
		c, why, err := h.read(line)
		if err != nil || why != kept {
			return why, err
		}
		r.user, r.pod, r.gpu = users.of(c[1]), string(c[0]), some(c[6])
		r.name = r.pod
		if r.request, err = o.parseRequest(field{"CPU request", c[2], cluster.VCPU, 0}, field{"memory request", c[3], 1 << 30, 0}); err != nil {
			return kept, err
		}
		return o.within(s, c[4], math.MinInt64, c[5])
	}
}

// some reports whether a number is above 0.
func some(text []byte) bool {
	n, err := parseNumber(text)
	return err == nil && n.why == kept && n.mantissa > 0
}

// within returns Outside for a row that runs from start to end outside the span. An empty
// start stands for unstarted; an empty end is after the trace.
func (o *Options) within(s span, start []byte, unstarted int64, end []byte) (Reason, error) {
	from, err := second("start time", start, unstarted)
	if err != nil {
		return kept, err
	}
	to, err := second("end time", end, math.MaxInt64)
	if err != nil {
		return kept, err
	}
	for _, t := range []int64{from, to} {
		if t != math.MaxInt64 && t != math.MinInt64 {
			o.saw(t, 1e9)
		}
	}
	if !o.Period.all() && (len(start) == 0 && unstarted == math.MaxInt64 || !s.overlaps(from, to)) {
		return Outside, nil
	}
	return kept, nil
}

// second reads a time in seconds, and rounds it to whole seconds.
func second(column string, text []byte, empty int64) (int64, error) {
	n, err := parseNumber(text)
	if err != nil {
		return 0, inColumn(column, text, err)
	}
	if len(text) == 0 || n.why == NotANumber {
		return empty, nil
	}
	value, err := n.times(1)
	if err != nil {
		return 0, inColumn(column, text, err)
	}
	if n.why == Negative {
		return -value, nil
	}
	return value, nil
}
