// Package cluster is the data of the planner: users, pods, containers and what they
// request; models of VMs and their prices; and plans, which say what is on which VM.
// All numbers are whole, so that sums are exact.
package cluster

import "fmt"

// Resources are a request, or the size of a VM. Whole numbers, so that sums are
// exact: nothing fits by rounding.
type Resources struct {
	CPU    int64 // billionths of a vCPU
	Memory int64 // bytes
}

// VCPU is one vCPU in the unit of Resources.CPU.
const VCPU = 1_000_000_000

// Dollar is one dollar in the unit of prices and costs.
const Dollar = 1_000_000_000

// Add returns the sum of r and o.
func (r Resources) Add(o Resources) Resources { return Resources{r.CPU + o.CPU, r.Memory + o.Memory} }

// Sub returns r without o.
func (r Resources) Sub(o Resources) Resources { return Resources{r.CPU - o.CPU, r.Memory - o.Memory} }

// Fits reports whether r fits into o, in both dimensions.
func (r Resources) Fits(o Resources) bool { return r.CPU <= o.CPU && r.Memory <= o.Memory }

// String returns the resources as people write them, such as "6 vCPU, 24 GiB".
func (r Resources) String() string {
	return fmt.Sprintf("%.4g vCPU, %.4g GiB", float64(r.CPU)/VCPU, float64(r.Memory)/(1<<30))
}

// User is who pays: VMs are not shared between users.
type User struct {
	Name string
	Pods []Pod
}

// Pod is what Kubernetes places as a whole, and Hostlo may split.
type Pod struct {
	Name       string
	Overhead   Resources // of the pod itself, stays with its first container
	Whole      bool      // it must not be split, such as one with a host port
	Containers []Container
	Links      []Link // how much they talk to each other, which only Frontier looks at
}

// Container is the smallest part of a pod.
type Container struct {
	Name    string
	Request Resources
}

// Link is how much two containers of a pod talk to each other, in any unit, such as
// messages per second. On different VMs they do so through Hostlo.
type Link struct {
	A, B   int // indices in the pod's containers
	Weight float64
}

// Request returns the sum over the pod.
func (p Pod) Request() Resources {
	sum := p.Overhead
	for _, c := range p.Containers {
		sum = sum.Add(c.Request)
	}
	return sum
}

// Model is a size of VM that can be bought.
type Model struct {
	Name    string
	Size    Resources // what pods can have of it (allocatable)
	Nominal Resources // what it takes of its physical host; zero: as Size
	Price   int64     // billionths of a dollar for an hour
	Pods    int       // most pods, or fractions of pods, 0: no limit
}

// Taken returns what a VM of the model takes of its physical host.
func (m Model) Taken() Resources {
	if m.Nominal == (Resources{}) {
		return m.Size
	}
	return m.Nominal
}

// Catalogue is the models on sale, in any order.
type Catalogue []Model

// VM is one that was bought, with what is on it.
type VM struct {
	ID    int // stays with it from plan to plan, while others come and go
	Model int // index in the catalogue
	Host  int // physical host; fractions of one pod are on one host
	Parts []Part
}

// Part is a container on a VM, or with Container below 0 the overhead of its pod,
// which is listed only where it is not zero.
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
