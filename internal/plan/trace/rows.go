package trace

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"unnest.io/unnest/internal/plan/cluster"
)

// read reads the tables of a trace. Rows that are tasks become containers in their order; then
// those tasks do that events have started.
func (c *Columns) read(ctx context.Context, paths []string, o *Options, rep *Report) ([]cluster.User, error) {
	g := newGrouping(o)
	l := newTaskStates[taskID](o.Period.span(max(c.time.tick, 1)), c.sorted)
	pods := map[taskID]taskID{} // of tasks that are in one
	owners, err := c.each(ctx, paths, o, rep, func(r *record) error {
		if r.of.event < 0 {
			return g.row(r, rep)
		}
		l.event(r.task, r.at, r.change, r.request, r.user)
		if r.inside != nil {
			pods[r.task] = *r.inside
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.finish(rep)
	users, err := c.findOwners(ctx, owners, o, l, pods)
	if err != nil {
		return nil, err
	}
	if err := g.tasks(c, l, rep, pods, users); err != nil {
		return nil, err
	}
	all := g.sorted()
	if pod, n := repeated(all); n > 0 {
		rep.Remarks = append(rep.Remarks, fmt.Sprintf("%d containers have the name of another of their pod, such as of %s: if rows occur twice, remove them, because each counts.", n, pod))
	}
	return all, nil
}

// repeated returns how many containers have the name of another one of their pod, and the first such pod.
func repeated(users []cluster.User) (pod string, n int) {
	seen := map[string]bool{}
	for _, u := range users {
		for _, p := range u.Pods {
			if len(p.Containers) < 2 {
				continue
			}
			if len(seen) > 1000 { // to clear a large one takes long
				seen = map[string]bool{}
			}
			clear(seen)
			for _, c := range p.Containers {
				if seen[c.Name] {
					n, pod = n+1, cmp.Or(pod, u.Name+"/"+p.Name)
				}
				seen[c.Name] = true
			}
		}
	}
	return pod, n
}

// each applies the rows of all files, and returns the files of owners.
func (c *Columns) each(ctx context.Context, paths []string, o *Options, rep *Report, apply func(*record) error) (owners []string, err error) {
	newParse := func() parse[record] { return c.parse(o) }
	files, owners, err := c.files(ctx, paths, o, newParse)
	if err != nil {
		return nil, err
	}
	last := int64(math.MinInt64)
	err = eachLine(ctx, files, o, rep, newParse, func(r *record) error {
		switch {
		case c.sorted && r.at < last:
			return fmt.Errorf("time goes back from %d to %d %s: name files in the order of time", last, r.at, c.time.unit)
		case c.sorted && len(rep.Unread) > 0:
			return fmt.Errorf("has rows in the period, but %s, named before it, begins after the period: name files in the order of time", display(rep.Unread[0]))
		}
		last = r.at
		return apply(r)
	})
	own := o.Columns == c && rep.Rows > 0
	for i := range o.filled {
		if t := c.tables[0]; own && !o.filled[i].Load() && !t.mayLack(ref(i)) {
			rep.Remarks = append(rep.Remarks, fmt.Sprintf("The column %s is empty in all rows: correct it in %s if it has another name.", t.cells[i], c.name))
		}
	}
	return owners, err
}

func (c *Columns) files(ctx context.Context, paths []string, o *Options, newParse func() parse[record]) (files, owners []string, err error) {
	var names []string
	for _, t := range c.tables {
		if t.files != "" {
			names = append(names, t.files)
		}
	}
	rows := names
	if c.owners != nil {
		names = append(slices.Clone(rows), c.owners.files)
	}
	if len(names) == 0 {
		files, err = expand(paths)
		return files, nil, err
	}
	found, err := tables(paths, names...)
	if err != nil {
		return nil, nil, err
	}
	for _, name := range append(rows, "") {
		files = append(files, found[name]...)
	}
	if c.owners == nil {
		return files, nil, nil
	}
	if len(files) == 0 {
		return nil, nil, fmt.Errorf("%s: has no %s: name the directory with %s and %s in it", paths[0], rows[0], rows[0], c.owners.files)
	}
	if owners, err = joined(files, found[c.owners.files], rows[0], c.owners.files); err != nil {
		return nil, nil, cmp.Or(understood(ctx, files[0], o, newParse), err)
	}
	return files, owners, nil
}

// row adds the containers of a row that is a task.
func (g *grouping) row(r *record, rep *Report) error {
	if r.instances == 0 {
		r.why = NoRequest
	}
	if !rep.count(r.request) {
		return nil
	}
	if r.gpu {
		rep.notes[GPU]++
	}
	if err := g.room(r.instances); err != nil {
		return err
	}
	p := g.user(r.user).pod(r.pod)
	if r.instances == 1 {
		p.Containers = append(p.Containers, cluster.Container{Name: r.name, Request: r.Resources})
		return nil
	}
	p.Containers = slices.Grow(p.Containers, int(r.instances))
	for i := range int(r.instances) {
		p.Containers = append(p.Containers, cluster.Container{Name: r.name + "/" + index(i), Request: r.Resources})
	}
	return nil
}

// ownerRow is the user of a pod, or of what a pod is in.
type ownerRow struct {
	of   ident
	user string
}

// findOwners returns the users of the tasks without one, by the first column of their names.
func (c *Columns) findOwners(ctx context.Context, files []string, o *Options, l *taskStates[taskID], pods map[taskID]taskID) (map[ident]string, error) {
	users := map[ident]string{}
	for task, t := range l.tasks {
		if t.owner != "" {
			continue
		}
		users[task[0]] = ""
		if pod, in := pods[task]; in {
			users[pod[0]] = ""
		}
	}
	return users, c.fillOwners(ctx, files, users, o)
}

func (c *Columns) fillOwners(ctx context.Context, files []string, users map[ident]string, o *Options) error {
	if c.owners == nil || len(users) == 0 {
		return nil
	}
	unread := Report{} // of rows that are not containers
	return eachLine(ctx, files, o, &unread, c.parseOwners, func(r *ownerRow) error {
		if user, wanted := users[r.of]; wanted && user == "" {
			users[r.of] = r.user
		}
		return nil
	})
}

// parseOwners returns how to read the table of owners.
func (c *Columns) parseOwners() parse[ownerRow] {
	split := c.splitter([]*table{c.owners})
	return func(line []byte, r *ownerRow) (_ Reason, err error) {
		t, cells, why, err := split(line)
		if err != nil || why != kept {
			return why, err
		}
		r.user = string(cells[t.user.ref])
		if !c.tables[0].numbers {
			r.of = textIdent(cells[t.task[0]])
			return kept, nil
		}
		r.of = ident{}
		r.of.n, err = whole(t.cells[t.task[0]], cells[t.task[0]])
		return kept, err
	}
}

// tasks adds the tasks that events have started, in the order of their names.
func (g *grouping) tasks(c *Columns, l *taskStates[taskID], rep *Report, pods map[taskID]taskID, users map[ident]string) error {
	at := slices.IndexFunc(c.tables, func(t *table) bool { return t.event >= 0 })
	for _, task := range slices.SortedFunc(maps.Keys(l.tasks), taskID.compare) {
		t := l.tasks[task]
		owner := cmp.Or(t.owner, users[task[0]])
		var inside *taskID
		if in, is := pods[task]; is {
			inside, owner = &in, cmp.Or(users[in[0]], owner)
		}
		if owner == "" && t.why == kept {
			t.why = NoOwner
		}
		if !rep.count(t.request) {
			continue
		}
		pod, name := c.tables[at].podName(task, inside)
		if err := g.add(owner, pod, name, t.Resources); err != nil {
			return err
		}
	}
	return nil
}
