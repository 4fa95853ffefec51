package trace

import (
	"cmp"
	"context"
	"fmt"
	"strconv"

	"unnest/internal/plan/cluster"
)

// The columns of clusterdata-2011-2 (Reiss, Wilkes, Hellerstein, Google cluster-usage
// traces: format + schema, version 2.1 of the trace), without a header:
//
//	task_events: time µs, missing info, job ID, task index, machine ID, event type,
//	user, scheduling class, priority, CPU, memory, disk request, different machines
//	job_events: time µs, missing info, job ID, event type, user, scheduling class,
//	job name, logical job name
//
// Time 0 is before the trace began. Requests are fractions of the largest machine. Rows are
// sorted by time within and across the files of a table.
const (
	taskColumns2011 = 13
	jobColumns2011  = 8
)

// change2011 returns the effect of an event type: SUBMIT 0, SCHEDULE 1, EVICT 2, FAIL 3,
// FINISH 4, KILL 5, LOST 6, UPDATE_PENDING 7, UPDATE_RUNNING 8.
func change2011(kind []byte) (c change, is bool, err error) {
	if len(kind) == 1 {
		switch kind[0] {
		case '0', '7':
			return 0, false, nil
		case '1':
			return starts, true, nil
		case '2', '3', '4', '5', '6':
			return ends, true, nil
		case '8':
			return updates, true, nil
		}
	}
	return 0, false, fmt.Errorf("event type %q: want 0 to 8", clip(kind))
}

type event2011 struct {
	task   taskID
	at     int64
	change change
	user   string
	request
}

// readGoogle2011 reads users as users, jobs as pods and tasks as containers, as the paper
// does. A task without a user gets the user of its job.
func readGoogle2011(ctx context.Context, paths []string, o *Options, rep *Report) ([]cluster.User, error) {
	l := newTaskStates[taskID](o.Period.span(1000), true)
	jobs, err := eachTask2011(ctx, paths, o, l.span, rep, func(e *event2011) error {
		l.event(e.task, e.at, e.change, e.request, e.user)
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.finish(rep)
	users := map[int64]string{} // of jobs with tasks without a user
	for task, t := range l.tasks {
		if t.owner == "" {
			users[task.collection] = ""
		}
	}
	if err := findOwners(ctx, jobs, users, o, parseJob2011); err != nil {
		return nil, err
	}
	jobName := names{}
	return gatherTasks(l, o, rep, func(task taskID, t taskState) (owner, pod, name string) {
		return cmp.Or(t.owner, users[task.collection]), jobName.of(strconv.AppendInt(nil, task.collection, 10)), index(int(task.index))
	})
}

// eachTask2011 applies the task events until the end of the span, sorted by time, and
// returns the files of the job events.
func eachTask2011(ctx context.Context, paths []string, o *Options, s span, rep *Report, apply func(*event2011) error) (jobs []string, err error) {
	newParse := func() parse[event2011] { return parseTask2011(o, s) }
	tasks, jobs, err := googleTables(ctx, paths, "task_events", "job_events", o, newParse)
	if err != nil {
		return nil, err
	}
	last := int64(0)
	return jobs, eachLine(ctx, tasks, o, rep, newParse, func(e *event2011) error {
		if e.at < last {
			return fmt.Errorf("time goes back from %d to %d µs: name files in the order of time", last, e.at)
		}
		last = e.at
		return apply(e)
	})
}

func parseTask2011(o *Options, s span) parse[event2011] {
	var column [taskColumns2011][]byte
	users, last, first := names{}, int64(0), true
	return func(line []byte, e *event2011) (Reason, error) {
		err := exactly(line, column[:], "a google2011 task event")
		if err != nil {
			return kept, err
		}
		if e.at, err = whole("time", column[0]); err != nil {
			return kept, err
		}
		o.saw(e.at, 1000)
		if first && e.at > s.to {
			return kept, errPast
		}
		if e.at < last {
			return kept, fatal{fmt.Errorf("time goes back from %d to %d µs: sort the file by its first column", last, e.at)}
		}
		last, first = e.at, false
		if err := e.parse(column[:], o, users); err != nil {
			return kept, err
		}
		c, is, err := change2011(column[5])
		e.change = c
		switch {
		case err != nil:
			return kept, err
		case e.at > s.to:
			return Outside, nil
		case !is:
			return OtherEvent, nil
		}
		return kept, nil
	}
}

func (e *event2011) parse(column [][]byte, o *Options, users names) (err error) {
	if e.task.collection, err = whole("job ID", column[2]); err != nil {
		return err
	}
	if e.task.index, err = whole("task index", column[3]); err != nil {
		return err
	}
	e.user = users.of(column[6])
	e.request, err = o.parseRequest(field{"CPU request", column[9], o.Largest.CPU, 0}, field{"memory request", column[10], o.Largest.Memory, 0})
	return err
}

func parseJob2011() parse[ownerRow] {
	var column [jobColumns2011][]byte
	return func(line []byte, r *ownerRow) (_ Reason, err error) {
		if err = exactly(line, column[:], "a google2011 job event"); err != nil {
			return kept, err
		}
		r.collection, err = whole("job ID", column[2])
		r.user = string(column[4])
		return kept, err
	}
}
