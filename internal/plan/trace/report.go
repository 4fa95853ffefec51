package trace

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"unnest.io/unnest/internal/plan/cluster"
)

// Report says what became of every row: Rows is the sum of Kept, Broken and Excluded.
type Report struct {
	Format     string
	Files      int                 // files read
	Unread     []string            // files that begin after the period
	Rows       int                 // lines or records, without headers and blank lines
	Kept       int                 // rows in the result
	Excluded   []Count             // rows not in the result, by reason
	Notes      []Count             // rows kept with a remark, by reason
	Broken     int                 // rows that could not be parsed
	Examples   []Broken            // the first of them
	Remarks    []string            // sentences on what the figures assume or leave out
	DaemonSets []cluster.DaemonSet // of a kubectl dump; User.PerVM is their sum
	Nodes      []cluster.Node      // of a kubectl dump
	Bound      []string            // nodes of pods that cannot be planned
	Selectors  []string            // labels of nodes that pods select by
	Rules      []cluster.Rule      // about the places of pods
	Limits     []cluster.Limit     // of which pods of a kubectl dump take
	Users      int
	Pods       int
	Containers int

	excluded, notes [reasons]int
	asks            extended
}

// Count is a number of rows.
type Count struct {
	Reason Reason
	Rows   int
}

// Broken is a line, or another record, that could not be parsed.
type Broken struct {
	File   string
	Unit   string // line, row or item
	Number int    // from 1
	Err    error
}

func (b Broken) String() string { return fmt.Sprintf("%s %s %d: %v", b.File, b.Unit, b.Number, b.Err) }

// Reason says why a row is excluded or noted.
type Reason uint8

// The reasons.
const (
	kept         Reason = iota
	NoRequest           // neither CPU nor memory
	Negative            // a request below zero
	NotANumber          // NaN or infinite
	Beyond              // more than a million vCPUs or 1 PiB
	Invalid             // marked as invalid by the publisher of the trace
	NoOwner             // the user is unknown
	OtherEvent          // neither start, end nor update
	EndEvent            // an end, which removes what started
	Update              // a changed request, which replaces the one before
	Superseded          // a start before an end outside the period, or before another start
	Outside             // outside the period
	Finished            // a pod that has completed
	Terminating         // a pod that is being deleted
	Reserved            // an alloc instance; its tasks are counted
	Repeated            // another row of a container
	NoCPU               // kept, with a request of 0 CPU
	NoMemory            // kept, with a request of 0 memory
	Daemon              // a pod of a DaemonSet, which counts on every VM
	Extended            // requests what no VM model has, such as GPUs
	OtherKind           // an object that is not a pod
	Node                // a node, which is not a pod
	Budget              // a PodDisruptionBudget, which is not a pod
	BestEffort          // kept: requests nothing, and takes the place of a pod
	GPU                 // kept: requests GPUs, which are not planned
	NeverStarted        // counted twice: an end of a task that did not run
	blank               // not a row
	reasons
)

var reasonText = [reasons]string{
	kept:         "kept",
	NoRequest:    "requests neither CPU nor memory",
	Negative:     "negative request",
	NotANumber:   "request is not a number",
	Beyond:       "request larger than any machine",
	Invalid:      "request marked as invalid",
	NoOwner:      "owner unknown",
	OtherEvent:   "event that neither starts, ends nor updates",
	EndEvent:     "end",
	Update:       "update of a request",
	Superseded:   "ended before the period, or started again",
	Outside:      "outside the period",
	Finished:     "finished",
	Terminating:  "being deleted",
	Reserved:     "alloc instance, whose tasks count",
	Repeated:     "container seen before",
	NoCPU:        "requests no CPU",
	NoMemory:     "requests no memory",
	Daemon:       "pod of a DaemonSet, which counts on every VM",
	Extended:     "requests what no VM has",
	OtherKind:    "not a pod",
	Node:         "node",
	Budget:       "disruption budget",
	BestEffort:   "requests neither CPU nor memory, and takes the place of a pod",
	GPU:          "requests GPUs, which are not planned",
	NeverStarted: "end of a task that did not run",
	blank:        "blank",
}

func (r Reason) String() string { return reasonText[r] }

// nothing returns the error for a trace without pods to plan.
func (r *Report) nothing(paths []string, o *Options) error {
	var names []string
	for _, path := range paths {
		names = append(names, display(path))
	}
	input := strings.Join(names, ", ")
	times := o.otherTimes()
	switch {
	case r.Rows == 0 && times != "":
		return fmt.Errorf("%s: all rows come after the period: %s", input, times)
	case r.Rows == 0 && r.Format == "kubectl":
		return fmt.Errorf("%s: the list of pods is empty: make it with kubectl get pods -A -o json, by a user who may list all namespaces", input)
	case r.Rows == 0:
		return fmt.Errorf("%s: has no rows: name the files of a trace in the format %s", input, r.Format)
	case r.excluded[OtherKind]+r.excluded[Node]+r.excluded[Budget] == r.Rows:
		return fmt.Errorf("%s: has %d objects and no pod: %s", input, r.Rows, fixKubectl)
	case r.Broken == r.Rows:
		return errors.New(r.Examples[0].String())
	}
	var why []string
	for _, c := range r.Excluded {
		text := fmt.Sprintf("%d %s", c.Rows, c.Reason)
		if names := slices.Sorted(maps.Keys(r.asks)); c.Reason == Extended && len(names) > 0 {
			text += ": " + strings.Join(names, ", ")
		}
		why = append(why, text)
	}
	if r.Broken > 0 {
		why = append(why, fmt.Sprintf("%d broken, the first %s", r.Broken, r.Examples[0]))
	}
	return fmt.Errorf("%s: no pod is left of %d rows (%s): %s", input, r.Rows, strings.Join(why, "; "), cmp.Or(times, "choose another period or another file"))
}

// complete turns counters into lists, and counts the result.
func (r *Report) complete(users []cluster.User) {
	r.Excluded, r.Notes = counts(r.excluded), counts(r.notes)
	r.Users = len(users)
	for _, u := range users {
		r.Pods += len(u.Pods)
		for _, p := range u.Pods {
			r.Containers += len(p.Containers)
		}
	}
}

// lostEnds notes ends of tasks that did not run, and says so if they are most of all ends.
func (r *Report) lostEnds(lost, ends int) {
	r.notes[NeverStarted] += lost
	if 2*lost > ends {
		r.Remarks = append(r.Remarks, fmt.Sprintf("%d of %d ends are of tasks that never started: if their starts have another name, or are in another file, containers are missing.", lost, ends))
	}
}

func counts(by [reasons]int) []Count {
	var list []Count
	for r, n := range by {
		if n != 0 {
			list = append(list, Count{Reason(r), n})
		}
	}
	return list
}

// add counts one row with its request, and reports whether it is kept.
func (r *Report) add(q request) bool {
	r.Rows++
	return r.count(q)
}

// count counts the outcome of a row that Rows has already, and reports whether it is
// kept.
func (r *Report) count(q request) bool {
	if q.why != kept {
		r.excluded[q.why]++
		return false
	}
	r.Kept++
	if q.CPU == 0 {
		r.notes[NoCPU]++
	}
	if q.Memory == 0 {
		r.notes[NoMemory]++
	}
	return true
}

// examples is how many broken lines a report shows.
const examples = 10

// broken counts a broken row, and returns an error when there are too many.
func (r *Report) broken(b Broken, o *Options) error {
	r.Rows++
	r.Broken++
	if len(r.Examples) < examples {
		r.Examples = append(r.Examples, b)
	}
	return r.tooBroken(o)
}

// tooBroken returns an error when more rows are broken than Options allow.
func (r *Report) tooBroken(o *Options) error {
	if r.Broken <= max(o.MaxBroken, 0) || float64(r.Broken) <= max(o.MaxBrokenShare, 0)*float64(r.Rows) {
		return nil
	}
	return fmt.Errorf("%d of the first %d lines are broken, the first: %s: fetch the file again, or allow more broken lines",
		r.Broken, r.Rows, r.Examples[0])
}
