package costing

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"unnest.io/unnest/internal/plan/cluster"
	"unnest.io/unnest/internal/plan/pack"
	"unnest.io/unnest/internal/plan/study"
)

// Explained is the plans of one user with every step.
type Explained struct {
	Plans  pack.Comparison
	Models cluster.Catalogue
	Bound  int64 // billionths of a dollar for an hour
}

// Explain plans the user of a name, or the pods of a namespace, and keeps every step.
func (s Setting) Explain(users iter.Seq[cluster.User], name string) (Explained, error) {
	var near []string
	namespace := cluster.User{Name: name}
	for u := range users {
		if u.Name == name {
			return s.explain(u)
		}
		near = append(near, u.Name)
		for _, p := range u.Pods {
			if p.Origin != nil && p.Origin.Namespace == name {
				p.Name = p.Origin.Name
				namespace.Pods, namespace.PerVM = append(namespace.Pods, p), u.PerVM
			}
		}
	}
	if len(namespace.Pods) > 0 {
		s.Today = nil
		return s.explain(namespace)
	}
	if len(near) == 0 {
		return Explained{}, fmt.Errorf("explain %s: the trace has no users", name)
	}
	slices.Sort(near)
	more := ""
	if len(near) > 3 {
		near, more = near[:3], " …; --json lists all"
	}
	return Explained{}, fmt.Errorf("explain %s: the trace has no such user: want one such as %s%s", name, strings.Join(near, ", "), more)
}

func (s Setting) explain(u cluster.User) (e Explained, err error) {
	if e.Models, err = s.models(u); err != nil {
		return e, err
	}
	o := s.Packing
	o.Explain = true
	e.Plans, e.Bound, err = study.Of(u, e.Models, o, s.start(u)...)
	return e, err
}
