package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"unnest.io/unnest/internal/measure/experiment"
	"unnest.io/unnest/internal/measure/result"
	"unnest.io/unnest/internal/measure/rundir"
	"unnest.io/unnest/internal/measure/stack"
	"unnest.io/unnest/internal/testbed/guest"
)

// resume continues a run.
func resume(ctx context.Context, o Options) error {
	dir, err := rundir.Open(o.Resume)
	if err != nil {
		return err
	}
	if dropped := dir.Dropped(); dropped != "" {
		fmt.Fprintln(o.Streams.Err, dropped)
	}
	spec, err := checked(experiment.FromRun(o.Resume, dir.Run()))
	// A complete run can have unsupported executions, which are tried again.
	// With --noisy, it may lack blocks that a noisy machine kept it from.
	if err == nil && (dir.Run().State != result.Complete || len(dir.Run().Failures) > 0 || o.Noisy && spec.Until > 0) {
		var accel guest.Choice
		o = o.continued(dir.Run())
		if accel, err = ready(ctx, o); err == nil {
			_, err = measure(ctx, o, accel, spec, dir)
		}
	}
	return finish(o.Streams, o.Resume, "unnest bench", errors.Join(err, dir.Close()))
}

// continued returns the options to resume a run with: what o leaves open is as the run began.
func (o Options) continued(run result.Run) Options {
	o.Start = cmp.Or(o.Start, stack.Start(run.Start))
	if run.Accelerator == string(guest.TCG) { // also where KVM works
		o.Accel = cmp.Or(o.Accel, run.Accelerator)
	}
	return o
}

// record writes down where and with what a run is measured. A run with samples keeps what they were measured with, and gets a note for each
// difference. The error is that of sameMachines.
func record(dir *rundir.Dir, now result.Run) error {
	if err := sameMachines(dir, now); err != nil {
		return err
	}
	return dir.Update(func(r *result.Run) {
		if len(dir.Samples()) == 0 {
			r.Accelerator, r.AccelReason, r.Host, r.Guests, r.Start = now.Accelerator, now.AccelReason, now.Host, now.Guests, now.Start
			r.Image, r.Tools, r.Version, r.Revision = now.Image, now.Tools, now.Version, now.Revision
		}
		for _, d := range differences(*r, now) {
			r.Notes = append(r.Notes, fmt.Sprintf("Resumed with another %s: %s, at first %s.", d.what, d.now, d.was))
		}
		r.Notes, r.Conditions = append(r.Notes, now.Notes...), append(r.Conditions, now.Conditions...)
	})
}

// difference is one between the samples of a run and its continuation.
type difference struct{ what, was, now, fix string } // without a fix, values may still be compared

// differences lists in what two runs differ, as far as both say it.
func differences(was, now result.Run) []difference {
	all := []difference{
		{"accelerator", was.Accelerator, now.Accelerator, "give --accel " + was.Accelerator},
		{"guest image", was.Image, now.Image, ""}, {"version of unnest", was.Version, now.Version, ""}, {"revision of unnest", was.Revision, now.Revision, ""},
	}
	add := func(name string, was, now result.Machine) {
		all = append(all,
			difference{"CPU of " + name, was.CPU, now.CPU, "resume it there"}, difference{"kernel of " + name, was.Kernel, now.Kernel, "resume it with that kernel"},
			difference{"start of " + name, was.Start, now.Start, startAgain(was.Start)})
	}
	add("the host", was.Host, now.Host)
	for _, g := range now.Guests {
		named := func(m result.Machine) bool { return m.Name == g.Name } // hosts of the user share a name
		same := func(m result.Machine) bool {
			return named(m) && m.CPU == g.CPU && m.Kernel == g.Kernel && m.Start == g.Start
		}
		if i := slices.IndexFunc(was.Guests, named); i >= 0 && !slices.ContainsFunc(was.Guests, same) {
			add(g.Name, was.Guests[i], g)
		}
	}
	for _, tool := range slices.Sorted(maps.Keys(now.Tools)) {
		all = append(all, difference{"version of " + tool, was.Tools[tool], now.Tools[tool], ""})
	}
	return slices.DeleteFunc(all, func(d difference) bool { return d.was == "" || d.now == "" || d.was == d.now })
}

// elsewhereError says why a run cannot be continued here.
type elsewhereError struct{ error }

// sameMachines returns an elsewhereError if a run has samples, and they were measured with another accelerator, host or start of guests.
func sameMachines(dir *rundir.Dir, now result.Run) error {
	for _, d := range differences(dir.Run(), now) {
		if d.fix != "" && len(dir.Samples()) > 0 {
			return elsewhereError{fmt.Errorf("resume run %s: the %s is %s, and was %s for its samples: %s, or measure anew", dir.Run().ID, d.what, d.now, d.was, d.fix)}
		}
	}
	return nil
}

// startAgain says how to start a guest as before.
func startAgain(was string) string {
	if was == result.Booted {
		return "give --cold=true"
	}
	return "find out why its snapshot is not restored"
}
