package costing

import (
	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/pack"
	"unnest.io/unnest/internal/plan/study"
	"unnest.io/unnest/internal/plan/summary"
	"unnest.io/unnest/internal/plan/use"
)

// rightSize plans a user with requests by use, and returns the plans that count then.
func (s Setting) rightSize(u cluster.User, c cluster.Catalogue, before pack.Comparison, p *Planned) (pack.Comparison, error) {
	after, low, comparable, err := study.Sized(s.Sizing.User(u), c, s.packing(u), before, s.start(u)...)
	if err != nil {
		return before, err
	}
	low = s.lower(after.User, low)
	p.Kept = !comparable
	p.User.Sized = &summary.SizedCosts{Whole: p.User.Cost.Whole, Best: p.User.Cost.Best, Bound: p.User.Bound}
	if comparable {
		p.User.Sized = &summary.SizedCosts{Whole: summary.Dollars(after.Whole.Cost), Best: summary.Dollars(after.Best.Cost), Bound: summary.Dollars(low)}
	}
	if p.Pool != nil {
		comparable = s.Today.rightSize(p.Pool, before, after, low, comparable)
	}
	if !comparable {
		return before, nil
	}
	return after, nil
}

// rightSize adds the plan of a pool with requests by use. The plan before counts where it holds
// the pods. It reports whether VMs and placement are those of the plans after.
func (t *Today) rightSize(c *summary.PoolCost, before, after pack.Comparison, low int64, comparable bool) bool {
	sized := c.PoolPlan
	c.Sized = &sized
	if !comparable {
		if c.Stays == "" {
			c.SizedStays = "a pod would be too large for every VM"
		}
		return false
	}
	models := t.pools[c.Name].Catalogue
	larger := grown(before.User, after.User) || !pack.Holds(after.User, models, before.Best.Plan)
	if larger {
		sized = summary.PoolPlan{Packed: 1 << 62, Split: 1 << 62, Bound: 1 << 62}
	}
	sized.Bound = summary.Dollars(low)
	c.TooLittle = cheaper(&sized, after, models, t.MinSaving) || c.TooLittle
	sized.Bound = min(sized.Bound, sized.Split)
	return larger || sized.Split < c.Split
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

// Use says what the requests by use are: from which sources, with so many percent of headroom and
// at least so many samples of each container.
func Use(z *use.Sizing, all []Planned, sources []string, headroom, samples int) summary.Use {
	u := summary.Use{Headroom: headroom, Percentile: use.Percentile, Samples: samples, Containers: z.Containers, Known: z.Known, Lowered: z.Lowered, Raised: z.Raised,
		Fixed: z.Fixed, Unmatched: z.Unmatched, Requested: amount(z.Before), Sized: amount(z.After), Changes: []summary.Request{}, Sources: sources}
	for _, p := range all {
		if p.Kept {
			u.Kept++
		}
	}
	for _, c := range z.Changes {
		u.Changes = append(u.Changes, summary.Request{Namespace: c.Namespace, Kind: c.Kind, Workload: c.Workload.Name, Container: c.Container, Sidecar: c.Sidecar, Pods: c.Pods,
			From: amount(c.From), To: amount(c.To)})
	}
	return u
}

func amount(r cluster.Resources) summary.Amount {
	return summary.Amount{VCPU: float64(r.CPU) / cluster.VCPU, GiB: float64(r.Memory) / (1 << 30)}
}
