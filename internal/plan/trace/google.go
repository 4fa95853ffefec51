package trace

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"unnest/internal/plan/cluster"
)

// taskID names a task of a job, as the trace of 2011 calls them, or an instance of a
// collection, as that of 2019 does.
type taskID struct{ collection, index int64 }

// ownerRow is the user of a job or collection.
type ownerRow struct {
	collection int64
	user       string
}

// googleTables returns the files of two tables: the events, and the owners of their tasks.
func googleTables[T any](ctx context.Context, paths []string, events, owners string, o *Options, newParse func() parse[T]) (eventFiles, ownerFiles []string, err error) {
	found, err := tables(paths, events, owners)
	if err != nil {
		return nil, nil, err
	}
	eventFiles = append(found[events], found[""]...)
	if len(eventFiles) == 0 {
		return nil, nil, fmt.Errorf("%s: has no %s: name the directory with %s and %s in it", paths[0], events, events, owners)
	}
	if ownerFiles, err = joined(eventFiles, found[owners], events, owners); err != nil {
		return nil, nil, cmp.Or(understood(ctx, eventFiles[0], o, newParse), err)
	}
	return eventFiles, ownerFiles, nil
}

// findOwners fills in the users of the collections that users has without one.
func findOwners(ctx context.Context, files []string, users map[int64]string, o *Options, newParse func() parse[ownerRow]) error {
	if len(users) == 0 {
		return nil
	}
	table := Report{} // of rows that are not containers
	return eachLine(ctx, files, o, &table, newParse, func(r *ownerRow) error {
		if user, wanted := users[r.collection]; wanted && user == "" {
			users[r.collection] = r.user
		}
		return nil
	})
}

// gatherTasks groups tasks, in the order of their IDs, by the owner and pod that place
// returns.
func gatherTasks(l *taskStates[taskID], o *Options, rep *Report, place func(taskID, taskState) (owner, pod, name string)) ([]cluster.User, error) {
	order := slices.SortedFunc(maps.Keys(l.tasks), func(a, b taskID) int {
		return cmp.Or(cmp.Compare(a.collection, b.collection), cmp.Compare(a.index, b.index))
	})
	g := newGrouping(o)
	for _, task := range order {
		t := l.tasks[task]
		owner, pod, name := place(task, t)
		if owner == "" && t.why == kept {
			t.why = NoOwner
		}
		if !rep.count(t.request) {
			continue
		}
		if err := g.add(owner, pod, name, t.Resources); err != nil {
			return nil, err
		}
	}
	return g.sorted(), nil
}
