package pack

import "unnest.io/unnest/internal/plan/cluster"

// Action is what a step does to a VM.
type Action string

// The actions.
const (
	ActBuy    Action = "buy"    // a VM for the pods of the moves
	ActPlace  Action = "place"  // a pod on a bought VM
	ActDrop   Action = "drop"   // a VM that the moves emptied
	ActResize Action = "resize" // a VM with room for a cheaper model
	ActMove   Action = "move"   // containers, without saving
	ActRepack Action = "repack" // some VMs; Step.VM is the first new one
)

// Step is one change of a plan. It saves Before less After.
type Step struct {
	Action        Action
	VM            int // ID
	Model         int // of the VM after the step, -1: none
	Moves         []Move
	Before, After int64 // cost of the user's VMs, billionths of a dollar for an hour
}

// Move is a part of a pod that goes from one VM to another, by their IDs. From is -1 for a
// part that was not placed before.
type Move struct {
	cluster.Part
	From, To int
}

// recordMove keeps a move for the next step. A bin below 0 is none.
func (p *packing) recordMove(u int32, from, to int) {
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

// recordStep appends a step about a bin, with the moves since the last step.
func (p *packing) recordStep(a Action, b int, before int64) {
	if !p.opts.Explain {
		return
	}
	p.steps = append(p.steps, Step{a, p.bins[b].id, p.bins[b].model, p.moves, before, p.cost})
	p.moves = nil
}
