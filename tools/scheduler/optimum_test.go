package scheduler

import (
	"fmt"
	"math"
	"testing"

	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"
)

// tiny is the size of clusters for which all plans are tried, if they have at most mostPods.
var tiny = size{nodes: 4, models: 2, zones: 1, workloads: 2, replicas: 4, containers: 1}

const mostPods = 5

// No bound is above the cost of the cheapest plan that the scheduler accepts.
func TestBound(t *testing.T) {
	compared := 0
	rapid.Check(t, func(r *rapid.T) {
		text := cluster(r, t, tiny, kinds)
		wrong, tried := boundWrong(t, text)
		if wrong != "" {
			r.Fatalf("the plan of %s: %s", kept(t, text), wrong)
		}
		if tried {
			compared++
		}
	})
	if t.Logf("%d clusters had few enough pods", compared); compared == 0 {
		t.Error("no cluster had few enough pods")
	}
}

// boundWrong returns what is wrong with the bound of a cluster's plan, and whether all plans were
// tried, which needs one pool and few pods.
func boundWrong(t *testing.T, text []byte) (wrong string, tried bool) {
	t.Helper()
	p, err := planned(text)
	if err != nil {
		return err.Error(), false
	}
	o, err := parsed(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Cluster.Pools) != 1 || p.Cluster.Pools[0].Stays != "" || p.Cluster.Pools[0].Pods > mostPods {
		return "", false
	}
	for _, n := range o.nodes {
		if poolOf(n, p.Cluster.Pools) != 0 {
			return "", false
		}
	}
	s, err := newSearch(o, p)
	if err != nil {
		t.Fatal(err)
	}
	defer s.judge.close()
	s.partition(nil, 0)
	if bound := p.Cluster.Pools[0].Bound; bound > s.best+1e-9 {
		return fmt.Sprintf("the bound is %v $/h: the scheduler accepts a plan that costs %v $/h", bound, s.best), true
	}
	return "", true
}

// search looks for the cheapest plan of a pool.
type search struct {
	objects objects
	plan    plan
	pods    []*v1.Pod
	daemons map[string]*v1.Pod
	judge   *judge
	best    float64
}

func newSearch(o objects, p plan) (*search, error) {
	s := &search{objects: o, plan: p, daemons: map[string]*v1.Pod{}, best: math.Inf(1)}
	for _, pod := range o.pods {
		if owner := daemonSet(pod); owner != "" {
			s.daemons[owner] = pod
		} else {
			s.pods = append(s.pods, pod)
		}
	}
	others := append(o.others, missing(o)...)
	for i := range mostPods {
		for _, m := range p.Settings.Catalogue {
			_, csi, err := o.node(vmName(i, m.Name), m.Name, p.Cluster.Pools[0], p)
			if err != nil {
				return nil, err
			}
			others = append(others, csi)
		}
	}
	var err error
	s.judge, err = newJudge(nil, others)
	return s, err
}

func vmName(i int, model string) string { return fmt.Sprintf("vm-%d-%s", i, model) }

// partition tries all ways to put the pods from the given one on into blocks, each of which
// becomes a VM.
func (s *search) partition(blocks [][]*v1.Pod, from int) {
	if from == len(s.pods) {
		s.models(blocks, nil, 0)
		return
	}
	pod := s.pods[from]
	for i := range blocks {
		blocks[i] = append(blocks[i], pod)
		s.partition(blocks, from+1)
		blocks[i] = blocks[i][:len(blocks[i])-1]
	}
	s.partition(append(blocks[:len(blocks):len(blocks)], []*v1.Pod{pod}), from+1)
}

// models tries all models for the blocks.
func (s *search) models(blocks [][]*v1.Pod, chosen []string, cost float64) {
	if cost >= s.best-1e-9 {
		return
	}
	if len(chosen) == len(blocks) {
		if s.legal(blocks, chosen) {
			s.best = cost
		}
		return
	}
	var cpu, memory int64
	for _, pod := range blocks[len(chosen)] {
		for _, c := range pod.Spec.Containers {
			cpu, memory = cpu+c.Resources.Requests.Cpu().MilliValue(), memory+c.Resources.Requests.Memory().Value()
		}
	}
	for _, m := range s.plan.Settings.Catalogue {
		if float64(cpu) <= m.VCPU*1000 && float64(memory) <= m.GiB*(1<<30) {
			s.models(blocks, append(chosen[:len(chosen):len(chosen)], m.Name), cost+m.Price)
		}
	}
}

// legal reports whether the scheduler accepts a plan.
func (s *search) legal(blocks [][]*v1.Pod, chosen []string) bool {
	var f future
	for i, model := range chosen {
		node, _, err := s.objects.node(vmName(i, model), model, s.plan.Cluster.Pools[0], s.plan)
		if err != nil {
			panic(err) // it was made before
		}
		f.nodes = append(f.nodes, node)
		for _, pod := range blocks[i] {
			pod = pod.DeepCopy()
			pod.Spec.NodeName = node.Name
			f.pods = append(f.pods, pod)
		}
	}
	f.daemons(s.daemons)
	s.judge.reset(f.nodes)
	return len(s.judge.refusals(f.fixed, f.pods)) == 0
}
