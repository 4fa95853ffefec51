// Package trace reads cluster traces and dumps into users, pods and containers, for
// package plan to pack: Bacou et al., Nested Virtualization Without the Nest, ICPP
// 2019, §5.3.1 reads the Google trace of 2011; the other formats are the public
// traces since, what kubectl prints, and two of our own.
//
// Reading streams: several files are decompressed and parsed at once, and applied
// in the order of their names, so the result does not depend on the number of
// workers. What is kept in memory is what is yielded, the state of what may still
// be yielded, and a bounded number of rows in between.
//
// One rule holds for requests in every format. A request that is empty counts as
// zero. What requests neither CPU nor memory is left out, and counted as NoRequest,
// because it costs nothing wherever it is put; Options.KeepEmpty keeps it, with a
// request of 0. What requests only one of the two is kept, with 0 for the other,
// and noted. Negative requests, those that are not a number (NaN, Inf), and those of
// more than a million vCPUs or 1 PiB are left out and counted. Any other text in the place of a number breaks the line.
package trace

import (
	"context"
	"fmt"
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
	// Largest is the machine that relative requests are fractions of. Zero: 96
	// vCPU and 384 GiB, an m5.24xlarge (Bacou et al., Table 2).
	Largest cluster.Resources
	// Period keeps what ran at some moment of it. Nil: for google2011 and
	// google2019 the instant 0, which is what ran when the trace began; for the
	// others everything that was ever asked for.
	Period *Period
	// OwnerLabel is the label of pods, in a kubectl dump, that names the user.
	// Empty: the namespace is the user.
	OwnerLabel string
	// Links reads how much containers talk to each other from the annotation
	// LinksAnnotation of pods in a kubectl dump.
	Links bool
	// KeepEmpty keeps what requests neither CPU nor memory.
	KeepEmpty bool
	// MaxBroken and MaxBrokenShare stop the reading when both are exceeded: the
	// number of broken lines, and their share of the lines so far. Zero: 100 and
	// 1 in 1000. Below zero: not one.
	MaxBroken      int
	MaxBrokenShare float64
	// MaxContainers stops the reading beyond it, before memory ends. Zero: 20
	// million, a few GB.
	MaxContainers int
	// Workers is how many files are read at once. Zero: one for each processor.
	Workers int
}

// Period is a span of trace time, both ends included; an instant where they are
// equal. What started at or before To and had not ended at From is in it.
type Period struct {
	From, To time.Duration
}

// At returns the period that is one instant.
func At(t time.Duration) *Period { return &Period{t, t} }

// Report says what became of every row that was read: Rows is Kept, Broken and
// all of Excluded.
type Report struct {
	Format     string
	Files      int      // that were read
	Unread     []string // files that begin after the period
	Rows       int      // lines or records, without headers and blank lines
	Kept       int      // rows that are in the result
	Excluded   []Count  // rows that are not, by reason
	Notes      []Count  // rows that are kept, but differ from what they say
	Broken     int      // rows that could not be understood
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

// Broken is a line that could not be understood. Files without lines count records.
type Broken struct {
	File string
	Line int
	Err  error
}

func (b Broken) String() string { return fmt.Sprintf("%s:%d: %v", b.File, b.Line, b.Err) }

// Reason says why a row is not in the result, or not as it was.
type Reason uint8

// The reasons.
const (
	kept       Reason = iota
	NoRequest         // requests neither CPU nor memory
	Negative          // a request below zero
	NotANumber        // NaN or infinite
	Beyond            // more than a million vCPUs or 1 PiB
	Invalid           // marked as invalid by those who published it
	NoOwner           // whose it is cannot be found out
	OtherEvent        // neither start, end nor update
	EndEvent          // an end, which takes out what started
	Update            // a changed request, which replaces the one before
	Superseded        // a start of what ended before the period, or started again
	Outside           // outside the period
	Finished          // a pod that has run to its end
	Reserved          // an alloc instance: its tasks are counted
	Repeated          // a row for a container that is known already
	NoCPU             // kept, with a request of 0 CPU
	NoMemory          // kept, with a request of 0 memory
	Daemon            // kept: a pod of a DaemonSet, of which each node has one
	blank             // not a row
	reasons
)

func (r Reason) String() string {
	return [reasons]string{
		kept:       "kept",
		NoRequest:  "requests neither CPU nor memory",
		Negative:   "negative request",
		NotANumber: "request is not a number",
		Beyond:     "request beyond any machine",
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
	}[r]
}

// reader reads one format.
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

// Read reads files of a format. Paths are files, directories or globs. Users are
// sorted by name. The report is filled as far as reading came, also with an error.
func Read(ctx context.Context, format string, paths []string, o Options) ([]cluster.User, Report, error) {
	rep := Report{Format: format}
	read, known := readers[format]
	if !known {
		return nil, rep, fmt.Errorf("unknown trace format %q: choose one of %s", format, strings.Join(Formats(), ", "))
	}
	if len(paths) == 0 {
		return nil, rep, fmt.Errorf("read %s: no file is named: name a file, a directory or a glob", format)
	}
	if err := o.complete(format); err != nil {
		return nil, rep, err
	}
	users, err := read(ctx, paths, &o, &rep)
	rep.complete(users)
	if err != nil {
		return nil, rep, fmt.Errorf("read %s: %w", format, err)
	}
	return users, rep, nil
}

// complete puts defaults where there is nothing.
func (o *Options) complete(format string) error {
	if o.Largest == (cluster.Resources{}) {
		o.Largest = cluster.Resources{CPU: 96 * cluster.VCPU, Memory: 384 << 30}
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
	if o.MaxBroken == 0 {
		o.MaxBroken = 100
	}
	if o.MaxBrokenShare == 0 {
		o.MaxBrokenShare = 1e-3
	}
	if o.MaxContainers == 0 {
		o.MaxContainers = 20_000_000
	}
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	return nil
}

// whole reports whether there is no period to keep to.
func (o *Options) whole() bool { return o.Period.From == math.MinInt64 && o.Period.To == math.MaxInt64 }

// complete turns counters into lists and counts what is in the result.
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

// row counts one row that became what the reason says.
func (r *Report) row(why Reason) {
	r.Rows++
	if why == kept {
		r.Kept++
	} else {
		r.excluded[why]++
	}
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

// tooBroken returns an error when more rows are broken than may be.
func (r *Report) tooBroken(o *Options) error {
	if r.Broken <= max(o.MaxBroken, 0) || float64(r.Broken) <= max(o.MaxBrokenShare, 0)*float64(r.Rows) {
		return nil
	}
	return fmt.Errorf("%d of the first %d lines are broken, first %s: fetch the file again, or allow more broken lines",
		r.Broken, r.Rows, r.Examples[0])
}
