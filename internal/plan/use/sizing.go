package use

import (
	"cmp"
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
)

// Sizing is requests by use for the pods of a cluster.
type Sizing struct {
	wanted map[Name]cluster.Resources

	Containers int               // of all pods
	Known      int               // of those, with a use
	Lowered    int               // that request less of one resource, and more of none
	Raised     int               // that request more of a resource
	Fixed      int               // pods that have requests as a whole, and keep them
	Unmatched  int               // containers with a use that no pod has
	Before     cluster.Resources // requests of all pods
	After      cluster.Resources
	Changes    []Change // those that save most of the requests first
}

// Change is other requests for a container of a workload.
type Change struct {
	Name
	Sidecar  bool // an init container that keeps running
	Pods     int
	From, To cluster.Resources // From is the largest of the pods
}

// New derives requests for pods: for each container of a workload, the most that any of its pods in
// all needs, because they have one template. All also has pods that are not planned, such as those on nodes that
// stay; nil: there are none. A pod needs the Percentile of its use of CPU and its largest use of memory, with headroom
// in percent, or what was recommended if that is more.
func New(u *Use, pods, all []cluster.Pod, headroom int) *Sizing {
	s := &Sizing{wanted: map[Name]cluster.Resources{}}
	used := map[Name]bool{}
	if all == nil {
		all = pods
	}
	for _, p := range all {
		if p.Origin == nil {
			continue
		}
		for _, c := range p.Containers {
			single, name := Name{Pod(p.Origin.Namespace, p.Origin.Name), c.Name}, Name{Of(p.Origin), c.Name}
			measured, advised := u.samples[single], u.advice[name]
			if measured != nil {
				used[single] = true
				advised = advised.Max(measured.wanted(headroom))
			}
			if _, has := u.advice[name]; has {
				used[name] = true
			}
			if advised != (cluster.Resources{}) {
				s.wanted[name] = s.wanted[name].Max(advised)
			}
		}
	}
	s.Unmatched = len(u.samples) + len(u.advice) - len(used)
	s.count(pods)
	return s
}

// wanted returns the request for one pod, at least one unit of a resource that was measured.
func (m *samples) wanted(headroom int) (r cluster.Resources) {
	if len(m.cpu) > 0 {
		r.CPU = max(unitCPU, with(percentile(m.cpu, Percentile), headroom, unitCPU))
	}
	if m.count > 0 {
		r.Memory = max(unitMemory, with(m.memory, headroom, unitMemory))
	}
	return r
}

// count compares the requests of all pods before and after.
func (s *Sizing) count(pods []cluster.Pod) {
	changes := map[Name]*Change{}
	for _, p := range pods {
		sized := s.pod(p)
		s.Before, s.After = s.Before.Add(p.Request()), s.After.Add(sized.Request())
		if p.Origin != nil && p.Origin.Fixed {
			s.Fixed++
		}
		for k, c := range p.Containers {
			s.Containers++
			if p.Origin == nil || p.Origin.Fixed {
				continue
			}
			name := Name{Of(p.Origin), c.Name}
			if _, known := s.wanted[name]; !known {
				continue
			}
			s.Known++
			from, to := c.Request, sized.Containers[k].Request
			switch {
			case from == to:
				continue
			case to.Fits(from):
				s.Lowered++
			default:
				s.Raised++
			}
			if changes[name] == nil {
				changes[name] = &Change{Name: name, Sidecar: k < p.Origin.Sidecars}
			}
			change := changes[name]
			change.Pods, change.From, change.To = change.Pods+1, change.From.Max(from), change.To.Max(to)
		}
	}
	for _, c := range changes {
		s.Changes = append(s.Changes, *c)
	}
	slices.SortFunc(s.Changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(s.freed(b), s.freed(a)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Workload.Name, b.Workload.Name), cmp.Compare(a.Container, b.Container))
	})
}

// freed is the part of all requests that a change frees.
func (s *Sizing) freed(c Change) float64 {
	less := c.From.Sub(c.To)
	return float64(c.Pods) * (float64(less.CPU)/float64(max(1, s.Before.CPU)) + float64(less.Memory)/float64(max(1, s.Before.Memory)))
}

// User returns the user with pods that request by their use.
func (s *Sizing) User(u cluster.User) cluster.User {
	u.Pods = slices.Clone(u.Pods)
	for i, p := range u.Pods {
		u.Pods[i] = s.pod(p)
	}
	return u
}

// pod returns a pod that requests by its use. Init containers keep their requests, so the pod
// has as much overhead as they need beyond the other containers.
func (s *Sizing) pod(p cluster.Pod) cluster.Pod {
	if p.Origin == nil || p.Origin.Fixed {
		return p
	}
	before := sum(p.Containers)
	p.Containers = slices.Clone(p.Containers)
	for k, c := range p.Containers {
		p.Containers[k].Request = request(c.Request, within(s.wanted[Name{Of(p.Origin), c.Name}], p.Origin.Limits[c.Name]))
	}
	runtime := p.Overhead.Sub(before.Max(p.Origin.Startup).Sub(before))
	after := sum(p.Containers)
	p.Overhead = runtime.Add(after.Max(p.Origin.Startup).Sub(after))
	p.Whole = p.Whole || !p.Starts()
	return p
}

func sum(containers []cluster.Container) (r cluster.Resources) {
	for _, c := range containers {
		r = r.Add(c.Request)
	}
	return r
}
