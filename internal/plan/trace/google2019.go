package trace

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"unnest/internal/plan/cluster"
)

// row2019 has the columns of InstanceEvent and CollectionEvent that we need
// (clusterdata_trace_format_v3.proto in github.com/google/cluster-data). The published
// JSON lines, an export of BigQuery, have whole numbers in quotes, and omit empty columns.
type row2019 struct {
	Time           json.RawMessage `json:"time"`
	Type           json.RawMessage `json:"type"`
	Collection     json.RawMessage `json:"collection_id"`
	CollectionType json.RawMessage `json:"collection_type"`
	Index          json.RawMessage `json:"instance_index"`
	Alloc          json.RawMessage `json:"alloc_collection_id"`
	AllocIndex     json.RawMessage `json:"alloc_instance_index"`
	Request        struct {
		CPUs   json.RawMessage `json:"cpus"`
		Memory json.RawMessage `json:"memory"`
	} `json:"resource_request"`
	User string `json:"user"`
}

type event2019 struct {
	task   taskID
	alloc  taskID // collection 0: none
	at     int64
	change change
	request
}

// The names of event types, in the order of their numbers.
var types2019 = []string{"SUBMIT", "QUEUE", "ENABLE", "SCHEDULE", "EVICT", "FAIL", "FINISH", "KILL", "LOST",
	"UPDATE_PENDING", "UPDATE_RUNNING"}

func change2019(kind []byte) (c change, is bool, err error) {
	n, err := whole("event type", kind)
	if err != nil {
		n = int64(slices.Index(types2019, string(kind)))
	}
	switch {
	case n < 0 || n >= int64(len(types2019)):
		return 0, false, fmt.Errorf("event type %q: want 0 to 10", clip(kind))
	case n == 3:
		return starts, true, nil
	case n >= 4 && n <= 8:
		return ends, true, nil
	case n == 10:
		return updates, true, nil
	}
	return 0, false, nil
}

// readGoogle2019 reads clusterdata-2019 (trace version 3). An alloc instance is a pod, the
// tasks in it are its containers, and the user is that of the alloc set. A task outside an
// alloc is a pod of one container. The reservation of the alloc instance is not counted.
// Files are not sorted by time, so it remembers all tasks that began by the end of the period.
func readGoogle2019(ctx context.Context, paths []string, o *Options, rep *Report) ([]cluster.User, error) {
	l := newTaskStates[taskID](o.Period.span(1000), false)
	newParse := func() parse[event2019] { return parseInstance2019(o, l.span) }
	instances, collections, err := googleTables(ctx, paths, "instance_events", "collection_events", o, newParse)
	if err != nil {
		return nil, err
	}
	allocs := map[taskID]taskID{}
	err = eachLine(ctx, instances, o, rep, newParse, func(e *event2019) error {
		l.event(e.task, e.at, e.change, e.request, "")
		if e.alloc.collection != 0 {
			allocs[e.task] = e.alloc
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.finish(rep)
	users := map[int64]string{}
	for task := range l.tasks {
		users[task.collection] = ""
		if alloc, in := allocs[task]; in {
			users[alloc.collection] = ""
		}
	}
	if err := findOwners(ctx, collections, users, o, parseCollection2019); err != nil {
		return nil, err
	}
	return gatherTasks(l, o, rep, func(task taskID, _ taskState) (owner, pod, name string) {
		if alloc, in := allocs[task]; in {
			return cmp.Or(users[alloc.collection], users[task.collection]), name2019(alloc), name2019(task)
		}
		return users[task.collection], name2019(task), index(int(task.index))
	})
}

func name2019(t taskID) string {
	return strconv.FormatInt(t.collection, 10) + "/" + index(int(t.index))
}

func parseInstance2019(o *Options, s span) parse[event2019] {
	return func(line []byte, e *event2019) (Reason, error) {
		var row row2019
		if err := json.Unmarshal(line, &row); err != nil {
			return kept, fmt.Errorf("not a google2019 instance event: %w", err)
		}
		*e = event2019{}
		c, is, err := change2019(unquote(row.Type))
		if err != nil {
			return kept, err
		}
		e.change = c
		if err := e.read(&row, o); err != nil {
			return kept, err
		}
		kind := string(unquote(row.CollectionType))
		switch {
		case kind == "1" || kind == "ALLOC_SET":
			return Reserved, nil
		case e.at > s.to:
			return Outside, nil
		case !is:
			return OtherEvent, nil
		}
		return kept, nil
	}
}

func (e *event2019) read(row *row2019, o *Options) (err error) {
	if e.at, err = whole("time", unquote(row.Time)); err != nil {
		return err
	}
	o.saw(e.at, 1000)
	if e.task.collection, err = whole("collection_id", unquote(row.Collection)); err != nil {
		return err
	}
	if e.task.index, err = whole("instance_index", unquote(row.Index)); err != nil {
		return err
	}
	if alloc, index := unquote(row.Alloc), unquote(row.AllocIndex); len(alloc) > 0 && len(index) > 0 && index[0] != '-' {
		if e.alloc.collection, err = whole("alloc_collection_id", alloc); err != nil {
			return err
		}
		if e.alloc.index, err = whole("alloc_instance_index", index); err != nil {
			return err
		}
	}
	e.request, err = o.parseRequest(field{"cpus", unquote(row.Request.CPUs), o.Largest.CPU, 0}, field{"memory", unquote(row.Request.Memory), o.Largest.Memory, 0})
	return err
}

// unquote returns the text of a JSON number or of a string without escapes.
func unquote(raw json.RawMessage) []byte {
	if bytes.Equal(raw, []byte("null")) {
		return nil
	}
	return bytes.Trim(raw, `"`)
}

func parseCollection2019() parse[ownerRow] {
	return func(line []byte, r *ownerRow) (_ Reason, err error) {
		var row row2019
		if err := json.Unmarshal(line, &row); err != nil {
			return kept, fmt.Errorf("not a google2019 collection event: %w", err)
		}
		r.collection, err = whole("collection_id", unquote(row.Collection))
		r.user = row.User
		return kept, err
	}
}
