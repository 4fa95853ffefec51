package trace

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"unnest.io/unnest/internal/plan/cluster"
)

// LinkColumns are the columns of a file of links, in any order.
var LinkColumns = []string{"user", "pod", "a", "b", "weight"}

// Links are the rows of a file of links, by user and pod.
type Links struct {
	Rows int

	path  string
	of    map[linkedPod][]namedLink
	first linkedPod // of the first row
}

// linkedPod names a pod as the trace does.
type linkedPod struct{ user, pod string }

type namedLink struct {
	a, b   string
	weight float64
}

// ReadLinks reads a CSV file with the columns LinkColumns.
func ReadLinks(ctx context.Context, path string) (*Links, error) {
	o := Options{}
	if err := o.complete(&Columns{}); err != nil {
		return nil, err
	}
	type row struct {
		linkedPod
		namedLink
	}
	l := &Links{path: path, of: map[linkedPod][]namedLink{}}
	newParse := func() parse[row] {
		h := needs(LinkColumns...)
		return func(text []byte, r *row) (Reason, error) {
			c, why, err := h.read(text)
			if err != nil || why != kept {
				return why, fatalIf(err)
			}
			weight, err := strconv.ParseFloat(string(c[4]), 64)
			if err != nil || !(weight >= 0) || math.IsInf(weight, 1) {
				return kept, fatalIf(inColumn("weight", c[4], errors.New("want a number from 0")))
			}
			*r = row{linkedPod{string(c[0]), string(c[1])}, namedLink{string(c[2]), string(c[3]), weight}}
			return kept, nil
		}
	}
	err := eachLine(ctx, []string{path}, &o, &Report{}, newParse, func(r *row) error {
		if l.Rows == 0 {
			l.first = r.linkedPod
		}
		l.Rows++
		l.of[r.linkedPod] = append(l.of[r.linkedPod], r.namedLink)
		return nil
	})
	if err == nil && l.Rows == 0 {
		err = fmt.Errorf("%s: has no rows: the first line must name %s, the others links", path, strings.Join(LinkColumns, ","))
	}
	if err != nil {
		return nil, err
	}
	return l, nil
}

// fatalIf makes an error end the file.
func fatalIf(err error) error {
	if err == nil || errors.As(err, new(fatal)) {
		return err
	}
	return fatal{err}
}

// Join adds the links to the pods of users, named as in the trace or by namespace and name, and returns the number of rows of pods that the
// trace does not have. That it has none of the pods is an error.
func (l *Links) Join(users []cluster.User) (unused int, err error) {
	unused = l.Rows
	for _, u := range users {
		for i := range u.Pods {
			links := l.of[linkedPod{u.Name, u.Pods[i].Name}]
			if o := u.Pods[i].Origin; links == nil && o != nil {
				links = l.of[linkedPod{o.Namespace, o.Name}]
			}
			if err := l.join(u.Name, &u.Pods[i], links); err != nil {
				return 0, err
			}
			unused -= len(links)
		}
	}
	if unused == l.Rows {
		return 0, fmt.Errorf("%s: the trace has none of the pods, the first of which is pod %q of user %q: name both as the trace does", l.path, l.first.pod, l.first.user)
	}
	return unused, nil
}

func (l *Links) join(user string, p *cluster.Pod, links []namedLink) error {
	if len(links) == 0 {
		return nil
	}
	index := containerIndex(p)
	for _, link := range links {
		a, knownA := index[link.a]
		b, knownB := index[link.b]
		if !knownA || !knownB || a == b {
			return fmt.Errorf("%s: pod %s of user %s has no two containers %q and %q", l.path, p.Name, user, link.a, link.b)
		}
		p.Links = append(p.Links, cluster.Link{A: a, B: b, Weight: link.weight})
	}
	return nil
}

func containerIndex(p *cluster.Pod) map[string]int {
	index := map[string]int{}
	for k, c := range p.Containers {
		index[c.Name] = k
	}
	return index
}
