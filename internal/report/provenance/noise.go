package provenance

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"unnest.io/unnest/internal/measure/noise"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/report/document"
)

// observed is what else the machine did during the executions of a run.
type observed struct {
	all       []noise.Reading // one for each execution in which the machine was observed
	disturbed []noise.Reading // of these
	repeated  int             // disturbed executions that were measured again
	repeats   []string        // of them per configuration, worded; empty: not known
	first     bool            // the first measurement counts, because repeats depend on the configuration
}

// Observe sums up what the machine did during samples of a run.
func Observe(run result.Run, samples []result.Sample) observed {
	o := observed{repeated: run.Disturbed}
	seen, repeats := map[result.Execution]bool{}, map[string]int{}
	for _, s := range samples {
		r, ok := noise.OfTags(s.Tags)
		if !ok || seen[s.Execution()] {
			continue
		}
		seen[s.Execution()] = true
		repeats[s.Configuration] += noise.Repeats(s)
		o.first = o.first || s.Discarded > 0
		o.all = append(o.all, r)
		if r.Disturbed() {
			o.disturbed = append(o.disturbed, r)
		}
	}
	for _, c := range run.Configurations {
		if n := repeats[c.Name]; n > 0 {
			o.repeats = append(o.repeats, fmt.Sprintf("%s %d", c.Name, n))
		}
	}
	return o
}

func (o observed) tooNoisy() bool {
	return noise.TooNoisy(o.all)
}

// Verdict says at the top of a report that its run is too noisy to conclude, and why. Of
// other runs there is none.
func (o observed) Verdict() []string {
	if !o.tooNoisy() {
		return nil
	}
	return []string{fmt.Sprintf("Too noisy to conclude: in %d of %s, %s. What follows holds for the machine in that state only.",
		len(o.disturbed), document.Plural(len(o.all), "execution"), o.cause())}
}

// cause names what disturbed executions.
func (o observed) cause() string {
	others := average(o.disturbed, func(r noise.Reading) float64 { return r.Others })
	steal := average(o.disturbed, func(r noise.Reading) float64 { return r.Steal })
	if steal > others {
		return fmt.Sprintf("the hypervisor of this machine took %.2f processors on average", steal)
	}
	return fmt.Sprintf("other processes%s used %.2f processors on average", o.busiest(), others)
}

// busiest names the process that most often was the busiest of a disturbed execution.
func (o observed) busiest() string {
	times, most := map[string]int{}, ""
	for _, r := range o.disturbed {
		for _, b := range r.Busiest {
			times[b.Name]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(times)) {
		if times[name] > times[most] {
			most = name
		}
	}
	if most == "" {
		return ""
	}
	return " (most of all " + most + ")"
}

// warning counts the executions that were disturbed, unless the verdict does, or measured
// again.
func (o observed) warning() string {
	var parts []string
	if len(o.disturbed) > 0 && !o.tooNoisy() {
		parts = append(parts, fmt.Sprintf("%d of %s remained disturbed: %s.", len(o.disturbed), document.Plural(len(o.all), "execution"), o.cause()))
	}
	if o.repeated > 0 {
		text := document.Plural(o.repeated, "disturbed execution") + " measured again"
		if len(o.repeats) > 0 {
			text += " (" + strings.Join(o.repeats, ", ") + ")"
		}
		parts = append(parts, text+".")
	}
	if o.first {
		parts = append(parts, "How often depends on the configuration, so the first measurement of each execution counts, not the last.")
	}
	return strings.Join(parts, " ")
}

// fact describes the machine during the executions. It is empty if nobody looked.
func (o observed) fact() string {
	if len(o.all) == 0 {
		return ""
	}
	others := func(r noise.Reading) float64 { return r.Others }
	stalled := func(r noise.Reading) float64 { return r.Stalled }
	slowness := func(r noise.Reading) float64 { return -r.MHz }
	parts := []string{
		fmt.Sprintf("other processes %.2f processors on average, %.2f at most", average(o.all, others), largest(o.all, others)),
		fmt.Sprintf("hypervisor %.2f processors", average(o.all, func(r noise.Reading) float64 { return r.Steal })),
		fmt.Sprintf("%.0f context switches per second", average(o.all, func(r noise.Reading) float64 { return r.Switches })),
	}
	if waited := average(o.all, stalled); waited > 0 {
		parts = append(parts, fmt.Sprintf("a task waited for a processor %.0f %% of the time", 100*waited))
	}
	if slowest := -largest(o.all, slowness); slowest > 0 {
		parts = append(parts, fmt.Sprintf("%.0f to %.0f MHz", slowest, largest(o.all, func(r noise.Reading) float64 { return r.MHz })))
	}
	return strings.Join(parts, "; ")
}

func average(readings []noise.Reading, of func(noise.Reading) float64) float64 {
	sum := 0.0
	for _, r := range readings {
		sum += of(r)
	}
	return sum / float64(len(readings))
}

func largest(readings []noise.Reading, of func(noise.Reading) float64) float64 {
	v := of(readings[0])
	for _, r := range readings {
		v = max(v, of(r))
	}
	return v
}
