// Package cluster is the data of the planner: users, pods, containers and what they
// request; models of VMs and their prices; and plans, which assign pods to VMs.
// All numbers are whole, so that sums are exact.
package cluster

import (
	"fmt"
	"time"
)

// Resources are a request, or the size of a VM. They are integers, so that sums are exact.
type Resources struct {
	CPU    int64 // billionths of a vCPU
	Memory int64 // bytes
}

// VCPU is one vCPU in units of Resources.CPU.
const VCPU = 1_000_000_000

// MostRequested is the largest request: more than any machine has, and so little that sums of few do
// not overflow.
var MostRequested = Resources{CPU: 1_000_000 * VCPU, Memory: 1 << 50}

// Dollar is one dollar in units of prices and costs.
const Dollar = 1_000_000_000

// Add returns the sum of r and o.
func (r Resources) Add(o Resources) Resources { return Resources{r.CPU + o.CPU, r.Memory + o.Memory} }

// Sub returns r less o.
func (r Resources) Sub(o Resources) Resources { return Resources{r.CPU - o.CPU, r.Memory - o.Memory} }

// Max returns the larger of each.
func (r Resources) Max(o Resources) Resources {
	return Resources{max(r.CPU, o.CPU), max(r.Memory, o.Memory)}
}

// Fits reports whether r fits into o in both dimensions.
func (r Resources) Fits(o Resources) bool { return r.CPU <= o.CPU && r.Memory <= o.Memory }

// String returns text such as "6 vCPU, 24 GiB".
func (r Resources) String() string {
	return fmt.Sprintf("%.4g vCPU, %.4g GiB", float64(r.CPU)/VCPU, float64(r.Memory)/(1<<30))
}

// User pays for VMs. Users do not share VMs.
type User struct {
	Name   string
	Pods   []Pod
	PerVM  PerVM
	Limits []Limit // of which Rules.Takes of the pods are parts
}

// PerVM is what runs on every VM of a user besides the pods, such as DaemonSets.
type PerVM struct {
	Request Resources
	Pods    int
}

// String returns text such as "0.3 vCPU, 0.5 GiB, 3 pods".
func (v PerVM) String() string { return fmt.Sprintf("%s, %d pods", v.Request, v.Pods) }

// Pod is placed as a whole by Kubernetes, and may be split by Hostlo.
type Pod struct {
	Name       string
	Overhead   Resources // of the pod itself; stays with its first container
	Whole      bool      // must not be split, for example because of a host port
	Rules      *Rules    // what it demands of its VM besides room; nil: nothing
	Containers []Container
	Links      []Link // traffic between containers; only package frontier uses it
	Origin     *Origin
}

// Origin is where a pod of Kubernetes is from.
type Origin struct {
	Namespace, Name string
	Node            string // empty: it waits for one
	Kind, Workload  string // what made the pod, such as Deployment web; empty: nothing
	Pinned          bool   // it may run on this node only
	Held            string // what it demands that plans do not honour, so that its node stays; empty: nothing
	Budgets         []*Budget

	Limits   map[string]Resources // of containers that have some; 0: none
	Startup  Resources            // what its init containers need, next to the sidecars started before them
	Sidecars int                  // the first of its containers are init containers that keep running
	Fixed    bool                 // it has requests as a whole, which those of its containers do not change
}

// Budget is a PodDisruptionBudget. Its pods share it.
type Budget struct {
	Name    string // with its namespace
	Allowed int    // pods that may be evicted at a time
}

// Starts reports whether the first fraction of a pod of Kubernetes has room for its init
// containers, however the pod is split: it has at least the first container and the sidecars.
func (p Pod) Starts() bool {
	var first Resources
	for _, c := range p.Containers[:min(len(p.Containers), p.Origin.Sidecars+1)] {
		first = first.Add(c.Request)
	}
	return len(p.Containers) < 2 || p.Origin.Startup.Fits(first)
}

// Container is the smallest part of a pod.
type Container struct {
	Name    string
	Request Resources
}

// Link is the traffic between two containers of a pod, in any unit, such as messages per
// second. Between VMs it goes through Hostlo.
type Link struct {
	A, B   int // indices in the pod's containers
	Weight float64
}

// Request returns the request of the whole pod.
func (p Pod) Request() Resources {
	sum := p.Overhead
	for _, c := range p.Containers {
		sum = sum.Add(c.Request)
	}
	return sum
}

// Stay is the presence of a pod: from the start of its first container until none runs. It
// has all containers that ran in that time, each with its largest request, because a pod
// is placed as a whole.
type Stay struct {
	Pod      Pod
	From, To time.Duration // of the trace; To is the end of the period for a pod that went on
}

// History is the stays of one user, sorted by their beginnings.
type History struct {
	User  string
	Stays []Stay
}

// Model is a size of VM on sale.
type Model struct {
	Name    string
	Size    Resources // allocatable to pods
	Nominal Resources // used of the physical host; zero: as Size
	Price   int64     // billionths of a dollar for an hour
	Pods    int       // most pods or fractions of pods; 0: no limit
	Spot    int64     // price as a spot VM; 0: unknown
	Arch    string    // as in the label kubernetes.io/arch; empty: amd64
	GPUs    int       // pods are not planned on models that have some
}

// Taken returns what a VM of the model uses of its physical host.
func (m Model) Taken() Resources {
	if m.Nominal == (Resources{}) {
		return m.Size
	}
	return m.Nominal
}

// Catalogue is the models on sale, in any order.
type Catalogue []Model

// For returns the models for a user, less what runs on every VM. It omits models with nothing
// left.
func (c Catalogue) For(u User) Catalogue {
	if u.PerVM == (PerVM{}) {
		return c
	}
	var left Catalogue
	for _, m := range c {
		m.Nominal = m.Taken()
		m.Size = m.Size.Sub(u.PerVM.Request)
		if m.Size.CPU <= 0 || m.Size.Memory <= 0 || m.Pods > 0 && m.Pods <= u.PerVM.Pods {
			continue
		}
		m.Pods = max(0, m.Pods-u.PerVM.Pods)
		left = append(left, m)
	}
	return left
}

// VM is a bought VM with the parts on it.
type VM struct {
	ID    int // the same in all plans that have the VM
	Model int // index in the catalogue
	Host  int // physical host; fractions of one pod are on one host
	Parts []Part
}

// Part is a container on a VM, or the overhead of a pod if that is not zero.
type Part struct {
	Pod       int // index in the user's pods
	Container int // index in the pod's containers; -1: the pod's overhead
}

// Plan is the VMs of one user.
type Plan struct {
	VMs []VM
}

// Split returns how many pods are on more than one VM.
func (p Plan) Split() int {
	on := map[int]int{} // pod -> VM
	split := map[int]bool{}
	for i, vm := range p.VMs {
		for _, part := range vm.Parts {
			if first, seen := on[part.Pod]; seen && first != i {
				split[part.Pod] = true
			}
			on[part.Pod] = i
		}
	}
	return len(split)
}

// Node is a VM of a cluster today.
type Node struct {
	Name     string
	Model    string // of the VM; empty: unknown
	Provider string // ID of the provider, such as aws:///us-east-1a/i-0
	Labels   map[string]string
	Taints   []string // KEY=VALUE:EFFECT, of those that keep pods away
	Capacity Resources
	// Allocatable is what pods, including those of DaemonSets, may request.
	Allocatable Resources
	Pods        int   // most pods
	Storage     int64 // ephemeral, in bytes; 0: unknown
	Volumes     int64 // most that can be attached; 0: unknown
}

// DaemonSet runs a pod on some nodes.
type DaemonSet struct {
	Name    string    // NAMESPACE/NAME
	Request Resources // the largest of its pods
	Nodes   map[string]bool
	Rules   *Rules // of its pods
}

// Rule is a kind of rule about the places of pods, and how many pods have it.
type Rule struct {
	What string
	How  Honoured
	Pods int
}

// Honoured says how plans treat a rule.
type Honoured string

// The ways.
const (
	ByVM     Honoured = "on each VM"
	Stricter Honoured = "on each VM, more strictly"
	ByPool   Honoured = "each pod stays in its pool"
	Stays    Honoured = "its node stays"
	Ignored  Honoured = "left out"
	Moot     Honoured = "decides nothing"
	Later    Honoured = "when pods move"
	Not      Honoured = "NOT HONOURED"
)
