// Package trace reads cluster traces and dumps into users, pods and containers. Bacou et
// al., Nested Virtualization Without the Nest, ICPP 2019, §5.3.1, reads the Google trace
// of 2011; the other formats are newer public traces, the output of kubectl, and two
// formats of our own.
//
// Reading streams. Several files are decompressed and parsed at once, and applied in the
// order of their names, so the result does not depend on the number of workers. Memory
// holds the result, the state of rows that may still be part of it, and a bounded number
// of rows in between.
//
// All formats share one rule for requests. An empty request counts as zero. A row that
// requests neither CPU nor memory is left out and counted as NoRequest, because it costs
// nothing on any VM; Options.KeepEmpty keeps it. A row that requests only one of the two
// is kept, with 0 for the other, and noted. Requests that are negative, not a number
// (NaN, Inf), or above a million vCPUs or 1 PiB are left out and counted. Any other text
// in place of a number breaks the line.
package trace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"unnest/internal/plan/cluster"
)

// Options say what to read of a trace. The zero value reads as the paper does.
type Options struct {
	// Largest is the machine that relative requests are fractions of. Zero: 96 vCPU
	// and 384 GiB, an m5.24xlarge (Bacou et al., Table 2).
	Largest cluster.Resources
	// Period keeps what ran at some moment of it. Nil: for google2011 and google2019
	// the instant 0, which is what ran when the trace began; for other formats
	// everything.
	Period *Period
	// OwnerLabel is the pod label in a kubectl dump that names the user. Empty: the
	// namespace is the user.
	OwnerLabel string
	// Links reads the annotation LinksAnnotation of pods in a kubectl dump.
	Links bool
	// KeepEmpty keeps rows that request neither CPU nor memory.
	KeepEmpty bool
	// Reading stops when the number of broken lines exceeds MaxBroken and their share
	// of the lines so far exceeds MaxBrokenShare. Zero: 100 and 1 in 1000. Below zero:
	// no broken line is allowed.
	MaxBroken      int
	MaxBrokenShare float64
	// MaxContainers stops reading beyond it. Zero: 20 million, which take a few GB.
	MaxContainers int
	// Workers is the number of files read at once. Zero: one for each processor.
	Workers int
	// Stdin is read for the path "-".
	Stdin io.Reader
}

// Period is a span of trace time with both ends included, or an instant where they are
// equal. It contains what started at or before To and had not ended at From.
type Period struct {
	From, To time.Duration
}

// At returns the period that is one instant.
func At(t time.Duration) *Period { return &Period{t, t} }

// Report says what became of every row: Rows is the sum of Kept, Broken and Excluded.
type Report struct {
	Format     string
	Files      int      // files read
	Unread     []string // files that begin after the period
	Rows       int      // lines or records, without headers and blank lines
	Kept       int      // rows in the result
	Excluded   []Count  // rows not in the result, by reason
	Notes      []Count  // rows kept with a remark, by reason
	Broken     int      // rows that could not be parsed
	Examples   []Broken // the first of them
	Users      int
	Pods       int
	Containers int

	excluded, notes [reasons]int
}

// Count is a number of rows.
type Count struct {
	Reason Reason
	Rows   int
}

// Broken is a line that could not be parsed. Files without lines count records.
type Broken struct {
	File string
	Line int
	Err  error
}

func (b Broken) String() string { return fmt.Sprintf("%s line %d: %v", b.File, b.Line, b.Err) }

// Reason says why a row is excluded or noted.
type Reason uint8

// The reasons.
const (
	kept       Reason = iota
	NoRequest         // neither CPU nor memory
	Negative          // a request below zero
	NotANumber        // NaN or infinite
	Beyond            // more than a million vCPUs or 1 PiB
	Invalid           // marked as invalid by the publisher of the trace
	NoOwner           // the user is unknown
	OtherEvent        // neither start, end nor update
	EndEvent          // an end, which removes what started
	Update            // a changed request, which replaces the one before
	Superseded        // a start before an end outside the period, or before another start
	Outside           // outside the period
	Finished          // a pod that has completed
	Reserved          // an alloc instance; its tasks are counted
	Repeated          // another row of a container
	NoCPU             // kept, with a request of 0 CPU
	NoMemory          // kept, with a request of 0 memory
	Daemon            // kept: a pod of a DaemonSet, which runs on every node
	blank             // not a row
	reasons
)

var reasonText = [reasons]string{
	kept:       "kept",
	NoRequest:  "requests neither CPU nor memory",
	Negative:   "negative request",
	NotANumber: "request is not a number",
	Beyond:     "request larger than any machine",
	Invalid:    "request marked as invalid",
	NoOwner:    "owner unknown",
	OtherEvent: "event that neither starts, ends nor updates",
	EndEvent:   "end",
	Update:     "update of a request",
	Superseded: "ended before the period, or started again",
	Outside:    "outside the period",
	Finished:   "finished",
	Reserved:   "alloc instance, whose tasks count",
	Repeated:   "container seen before",
	NoCPU:      "requests no CPU",
	NoMemory:   "requests no memory",
	Daemon:     "pod of a DaemonSet",
	blank:      "blank",
}

func (r Reason) String() string { return reasonText[r] }

type reader func(ctx context.Context, paths []string, o *Options, rep *Report) ([]cluster.User, error)

var readers = map[string]reader{
	"google2011":  readGoogle2011,
	"google2019":  readGoogle2019,
	"alibaba2017": readAlibaba2017,
	"alibaba2018": readAlibaba2018,
	"openb":       readOpenB,
	"dlrm":        readDLRM,
	"azure":       readAzure,
	"kubectl":     readKubectl,
	"csv":         readCSV,
	"parquet":     readParquet,
}

// Formats returns the names that Read knows, sorted.
func Formats() []string { return slices.Sorted(maps.Keys(readers)) }

// streams are the formats that can be read from standard input: one table of text.
var streams = []string{"alibaba2017", "alibaba2018", "csv", "dlrm", "kubectl", "openb"}

// Read reads files of a format. Paths are files, directories, globs, or "-" for
// Options.Stdin. Users are sorted by name; that there are none is an error. The report
// is filled as far as reading came, also with an error.
func Read(ctx context.Context, format string, paths []string, o Options) ([]cluster.User, Report, error) {
	rep := Report{Format: format}
	read, known := readers[format]
	switch {
	case !known:
		return nil, rep, fmt.Errorf("unknown trace format %q: choose one of %s", format, strings.Join(Formats(), ", "))
	case len(paths) == 0:
		return nil, rep, fmt.Errorf("read %s: no file is named: name a file, a directory or a glob", format)
	case slices.Contains(paths, stdinPath) && !slices.Contains(streams, format):
		return nil, rep, fmt.Errorf("read %s from standard input: this format is not a single stream: name its files; formats that can be streamed are %s",
			format, strings.Join(streams, ", "))
	}
	if err := o.complete(format); err != nil {
		return nil, rep, err
	}
	users, err := read(ctx, paths, &o, &rep)
	rep.complete(users)
	if err == nil && len(users) == 0 {
		err = rep.nothing(paths)
	}
	if err != nil {
		return nil, rep, err
	}
	return users, rep, nil
}

// nothing returns the error for a trace without pods to plan.
func (r *Report) nothing(paths []string) error {
	input := strings.ReplaceAll(strings.Join(paths, ", "), stdinPath, stdinName)
	switch {
	case r.Rows == 0 && r.Format == "kubectl":
		return fmt.Errorf("%s: the list of pods is empty: make it with kubectl get pods -A -o json, by a user who may list all namespaces", input)
	case r.Rows == 0:
		return fmt.Errorf("%s: has no rows: name the files of a trace in the format %s", input, r.Format)
	case r.Broken == r.Rows:
		return errors.New(r.Examples[0].String())
	}
	var why []string
	for _, c := range r.Excluded {
		why = append(why, fmt.Sprintf("%d %s", c.Rows, c.Reason))
	}
	if r.Broken > 0 {
		why = append(why, fmt.Sprintf("%d broken, the first %s", r.Broken, r.Examples[0]))
	}
	return fmt.Errorf("%s: no pod is left of %d rows (%s): choose another period or another file", input, r.Rows, strings.Join(why, "; "))
}

// complete replaces zeros by the defaults.
func (o *Options) complete(format string) error {
	if o.Largest == (cluster.Resources{}) {
		o.Largest = largest
	}
	if o.Largest.CPU <= 0 || o.Largest.Memory <= 0 {
		return fmt.Errorf("largest machine of %d nano-vCPU and %d bytes: both must be above zero", o.Largest.CPU, o.Largest.Memory)
	}
	if o.Period == nil {
		o.Period = &Period{math.MinInt64, math.MaxInt64}
		if strings.HasPrefix(format, "google") {
			o.Period = At(0)
		}
	}
	if o.Period.From > o.Period.To {
		return fmt.Errorf("period from %v to %v: it ends before it begins", o.Period.From, o.Period.To)
	}
	o.MaxBroken = cmp.Or(o.MaxBroken, 100)
	o.MaxBrokenShare = cmp.Or(o.MaxBrokenShare, 1e-3)
	o.MaxContainers = cmp.Or(o.MaxContainers, 20_000_000)
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	return nil
}

// largest is the default of Options.Largest.
var largest = cluster.Resources{CPU: 96 * cluster.VCPU, Memory: 384 << 30}

// all reports whether the period contains everything.
func (p *Period) all() bool { return p.From == math.MinInt64 && p.To == math.MaxInt64 }

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
