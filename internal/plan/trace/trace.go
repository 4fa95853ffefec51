// Package trace reads cluster traces and dumps into users, pods and containers. Bacou et
// al., Nested Virtualization Without the Nest, ICPP 2019, §5.3.1, reads the Google trace
// of 2011; the other formats are newer public traces, the output of kubectl, and a format
// of our own. A trace is a table whose Columns say what they mean, except for kubectl's.
//
// Reading streams. Several files are decompressed and parsed at once, and applied in the
// order of their names, so the result does not depend on the number of workers. Memory
// holds the result, the state of rows that may still be part of it, and a bounded number
// of rows in between.
//
// All formats share one rule for requests. An empty request counts as zero. A row that
// requests neither CPU nor memory is left out and counted as NoRequest, because it costs
// nothing on any VM. A row that requests only one of the two is kept, with 0 for the other,
// and noted. Requests that are negative, not a number (NaN, Inf), or above a million vCPUs
// or 1 PiB are left out and counted. Any other text in place of a number breaks the line.
package trace

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"unnest.io/unnest/internal/plan/cluster"
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
	// OneOwner makes all pods those of one user, WholeCluster, with names of the form
	// USER/POD.
	OneOwner bool
	// Links reads the annotation LinksAnnotation of pods in a kubectl dump.
	Links bool
	// Reading stops when the number of broken lines exceeds MaxBroken and their share
	// of the lines so far exceeds MaxBrokenShare. Zero: 100 and 1 in 1000. Below zero:
	// no broken line is allowed.
	MaxBroken      int
	MaxBrokenShare float64
	// MaxContainers stops reading beyond it. Zero: 20 million, which take a few GB.
	MaxContainers int
	// Workers is the number of files read at once. Zero: one for each processor.
	Workers int
	// Columns are those of a trace that is not public. Nil: the format is one of Formats.
	Columns *Columns
	// Stdin is read for the path "-".
	Stdin io.Reader

	// Times in the trace, in ns; the greatest and the least: none was seen.
	earliest, latest *atomic.Int64
	filled           []atomic.Bool // which columns of JSON have a value in some row; nil: not JSON
}

// Period is a span of trace time with both ends included, or an instant where they are
// equal. It contains what started at or before To and had not ended at From.
type Period struct {
	From, To time.Duration
}

// At returns the period that is one instant.
func At(t time.Duration) *Period { return &Period{t, t} }

// WholeCluster is the name of the user of Options.OneOwner.
const WholeCluster = "cluster"

// kubectlFormat is the format of dumps of a cluster, which are not a table.
const kubectlFormat = "kubectl"

// Formats returns the names that Read knows, sorted.
func Formats() []string {
	names := append(builtinNames(), kubectlFormat)
	slices.Sort(names)
	return names
}

// streams are the formats that can be read from standard input: one table of text.
func streams() []string {
	return slices.DeleteFunc(Formats(), func(name string) bool { return name != kubectlFormat && !builtinColumns(name).streams() })
}

// Read reads files of a format, which is one of Formats or the name of Options.Columns. Paths are
// files, directories, globs, or "-" for Options.Stdin. Users are sorted by name; that there are
// none is an error. The report is filled as far as reading came, also with an error.
func Read(ctx context.Context, format string, paths []string, o Options) ([]cluster.User, Report, error) {
	rep := Report{Format: format}
	c, err := o.columns(format)
	switch {
	case err != nil:
		return nil, rep, err
	case len(paths) == 0:
		return nil, rep, fmt.Errorf("read %s: no file is named: name a file, a directory or a glob", format)
	case slices.Contains(paths, stdinPath) && !c.streams():
		return nil, rep, fmt.Errorf("read %s from standard input: this format is not a single stream: name its files; formats that can be streamed are %s",
			format, strings.Join(streams(), ", "))
	}
	chosen := o.Period
	if err := o.complete(c); err != nil {
		return nil, rep, err
	}
	var users []cluster.User
	if c.kubectl {
		users, err = readKubectl(ctx, paths, &o, &rep)
	} else {
		users, err = c.read(ctx, paths, &o, &rep)
	}
	if err == nil && o.OneOwner && !c.kubectl {
		users = oneOwner(users)
	}
	rep.complete(users)
	rep.Remarks = append(rep.Remarks, o.timeRemarks(format, c.timed(), chosen)...)
	if err == nil && len(users) == 0 {
		err = rep.nothing(paths, &o)
	}
	if err != nil {
		return nil, rep, err
	}
	return users, rep, nil
}

func (o Options) columns(format string) (*Columns, error) {
	switch c := builtinColumns(format); {
	case format == kubectlFormat:
		return &Columns{name: format, kubectl: true}, nil
	case o.Columns != nil && o.Columns.name == format:
		return o.Columns, nil
	case c != nil:
		return c, nil
	}
	return nil, fmt.Errorf("unknown trace format %q: choose one of %s", format, strings.Join(Formats(), ", "))
}

// oneOwner returns all pods as those of one user.
func oneOwner(users []cluster.User) []cluster.User {
	one := cluster.User{Name: WholeCluster}
	for _, u := range users {
		for _, p := range u.Pods {
			p.Name = u.Name + "/" + p.Name
			one.Pods = append(one.Pods, p)
		}
	}
	if len(users) == 0 {
		return nil
	}
	return []cluster.User{one}
}

// complete replaces zeros by the defaults.
func (o *Options) complete(c *Columns) error {
	if o.Largest == (cluster.Resources{}) {
		o.Largest = largest
	}
	if o.Largest.CPU <= 0 || o.Largest.Memory <= 0 {
		return fmt.Errorf("largest machine of %d nano-vCPU and %d bytes: both must be above zero", o.Largest.CPU, o.Largest.Memory)
	}
	if o.Period == nil {
		o.Period = &Period{math.MinInt64, math.MaxInt64}
		if c.atZero {
			o.Period = At(0)
		}
	}
	if o.Period.From > o.Period.To {
		return fmt.Errorf("period from %v to %v: it ends before it begins", o.Period.From, o.Period.To)
	}
	if c.maxBroken > 0 && o.MaxBroken == 0 {
		o.MaxBroken, o.MaxBrokenShare = c.maxBroken, -1 // the number alone decides
	}
	o.MaxBroken = cmp.Or(o.MaxBroken, 100)
	o.MaxBrokenShare = cmp.Or(o.MaxBrokenShare, 1e-3)
	o.MaxContainers = cmp.Or(o.MaxContainers, c.maxContainers, 20_000_000)
	o.earliest, o.latest = new(atomic.Int64), new(atomic.Int64)
	o.earliest.Store(math.MaxInt64)
	o.latest.Store(math.MinInt64)
	if c.json {
		o.filled = make([]atomic.Bool, len(c.tables[0].cells))
	}
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	return nil
}

// largest is the default of Options.Largest.
var largest = cluster.Resources{CPU: 96 * cluster.VCPU, Memory: 384 << 30}

// all reports whether the period contains everything.
func (p *Period) all() bool { return p.From == math.MinInt64 && p.To == math.MaxInt64 }

// saw notes a time in the trace, in a unit of so many nanoseconds.
func (o *Options) saw(t, unit int64) {
	if t > math.MaxInt64/unit || t < math.MinInt64/unit {
		return
	}
	for last := o.latest.Load(); t*unit > last && !o.latest.CompareAndSwap(last, t*unit); last = o.latest.Load() {
	}
	for first := o.earliest.Load(); t*unit < first && !o.earliest.CompareAndSwap(first, t*unit); first = o.earliest.Load() {
	}
}

// otherTimes says which times were read, if some were and the period has none of them.
func (o *Options) otherTimes() string {
	first, last := o.earliest.Load(), o.latest.Load()
	if first > last || first <= int64(o.Period.To) && last >= int64(o.Period.From) {
		return ""
	}
	return fmt.Sprintf("the times that were read are from %v to %v: name one with --at, such as --at %v", time.Duration(first), time.Duration(last), time.Duration(first))
}

// timeRemarks says which moment the users are of, if that is not plain from the period that
// the caller chose. A nil period was not chosen.
func (o *Options) timeRemarks(format string, hasTimes bool, chosen *Period) []string {
	switch {
	case !hasTimes && chosen != nil:
		return []string{fmt.Sprintf("--at has no effect on %s, which has no times.", format)}
	case format == "kubectl":
		return nil // it is of one moment
	case !hasTimes:
		return []string{fmt.Sprintf("%s has no times: all containers are priced as if they ran at the same time.", format)}
	case o.Period.all():
		return []string{fmt.Sprintf("All containers of %s, whenever they ran, are priced as if they ran at the same time: --at TIME keeps those of a moment.", format)}
	}
	if last := o.latest.Load(); last != math.MinInt64 && last < int64(o.Period.From) {
		return []string{fmt.Sprintf("The last time in %s is %v, before %v (--at): what had not ended by then is planned.", format, time.Duration(last), o.Period.From)}
	}
	if o.Period.From < o.Period.To {
		return []string{fmt.Sprintf("All containers of %s from %v to %v are priced as if they ran at the same time.", format, o.Period.From, o.Period.To)}
	}
	return nil
}
