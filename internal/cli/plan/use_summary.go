package plan

import (
	"unnest/internal/plan/cluster"
	"unnest/internal/plan/summary"
	"unnest/internal/plan/use"
)

// useSummary says what the requests by use are.
func (s setting) useSummary(all []planned) summary.Use {
	z := s.sizing
	u := summary.Use{Headroom: s.opts.Headroom, Percentile: use.Percentile, Samples: s.fewest, Containers: z.Containers, Known: z.Known, Lowered: z.Lowered, Raised: z.Raised,
		Fixed: z.Fixed, Unmatched: z.Unmatched, Requested: amount(z.Before), Sized: amount(z.After), Changes: []summary.Request{}}
	for _, from := range s.uses {
		u.Sources = append(u.Sources, from.String())
	}
	for _, p := range all {
		if p.kept {
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
