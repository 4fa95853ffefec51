package report

import (
	"slices"

	"unnest/internal/measure/result"
)

// slots is the number of distinct colours.
const slots = 8

// knownSlots gives known configurations the same colour in every report: the first to
// the reference, the third to the proposals of Bacou et al. 2019.
var knownSlots = map[string]int{
	"NoCont": 0, "SameNode": 0, "metal": 0, "L0": 0,
	"NAT": 1, "L1": 1,
	"BrFusion": 2, "Hostlo": 2, "L2": 2,
	"Overlay":       3,
	"BrFusion-cold": 4, "BrFusion-trunk": 5, "Hostlo-plain": 4,
}

// seriesOf gives every configuration its slot. Unknown configurations take the free slots
// in the order of the run.
func seriesOf(run result.Run) []Series {
	series := make([]Series, len(run.Configurations))
	var taken []int
	for i, c := range run.Configurations {
		slot, known := knownSlots[c.Name]
		if !known || slices.Contains(taken, slot) {
			slot = -1
		} else {
			taken = append(taken, slot)
		}
		series[i] = Series{Name: c.Name, Stack: c.Stack, Slot: slot}
	}
	for i := range series {
		if series[i].Slot < 0 {
			series[i].Slot = freeSlot(taken)
			taken = append(taken, series[i].Slot)
		}
	}
	return series
}

// freeSlot returns the slot taken least often, the lowest of them.
func freeSlot(taken []int) int {
	uses := make([]int, slots)
	for _, s := range taken {
		uses[s]++
	}
	return slices.Index(uses, slices.Min(uses))
}
