package pack

import (
	"math"
	"math/bits"

	"unnest.io/unnest/internal/plan/cluster"
)

// ranking sorts bins by score, highest first and ties by number, and finds the first bin with
// room. It is a treap whose nodes know the largest room in their subtree; priorities follow
// from the bin numbers, so results are deterministic. A search takes about log n steps: in large
// rankings, nodes know the most CPU of bins with at least so much memory, because many bins may
// have enough of either resource but not of both.
type ranking struct {
	nodes []rankNode // by bin number + 1; the first is unused
	root  int32
	cpu   []cpuByMemory // by node; nil in small rankings
}

// cpuByMemory is the most free CPU in a subtree, by the class that the bin's free memory has at
// least; 0: there is no bin. It fills one cache line, because updates take most of the time that
// a large user needs.
type cpuByMemory [memoryClasses]uint32

const (
	memoryClasses = 16
	largeRanking  = 1024 // nodes
)

// memoryClass grows with the memory, by one for each doubling from 16 MiB on, and ends at the last
// class.
func memoryClass(memory int64) int {
	return min(max(0, bits.Len64(uint64(memory))-24), memoryClasses-1)
}

// cpuClass grows with the CPU, in steps of about a thousandth of a vCPU, and is above 0.
func cpuClass(cpu int64) uint32 {
	return uint32(min(max(0, cpu)>>20, math.MaxUint32-1)) + 1
}

type rankNode struct {
	left, right int32
	priority    uint32
	score       float64
	free, most  cluster.Resources // of this bin; maximum of each resource in the subtree
	slots, top  int32             // more pods that the bin may hold; maximum in the subtree
}

// mix spreads a number over all bits (the finaliser of SplitMix64).
func mix(x uint64) uint32 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return uint32((x ^ x>>31) >> 32)
}

// reset removes all bins.
func (r *ranking) reset() { *r = ranking{nodes: r.nodes[:0]} }

// set adds the bin, or updates its place.
func (r *ranking) set(b int, score float64, free cluster.Resources, slots int32) {
	n := int32(b + 1)
	for len(r.nodes) <= int(n) {
		r.nodes = append(r.nodes, rankNode{})
	}
	if r.nodes[n].priority != 0 {
		r.remove(b)
	}
	r.nodes[n] = rankNode{priority: mix(uint64(b)) | 1, score: score, free: free, slots: slots}
	r.grow()
	r.update(n)
	r.root = r.insert(r.root, n)
}

func (r *ranking) remove(b int) {
	n := int32(b + 1)
	if int(n) >= len(r.nodes) || r.nodes[n].priority == 0 {
		return
	}
	r.root = r.cut(r.root, n)
	r.nodes[n] = rankNode{}
}

// first returns the highest bin that has room for req and one more pod and that ok accepts,
// -1 if there is none. A nil ok accepts all.
func (r *ranking) first(req cluster.Resources, ok func(b int) bool) int {
	return r.find(r.root, req, memoryClass(req.Memory), ok)
}

// grow makes room for the CPU by memory, and computes it when the ranking becomes large.
func (r *ranking) grow() {
	if len(r.nodes) < largeRanking || len(r.cpu) == len(r.nodes) {
		return
	}
	first := r.cpu == nil
	r.cpu = append(r.cpu, make([]cpuByMemory, len(r.nodes)-len(r.cpu))...)
	if first {
		r.updateAll(r.root)
	}
}

func (r *ranking) updateAll(n int32) {
	if n == 0 {
		return
	}
	r.updateAll(r.nodes[n].left)
	r.updateAll(r.nodes[n].right)
	r.update(n)
}

func (r *ranking) find(n int32, req cluster.Resources, class int, ok func(b int) bool) int {
	if n == 0 {
		return -1
	}
	node := &r.nodes[n]
	if !req.Fits(node.most) || node.top < 1 || r.cpu != nil && r.cpu[n][class] < cpuClass(req.CPU) {
		return -1
	}
	if b := r.find(node.left, req, class, ok); b >= 0 {
		return b
	}
	if req.Fits(node.free) && node.slots > 0 && (ok == nil || ok(int(n-1))) {
		return int(n - 1)
	}
	return r.find(node.right, req, class, ok)
}

func (r *ranking) before(a, b int32) bool {
	if r.nodes[a].score != r.nodes[b].score {
		return r.nodes[a].score > r.nodes[b].score
	}
	return a < b
}

// update recomputes the maxima of a node from its children.
func (r *ranking) update(n int32) {
	node := &r.nodes[n]
	node.most, node.top = node.free, node.slots
	for _, child := range [2]int32{node.left, node.right} {
		if child != 0 {
			c := &r.nodes[child]
			node.most.CPU = max(node.most.CPU, c.most.CPU)
			node.most.Memory = max(node.most.Memory, c.most.Memory)
			node.top = max(node.top, c.top)
		}
	}
	if r.cpu != nil {
		r.updateCPU(n)
	}
}

func (r *ranking) updateCPU(n int32) {
	node, sum := &r.nodes[n], &r.cpu[n]
	*sum = cpuByMemory{}
	cpu := cpuClass(node.free.CPU)
	for k := range memoryClass(node.free.Memory) + 1 {
		sum[k] = cpu
	}
	for _, child := range [2]int32{node.left, node.right} {
		if child != 0 {
			for k, cpu := range &r.cpu[child] {
				sum[k] = max(sum[k], cpu)
			}
		}
	}
}

func (r *ranking) insert(root, n int32) int32 {
	switch {
	case root == 0:
		return n
	case r.nodes[n].priority > r.nodes[root].priority:
		r.nodes[n].left, r.nodes[n].right = r.split(root, n)
		root = n
	case r.before(n, root):
		r.nodes[root].left = r.insert(r.nodes[root].left, n)
	default:
		r.nodes[root].right = r.insert(r.nodes[root].right, n)
	}
	r.update(root)
	return root
}

// split divides the subtree into the nodes before n and those after it.
func (r *ranking) split(root, n int32) (left, right int32) {
	if root == 0 {
		return 0, 0
	}
	if r.before(root, n) {
		r.nodes[root].right, right = r.split(r.nodes[root].right, n)
		r.update(root)
		return root, right
	}
	left, r.nodes[root].left = r.split(r.nodes[root].left, n)
	r.update(root)
	return left, root
}

func (r *ranking) cut(root, n int32) int32 {
	if root == n {
		return r.join(r.nodes[n].left, r.nodes[n].right)
	}
	if r.before(n, root) {
		r.nodes[root].left = r.cut(r.nodes[root].left, n)
	} else {
		r.nodes[root].right = r.cut(r.nodes[root].right, n)
	}
	r.update(root)
	return root
}

func (r *ranking) join(a, b int32) int32 {
	switch {
	case a == 0:
		return b
	case b == 0:
		return a
	case r.nodes[a].priority > r.nodes[b].priority:
		r.nodes[a].right = r.join(r.nodes[a].right, b)
		r.update(a)
		return a
	}
	r.nodes[b].left = r.join(a, r.nodes[b].left)
	r.update(b)
	return b
}
