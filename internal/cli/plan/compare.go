package plan

import (
	"cmp"
	"context"
	"iter"
	"runtime"
	"slices"
	"sync"

	"unnest/internal/plan"
)

// planned is what is kept of a user.
type planned struct {
	index int // in the order in which users come
	row   User
	split []splitPod
	err   error
}

// each plans the users on all processors, and returns them by name. When the context
// ends, it returns at once; what is being planned then ends unseen. Of several errors
// it returns the first user's, whatever the processors do.
func (s setting) each(ctx context.Context, users iter.Seq[plan.User], count int, p *progress) ([]planned, error) {
	type task struct {
		index int
		user  plan.User
	}
	tasks, results := make(chan task), make(chan planned)
	stop := make(chan struct{}) // after an error, no user is taken any more
	go func() {
		defer close(tasks)
		i := 0
		for u := range users {
			select {
			case tasks <- task{i, u}:
				i++
			case <-stop:
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for t := range tasks {
				r := s.one(t.user)
				r.index = t.index
				select {
				case results <- r:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	go func() {
		workers.Wait()
		close(results)
	}()
	return collect(ctx, results, stop, count, p)
}

// collect gathers results until there are no more, or the context ends.
func collect(ctx context.Context, results <-chan planned, stop chan<- struct{}, count int, p *progress) ([]planned, error) {
	var all []planned
	var failed *planned
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case r, open := <-results:
			switch {
			case !open && ctx.Err() != nil:
				return nil, context.Cause(ctx)
			case !open && failed != nil:
				return nil, failed.err
			case !open:
				slices.SortFunc(all, func(a, b planned) int { return cmp.Compare(a.row.Name, b.row.Name) })
				return all, nil
			case r.err == nil:
				all = append(all, r)
				p.users(len(all), count)
			case failed == nil:
				failed = &r
				close(stop)
			case r.index < failed.index:
				failed = &r
			}
		}
	}
}

// one plans one user.
func (s setting) one(u plan.User) planned {
	study, err := plan.Compare(u, s.catalogue, s.plan)
	if err != nil {
		return planned{err: err}
	}
	bound := plan.Bound(study.User, s.catalogue, plan.BoundOptions{Known: study.Best.Cost})
	row := User{Name: u.Name, Pods: len(study.User.Pods), Containers: containers(study.User), LeftOut: len(study.Left), Bound: dollars(bound.Best)}
	for _, scheme := range schemes {
		*row.Cost.at(scheme) = dollars(outcome(study, scheme).Cost)
	}
	row.SplitHostlo, row.SplitBest = study.Hostlo.Plan.Split(), study.Best.Plan.Split()
	r := planned{row: row}
	if s.scheme != "" {
		r.split = splitPods(study.User, s.trace.OwnerLabel != "", s.catalogue, outcome(study, s.scheme).Plan)
	}
	return r
}

// outcome returns a plan of a study by its name.
func outcome(s plan.Study, scheme string) plan.Outcome {
	switch scheme {
	case "kubernetes":
		return s.Kubernetes
	case "resize":
		return s.Resize
	case "hostlo":
		return s.Hostlo
	case "spread":
		return s.Spread
	case "whole":
		return s.Whole
	}
	return s.Best
}
