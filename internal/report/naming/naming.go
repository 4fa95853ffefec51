// Package naming says how reports call what was measured: runs, cases, configurations, metrics
// and units.
package naming

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/stats"
	"unnest.io/unnest/internal/report/document"
)

// Quantity names what a metric measures: "latency" for latency_mean.
func Quantity(metric string) string {
	if q, ok := startTimes[metric]; ok {
		return q
	}
	if i := slices.IndexFunc(CPUTimes, func(p CPUTime) bool { return p.Metric == metric }); i >= 0 {
		return CPUTimes[i].quantity
	}
	words := strings.Fields(strings.ReplaceAll(strings.TrimSuffix(strings.TrimSuffix(metric, "_mean"), "_avg"), "_", " "))
	for i := range words {
		if words[i] == "cpu" {
			words[i] = "CPU"
		}
	}
	return strings.Join(words, " ")
}

// Better spells an order out.
func Better(o result.Order) string {
	if o == result.HIB {
		return "higher is better"
	}
	return "lower is better"
}

// Unit is a unit as a report prints it: "µs/op" for us/op.
func Unit(unit string) string {
	if rest, micro := strings.CutPrefix(unit, "us"); micro && (rest == "" || rest[0] == '/') {
		return "µs" + rest
	}
	return unit
}

// Scale says how to read values of a unit: "(µs, lower is better)".
func Scale(unit string, o result.Order) string {
	return fmt.Sprintf("(%s, %s)", Unit(unit), Better(o))
}

// Axis is the axis of a chart of a metric: "latency, µs (lower is better)".
func Axis(metric, unit string, o result.Order) string {
	return fmt.Sprintf("%s, %s (%s)", Quantity(metric), Unit(unit), Better(o))
}

// In prints numbers in a unit.
func In(unit string) func(document.Number) string {
	return func(v document.Number) string { return document.Rounded(v) + " " + Unit(unit) }
}

// Milliseconds are the units of time.
var Milliseconds = map[string]float64{"ns": 1e-6, "us": 1e-3, "µs": 1e-3, "ms": 1, "s": 1e3, "sec": 1e3}

// Size names a message size.
func Size(size int) string { return strconv.Itoa(size) + " B" }

// Case is the title of a case, or its name.
func Case(c result.Case) string { return cmp.Or(c.Title, c.Name) }

// Label names a case within its group.
func Label(c result.Case) string {
	if c.Size > 0 {
		return Size(c.Size)
	}
	return Case(c)
}

// Group names a group after its first case, without the size.
func Group(c result.Case) string {
	if c.Size == 0 {
		return cmp.Or(c.Title, GroupKey(c))
	}
	return cmp.Or(strings.TrimSuffix(c.Title, ", "+Size(c.Size)), GroupKey(c))
}

// GroupKey is the group of a case, or its name if it has none.
func GroupKey(c result.Case) string { return cmp.Or(c.Group, c.Name) }

// startTimes are the metrics of the start of a container (Bacou et al. 2019, §5.2.4)
// with what each measures.
var startTimes = map[string]string{"start": "start-up time", "add": "time of CNI ADD", "del": "time of CNI DEL"}

// UnitAndOrder is a unit, unless it is 1, and an order.
func UnitAndOrder(unit string, order result.Order) string {
	if unit == "" || unit == "1" {
		return string(order)
	}
	return Unit(unit) + ", " + string(order)
}

// Run is the title of a run.
func Run(run result.Run) string {
	return cmp.Or(run.Title, run.Experiment, run.ID, "untitled run")
}

// knownSlots gives known configurations the same colour in every report: the first to
// the reference, the third to the proposals of Bacou et al. 2019.
var knownSlots = map[string]int{
	"NoCont": 0, "SameNode": 0, "metal": 0, "L0": 0,
	"NAT": 1, "L1": 1,
	"BrFusion": 2, "Hostlo": 2, "L2": 2,
	"Overlay":       3,
	"BrFusion-cold": 4, "BrFusion-trunk": 5, "Hostlo-plain": 4, "Hostlo-network": 4,
}

// Series gives every configuration its slot. Unknown configurations take the free slots
// in the order of the run.
func Series(run result.Run) []document.Series {
	series := make([]document.Series, len(run.Configurations))
	var taken []int
	for i, c := range run.Configurations {
		slot, known := knownSlots[c.Name]
		if !known || slices.Contains(taken, slot) {
			slot = -1
		} else {
			taken = append(taken, slot)
		}
		series[i] = document.Series{Name: c.Name, Stack: c.Stack, Slot: slot}
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
	uses := make([]int, document.Slots)
	for _, s := range taken {
		uses[s]++
	}
	return slices.Index(uses, slices.Min(uses))
}

// CPUTime is a metric of CPU time, with the name of its column and what it measures.
type CPUTime struct{ Metric, Column, quantity string }

// CPUTimes are the metrics of CPU time (Bacou et al. 2019, §5.1) with what each
// measures, in the order of the stacked bars.
var CPUTimes = []CPUTime{
	{"host_usr", "usr", "user time on the host"},
	{"host_sys", "sys", "kernel time on the host"},
	{"host_soft", "soft", "software interrupt time on the host"},
	{"host_guest", "guest", "time spent in the guest"},
	{"guest_usr", "usr", "user time in the guest"},
	{"guest_sys", "sys", "kernel time in the guest"},
	{"guest_soft", "soft", "software interrupt time in the guest"},
	{"vm_usr", "usr", "user time of the VM's process"},
	{"vm_sys", "sys", "kernel time of the VM's process"},
	{"vm_guest", "guest", "time that the VM's process spent in the guest"},
	{"server_usr", "usr", "user time of the server"},
	{"server_sys", "sys", "kernel time of the server"},
	{"node_usr", "usr", "user time on the nodes"},
	{"node_sys", "sys", "kernel time on the nodes"},
	{"node_soft", "soft", "software interrupt time on the nodes"},
}

// IsCPU reports whether a metric is one of CPUTimes.
func IsCPU(metric string) bool {
	return slices.ContainsFunc(CPUTimes, func(p CPUTime) bool { return p.Metric == metric })
}

// PMeaning explains p.
const PMeaning = stats.PMeaning + ". It is not the probability that the means are equal."

// Reached is the metric of a load at a constant rate: how much of the rate was answered, in
// percent. FullRate is the least value of a load whose latencies are those at its rate.
const (
	Reached  = "reached"
	FullRate = 99
)
