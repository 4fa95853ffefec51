package pack

import "unnest/internal/plan/cluster"

// Action is what a step does to a VM.
type Action string

// The actions.
const (
	ActBuy    Action = "buy"    // the VM, for the pods that the moves put on it
	ActPlace  Action = "place"  // a pod on a VM that was bought before
	ActDrop   Action = "drop"   // the VM: the moves emptied it
	ActResize Action = "resize" // the VM: the moves left room, or it had room
	ActMove   Action = "move"   // containers, which saves nothing by itself
	ActRepack Action = "repack" // some VMs anew; VM is the first of the new ones
)

// Step is one change of a plan, with what it saves: Before less After.
type Step struct {
	Action        Action
	VM            int // ID
	Model         int // that the VM has afterwards, -1: none
	Moves         []Move
	Before, After int64 // cost of the user's VMs, billionths of a dollar for an hour
}

// Move is a container, or with Container below 0 a pod's overhead, that goes from
// one VM to another, by their IDs. From is -1 when it is placed at first.
type Move struct {
	cluster.Part
	From, To int
}

// note keeps a move for the next step. A bin below 0 is none.
func (p *packing) note(u int32, from, to int) {
	if !p.opts.Explain {
		return
	}
	id := -1
	if from >= 0 {
		id = p.bins[from].id
	}
	for _, part := range p.parts(u) {
		p.moves = append(p.moves, Move{part, id, p.bins[to].id})
	}
}

// step keeps what was done to a bin, with the moves since the last one.
func (p *packing) step(a Action, b int, before int64) {
	if !p.opts.Explain {
		return
	}
	p.steps = append(p.steps, Step{a, p.bins[b].id, p.bins[b].model, p.moves, before, p.cost})
	p.moves = nil
}
