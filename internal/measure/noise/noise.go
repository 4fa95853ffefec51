// Package noise tells what else a machine does while it measures: the processor time of
// other processes, time stolen by a hypervisor, tasks that wait for a processor, context
// switches and the processors' frequency.
//
// It is pure: it parses the text of files in /proc. Reading them does not belong here
// (package procfs does), nor does the CPU time of the experiment itself (package cputime).
package noise

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"unnest.io/unnest/internal/measure/cputime"
	"unnest.io/unnest/internal/measure/result"
)

// Snapshot is one look at a machine.
type Snapshot struct {
	At        time.Duration // on a monotonic clock
	Host      cputime.Times
	Processes []Process
	Blind     bool          // Processes lacks those outside this PID namespace
	Stalled   time.Duration // PSI: time in which a task waited for a processor; 0: not known
	Switches  uint64        // context switches since the boot
	MHz       float64       // mean frequency of the processors; 0: not known
}

// Reading is what else a machine did between two snapshots. Others and Steal count
// processors: 1 is a whole one.
type Reading struct {
	Elapsed  time.Duration `json:"elapsed_ns"`
	Others   float64       `json:"others"`            // user and kernel time of processes that are not the experiment's
	Steal    float64       `json:"steal"`             // the hypervisor of this machine ran something else
	Stalled  float64       `json:"stalled,omitempty"` // part of the time in which a task, also one of the experiment, waited for a processor; 0: not known
	Switches float64       `json:"switches"`          // context switches per second, with the experiment's
	MHz      float64       `json:"mhz,omitempty"`     // at the end
	Busiest  []Share       `json:"busiest,omitempty"` // of the other processes, the busiest first
}

// Share is the processor time of a process that is not the experiment's.
type Share struct {
	PID   int     `json:"pid"`
	Name  string  `json:"name"`
	Share float64 `json:"share"`
}

// Limits of an undisturbed execution, in processors. docs/explanation/statistics.md says
// what idle machines show.
const (
	MaxOthers = 0.25
	MaxSteal  = 0.10
)

// shortest is the time that a shorter interval counts as, because the kernel counts in
// ticks: in 30 ms, one tick would already be too much.
const shortest = 200 * time.Millisecond

// maxBusiest is the number of processes that a reading names.
const maxBusiest = 3

// Disturbed reports whether the machine did too much else to measure on.
func (r Reading) Disturbed() bool { return r.Others > MaxOthers || r.Steal > MaxSteal }

// leastReadings is how many readings tell what is usual on a machine.
const leastReadings = 8

// Unusual reports whether r is disturbed, by more than twice the median of earlier readings of the same
// machine. On a rented VM whose neighbours always take a part of its processors, that part disturbs all
// executions alike, and measuring one again does not avoid it. Before there are leastReadings, each disturbed reading is unusual.
func (r Reading) Unusual(earlier []Reading) bool {
	if len(earlier) < leastReadings {
		return r.Disturbed()
	}
	median := func(of func(Reading) float64) float64 {
		values := make([]float64, len(earlier))
		for i, e := range earlier {
			values[i] = of(e)
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	others, steal := median(func(r Reading) float64 { return r.Others }), median(func(r Reading) float64 { return r.Steal })
	return r.Others > max(MaxOthers, 2*others) || r.Steal > max(MaxSteal, 2*steal)
}

// tooNoisy is the share of disturbed executions above which a run is too noisy to conclude.
const tooNoisy = 0.1

// TooNoisy reports whether a run with these readings, one of each execution, is too noisy to conclude.
func TooNoisy(readings []Reading) bool {
	disturbed := 0
	for _, r := range readings {
		if r.Disturbed() {
			disturbed++
		}
	}
	return float64(disturbed) > tooNoisy*float64(len(readings))
}

// OfSamples returns the readings in the tags of samples, one of each measurement of an execution that has any.
func OfSamples(samples []result.Sample) (readings []Reading) {
	seen := map[result.Measurement]bool{}
	for _, s := range samples {
		if r, ok := OfTags(s.Tags); ok && !seen[s.Measurement()] {
			seen[s.Measurement()] = true
			readings = append(readings, r)
		}
	}
	return readings
}

// String names the largest disturbance: "other processes used 0.62 processors, most of it
// chrome (process 4711)".
func (r Reading) String() string {
	if r.Steal > MaxSteal && r.Steal > r.Others {
		return fmt.Sprintf("the hypervisor of this machine took %.2f processors", r.Steal)
	}
	text := fmt.Sprintf("other processes used %.2f processors", r.Others)
	if len(r.Busiest) > 0 {
		text += fmt.Sprintf(", most of it %s (process %d)", r.Busiest[0].Name, r.Busiest[0].PID)
	}
	return text
}

// Since returns what the machine did since an earlier snapshot of the same boot. The
// process root and its descendants are the experiment.
func (s Snapshot) Since(earlier Snapshot, root int) (Reading, error) {
	elapsed := s.At - earlier.At
	if elapsed <= 0 {
		return Reading{}, fmt.Errorf("compare snapshots: %v passed between them: want more than 0", elapsed)
	}
	host, err := s.Host.Sub(earlier.Host)
	if err != nil {
		return Reading{}, err
	}
	share := func(d time.Duration) float64 { return d.Seconds() / max(elapsed, shortest).Seconds() }
	r := Reading{
		Elapsed: elapsed, Steal: share(host.Steal), Stalled: (s.Stalled - earlier.Stalled).Seconds() / elapsed.Seconds(),
		Switches: float64(s.Switches-earlier.Switches) / elapsed.Seconds(), MHz: s.MHz,
	}
	mine, others := s.spentSince(earlier, root)
	total := time.Duration(0)
	for _, o := range others {
		total += o.spent
	}
	// A process that has ended may be counted twice, but never more than the machine did.
	busy := host.Breakdown()
	total = min(total, busy.Total()-mine)
	if s.Blind {
		total = busy.Total() - busy.Soft - mine
	}
	r.Others = share(max(0, total))
	for _, o := range others[:min(len(others), maxBusiest)] {
		r.Busiest = append(r.Busiest, Share{PID: o.PID, Name: o.Name, Share: share(o.spent)})
	}
	return r, nil
}

// spending is the processor time of a process and its ended children in an interval.
type spending struct {
	Process
	spent time.Duration
}

// spentSince returns the processor time of root with its descendants, and of each other
// process that has spent any, the busiest first. It leaves out the kernel's threads: they
// work for the experiment as for others.
func (s Snapshot) spentSince(earlier Snapshot, root int) (mine time.Duration, others []spending) {
	ours := descendants(earlier.Processes, root)
	for id := range descendants(s.Processes, root) { // a process can leave its parents
		ours[id] = true
	}
	for _, p := range spent(s.Processes, earlier.Processes) {
		switch {
		case ours[p.id()]:
			mine += p.spent
		case p.spent > 0 && !p.kernel() && !p.left():
			others = append(others, p)
		}
	}
	slices.SortFunc(others, func(a, b spending) int {
		return cmp.Or(cmp.Compare(b.spent, a.spent), cmp.Compare(a.PID, b.PID))
	})
	return mine, others
}

// The tags of a sample that hold a reading.
const (
	tagOthers   = "others"
	tagBusiest  = "busiest"
	tagSteal    = "steal"
	tagStalled  = "stalled"
	tagSwitches = "switches"
	tagMHz      = "mhz"
)

// Tags returns the reading as tags of a sample, the busiest process only if r is
// disturbed. The zero reading has none.
func (r Reading) Tags() map[string]string {
	if r.Elapsed == 0 {
		return map[string]string{}
	}
	decimal := func(v float64, places int) string { return strconv.FormatFloat(v, 'f', places, 64) }
	tags := map[string]string{
		tagOthers: decimal(r.Others, 3), tagSteal: decimal(r.Steal, 3), tagSwitches: decimal(r.Switches, 0),
	}
	if r.Stalled > 0 {
		tags[tagStalled] = decimal(r.Stalled, 3)
	}
	if r.MHz > 0 {
		tags[tagMHz] = decimal(r.MHz, 0)
	}
	if r.Disturbed() && len(r.Busiest) > 0 {
		tags[tagBusiest] = r.Busiest[0].Name
	}
	return tags
}

// OfTags returns the reading in the tags of a sample, without what Tags leaves out. ok is
// false if they have none.
func OfTags(tags map[string]string) (r Reading, ok bool) {
	if tags[tagOthers] == "" {
		return Reading{}, false
	}
	for tag, to := range map[string]*float64{
		tagOthers: &r.Others, tagSteal: &r.Steal, tagStalled: &r.Stalled, tagSwitches: &r.Switches, tagMHz: &r.MHz,
	} {
		*to, _ = strconv.ParseFloat(tags[tag], 64)
	}
	if name := tags[tagBusiest]; name != "" {
		r.Busiest = []Share{{Name: name}}
	}
	return r, true
}
