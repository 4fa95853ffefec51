package plan

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"unnest/internal/cli/usage"
	"unnest/internal/plan/cluster"
	"unnest/internal/plan/pack"
	"unnest/internal/plan/study"
	"unnest/internal/plan/summary"
	"unnest/internal/plan/trace"
	"unnest/internal/plan/use"
)

// defaultHeadroom is the percentage that the Vertical Pod Autoscaler adds to use.
const defaultHeadroom = 15

func (o *Options) addUse(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&o.Uses, "use", nil, "also plan with requests that follow from use, of `FORMAT:PATH`; with --kubeconfig metrics and vpa need no path; the formats are "+strings.Join(trace.UseFormats, ", ")+"; may be repeated")
	f.IntVar(&o.Headroom, "headroom", defaultHeadroom, "request this `PERCENT` more than --use measures")
	f.StringVar(&o.Requests, "write-requests", "", "write a patch with the requests of --use for each Deployment and StatefulSet to the new or empty `DIR`")
	for _, other := range []string{"shard", "explain", "frontier", "replay"} {
		cmd.MarkFlagsMutuallyExclusive("use", other)
	}
}

// useSource is a file that says what containers use. Without a path, kubectl prints it.
type useSource struct{ format, path string }

// String returns FORMAT:PATH.
func (u useSource) String() string {
	if u.path == "" {
		return u.format + ":" + liveCluster
	}
	return u.format + ":" + u.path
}

// liveUse is the arguments with which kubectl prints what containers use.
var liveUse = map[string][]string{
	"metrics": {"get", "--raw", "/apis/metrics.k8s.io/v1beta1/pods"},
	"vpa":     {"get", "verticalpodautoscalers", "-A", "-o", "json"},
}

func parseUses(opts Options) (all []useSource, err error) {
	switch {
	case len(opts.Uses) == 0 && (opts.Headroom != defaultHeadroom || opts.Requests != ""):
		return nil, usage.Errorf("--headroom and --write-requests need --use: add it")
	case opts.Headroom < 0 || opts.Headroom > 1000:
		return nil, usage.Errorf("--headroom %d: want a percentage from 0 to 1000", opts.Headroom)
	}
	for _, text := range opts.Uses {
		format, path, _ := strings.Cut(text, ":")
		switch {
		case !slices.Contains(trace.UseFormats, format):
			return nil, usage.Errorf("--use %s: unknown format %q%s; the formats are %s", text, format, usage.Suggest(format, "", trace.UseFormats), strings.Join(trace.UseFormats, ", "))
		case path == "" && (opts.Kubeconfig == "" || liveUse[format] == nil):
			return nil, usage.Errorf("--use %s: want FORMAT:PATH, such as %s:use.json", text, format)
		}
		all = append(all, useSource{format, path})
	}
	if len(all) == 0 {
		return nil, nil
	}
	for _, t := range opts.Traces {
		if !strings.HasPrefix(t, "kubectl:") && !strings.HasPrefix(t, generated+":"+eksNodes) {
			return nil, usage.Errorf("--use with --trace %s: want kubectl:PATH: other traces do not name pods as metrics do", t)
		}
	}
	return all, nil
}

// readUse reads what containers use, and returns the users.
func (s *setting) readUse(ctx context.Context, c input, p *progress) (iter.Seq[cluster.User], error) {
	if len(s.uses) == 0 {
		return c.users, nil
	}
	var u use.Use
	for _, from := range s.uses {
		p.phase("reading " + from.String())
		path, stdin := from.path, s.opts.Streams.In
		if path == "" {
			text, err := kubectl(ctx, s.opts, liveUse[from.format]...)
			if err != nil {
				return nil, fmt.Errorf("--use %s: %w", from.format, err)
			}
			path, stdin = "-", bytes.NewReader(text)
		}
		if err := trace.ReadUse(ctx, from.format, path, stdin, &u); err != nil {
			return nil, fmt.Errorf("--use %s: %w", from.format, err)
		}
	}
	users := slices.Collect(c.users)
	var pods []cluster.Pod
	for _, u := range users {
		pods = append(pods, u.Pods...)
	}
	s.sizing, s.fewest = use.New(&u, pods, s.opts.Headroom), u.Samples()
	if s.sizing.Known == 0 {
		return nil, fmt.Errorf("--use %s: none of the %d containers has a use in it: name metrics of this cluster", s.uses[0], s.sizing.Containers)
	}
	return slices.Values(users), nil
}

// rightSize plans a user with requests by use.
func (s setting) rightSize(u cluster.User, c cluster.Catalogue, before pack.Comparison, r *planned) error {
	after, low, comparable, err := study.Sized(s.sizing.User(u), c, s.plan, before, s.start(u)...)
	if err != nil {
		return err
	}
	r.kept = !comparable
	r.row.Sized = &summary.SizedCosts{Whole: r.row.Cost.Whole, Best: r.row.Cost.Best, Bound: r.row.Bound}
	if comparable {
		r.row.Sized = &summary.SizedCosts{Whole: summary.Dollars(after.Whole.Cost), Best: summary.Dollars(after.Best.Cost), Bound: summary.Dollars(low)}
	}
	if r.pool != nil {
		s.today.rightSize(r.pool, before, after, low, comparable)
	}
	return nil
}

// rightSize adds the plan of a pool with requests by use. The plan before counts where it holds
// the pods.
func (t *today) rightSize(c *summary.PoolCost, before, after pack.Comparison, low int64, comparable bool) {
	sized := c.PoolPlan
	c.Sized = &sized
	if !comparable {
		if c.Stays == "" {
			c.SizedStays = "a pod would be too large for every VM"
		}
		return
	}
	models := t.pools[c.Name].Catalogue
	if grown(before.User, after.User) {
		sized = summary.PoolPlan{Packed: 1 << 62, Split: 1 << 62, Bound: 1 << 62}
	}
	sized.Bound = summary.Dollars(low)
	cheaper(&sized, after, models)
	sized.Bound = min(sized.Bound, sized.Split)
}

// grown reports whether a pod requests more of something than before.
func grown(before, after cluster.User) bool {
	for i, p := range after.Pods {
		if !p.Request().Fits(before.Pods[i].Request()) {
			return true
		}
	}
	return false
}
