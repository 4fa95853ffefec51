// Package use derives requests from what containers use: right-sizing. Read adds metrics,
// samples and recommendations to a Use; New turns it into requests for the pods of a cluster.
package use

import (
	"math"
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
)

// Workload is what makes pods of one template, or a single pod of the kind Pod.
type Workload struct {
	Namespace, Kind, Name string
}

// Name is a container of all pods of a workload.
type Name struct {
	Workload
	Container string
}

// Pod returns the workload that a pod alone is.
func Pod(namespace, name string) Workload { return Workload{namespace, "Pod", name} }

// Of returns the workload of a pod of Kubernetes.
func Of(o *cluster.Origin) Workload {
	if o.Workload == "" {
		return Pod(o.Namespace, o.Name)
	}
	return Workload{o.Namespace, o.Kind, o.Workload}
}

// Use is what containers use. The zero value is empty.
type Use struct {
	samples map[Name]*samples
	advice  map[Name]cluster.Resources
}

// samples are measurements of a container of one pod.
type samples struct {
	cpu    []int64
	memory int64 // the largest
	count  int   // of memory
}

func (u *Use) of(pod Workload, container string) *samples {
	if u.samples == nil {
		u.samples = map[Name]*samples{}
	}
	name := Name{pod, container}
	if u.samples[name] == nil {
		u.samples[name] = &samples{}
	}
	return u.samples[name]
}

// AddCPU adds a measurement of a container of a pod, in billionths of a vCPU.
func (u *Use) AddCPU(pod Workload, container string, cpu int64) {
	s := u.of(pod, container)
	s.cpu = append(s.cpu, cpu)
}

// AddMemory adds a measurement of a container of a pod, in bytes.
func (u *Use) AddMemory(pod Workload, container string, memory int64) {
	s := u.of(pod, container)
	s.memory, s.count = max(s.memory, memory), s.count+1
}

// Recommend adds requests that a recommender has derived for a container of a workload.
func (u *Use) Recommend(of Workload, container string, r cluster.Resources) {
	if u.advice == nil {
		u.advice = map[Name]cluster.Resources{}
	}
	u.advice[Name{of, container}] = u.advice[Name{of, container}].Max(r)
}

// Percentile is the part of the samples of CPU that a request covers. Memory is covered by its
// largest sample, because a container with too little is killed.
const Percentile = 0.95

// Samples returns the fewest samples of CPU or memory that any measured container has, 0 if none
// was measured.
func (u *Use) Samples() int {
	fewest := math.MaxInt
	for _, s := range u.samples {
		fewest = min(fewest, max(len(s.cpu), s.count))
	}
	if len(u.samples) == 0 {
		return 0
	}
	return fewest
}

// percentile returns the smallest sample that at least a part of all samples do not exceed.
func percentile(all []int64, part float64) int64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[max(0, int(math.Ceil(part*float64(len(sorted))))-1)]
}

// Requests are never lowered below these: less saves nothing, and what a container of that size
// uses depends on chance.
const (
	leastCPU    = cluster.VCPU / 100
	leastMemory = 32 << 20
)

// request returns what a container should request, given what it should by its use. A resource
// without use keeps its request.
func request(asked, wanted cluster.Resources) cluster.Resources {
	one := func(asked, wanted, least int64) int64 {
		if wanted == 0 {
			return asked
		}
		return max(wanted, min(asked, least))
	}
	return cluster.Resources{CPU: one(asked.CPU, wanted.CPU, leastCPU), Memory: one(asked.Memory, wanted.Memory, leastMemory)}
}

// within returns a request that is not above the limit, which the API server would refuse. A limit
// of 0 is none.
func within(r, limit cluster.Resources) cluster.Resources {
	if limit.CPU > 0 {
		r.CPU = min(r.CPU, max(1, limit.CPU/unitCPU)*unitCPU)
	}
	if limit.Memory > 0 {
		r.Memory = min(r.Memory, max(1, limit.Memory/unitMemory)*unitMemory)
	}
	return r
}

// with adds a part to x, in percent, and rounds up to a multiple of the unit. Use is at most
// what a trace may request, so nothing overflows.
func with(x int64, percent int, unit int64) int64 {
	x += x / 100 * int64(percent)
	return (x + unit - 1) / unit * unit
}

// Requests are rounded up to these, which people can read.
const (
	unitCPU    = cluster.VCPU / 1000
	unitMemory = 1 << 20
)
