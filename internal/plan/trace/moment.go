package trace

import (
	"fmt"
	"math"
	"time"
)

// saw notes a time in the trace, in a unit of so many nanoseconds.
func (o *Options) saw(t, unit int64) {
	if t > math.MaxInt64/unit {
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
